//! Finds the files of a trainer's workers, and reports the workers' state.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::atomic::Ordering;

use headspace_agent::recording::stage::{Worker, WorkerState, Workers};
use rustix::param::clock_ticks_per_second;
use rustix::process::geteuid;
use tracing::debug;

use super::finished_or_lost::finished_or_lost;
use super::layout::{File, PROOF, SIZE, is_proof};
use super::{Identity, Marker, mapping};
use crate::log_target::WORKERS;

/// Number of workers whose state is read per poll; the others follow in the next polls. Reading one
/// takes about 10 µs.
const CHECKED_PER_POLL: usize = 16;

/// The workers of the process that created the marker.
#[derive(Debug)]
pub struct FoundWorkers {
    marker: Marker,
    /// Known workers, by file name.
    known: BTreeMap<String, WorkerEntry>,
    /// Files of workers reported as ended: readable until the next poll.
    ended: Vec<&'static File>,
    /// Mappings that are free for new files.
    free: Vec<&'static File>,
    polls: usize,
}

#[derive(Debug)]
struct WorkerEntry {
    identity: Identity,
    file: &'static File,
    is_descendant: bool,
    label: Option<String>,
}

impl FoundWorkers {
    /// Searches for files below this marker. Its creator removes it at the end.
    pub fn below(marker: Marker) -> Self {
        Self {
            marker,
            known: BTreeMap::new(),
            ended: Vec::new(),
            free: Vec::new(),
            polls: 0,
        }
    }

    /// Opens new files.
    fn find(&mut self) {
        let Ok(entries) = fs::read_dir(self.marker.folder()) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !self.known.contains_key(*name)) else {
                continue;
            };
            let Some((identity, _)) = Identity::parse(name) else {
                continue;
            };
            if let Ok(file) = self.open(&entry.path(), identity) {
                debug!(target: WORKERS, pid = identity.pid, "found");
                let worker = WorkerEntry {
                    identity,
                    file,
                    is_descendant: identity.parent() != Some(parent_id()),
                    label: None,
                };
                self.known.insert(name.to_owned(), worker);
            } else if !identity.lives() {
                // The worker ended before its file was complete, or the file is of another version.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Maps a file if it is complete and belongs to `identity`. Before this check, its bytes are never
    /// accessed as memory.
    fn open(&mut self, path: &Path, identity: Identity) -> io::Result<&'static File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        let facts = file.metadata()?;
        let mut proof = [0; PROOF];
        let is_own = facts.is_file() && facts.uid() == geteuid().as_raw();
        if !is_own || facts.len() != SIZE as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.read_exact_at(&mut proof, 0)?;
        if !is_proof(&proof, identity) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let over = self.free.pop();
        mapping::map(&file, over).inspect_err(|_| self.free.extend(over))
    }

    /// Whether the worker has ended. Checks only the workers whose turn it is in this poll.
    fn has_ended(&self, place: usize, worker: &WorkerEntry) -> bool {
        let many = self.known.len();
        let turn =
            (place + many - (self.polls * CHECKED_PER_POLL) % many) % many < CHECKED_PER_POLL;
        worker.identity.number_is_free()
            || ((turn || worker.file.header.is_finished()) && !worker.identity.lives())
    }

    /// A name that no other running worker has, and that is not in `besides`. Names may repeat: each
    /// loader numbers its workers from 0, and all workers of a pool have the same name.
    fn label(&self, worker: &WorkerEntry, besides: &[&str]) -> String {
        let own = worker.file.header.label();
        let label = own.unwrap_or_else(|| format!("pid {}", worker.identity.pid));
        let is_free = |label: &str| {
            let mut others = self.known.values().filter_map(|other| other.label.as_ref());
            others.all(|other| other != label) && !besides.contains(&label)
        };
        if is_free(&label) {
            return label;
        }
        (2..=self.known.len() + besides.len() + 2)
            .map(|number| format!("{label} #{number}"))
            .find(|label| is_free(label))
            .unwrap_or(label)
    }

    /// Removes the workers that have ended, and returns each with its name. A worker that started and
    /// ended between two polls reuses the name of one that ended before it began. A pool that is
    /// recreated often therefore never has more names than it has concurrent workers.
    fn remove_ended(&mut self) -> Vec<(WorkerEntry, String)> {
        let places = self.known.iter().enumerate();
        let ended: Vec<String> = places
            .filter(|(place, (_, worker))| self.has_ended(*place, worker))
            .map(|(_, (name, _))| name.clone())
            .collect();
        let mut ended: Vec<(String, WorkerEntry)> = ended
            .into_iter()
            .filter_map(|name| self.known.remove_entry(&name))
            .collect();
        ended.sort_by_key(|(_, worker)| worker.identity.started);
        let mut named: Vec<(WorkerEntry, String)> = Vec::with_capacity(ended.len());
        for (name, worker) in ended {
            let begun = worker.identity.started;
            let label = worker.label.clone().unwrap_or_else(|| {
                let at_once = |(other, _): &&(WorkerEntry, String)| other.worked_until() > begun;
                let besides = named.iter().filter(at_once);
                self.label(
                    &worker,
                    &besides.map(|(_, label)| label.as_str()).collect::<Vec<_>>(),
                )
            });
            let _ = fs::remove_file(self.marker.folder().join(name));
            named.push((worker, label));
        }
        named
    }
}

impl WorkerEntry {
    /// A time at which the worker was certainly still running, in clock ticks since boot: its start
    /// plus its busy time.
    fn worked_until(&self) -> u64 {
        let taken = self.file.region.stages.iter();
        let taken = taken.take_while(|stage| stage.name.get().is_some());
        let busy_ns = taken.map(|stage| stage.busy.load(Ordering::Relaxed)).max();
        let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
        let worked = busy_ns.unwrap_or(0) / tick_ns.max(1);
        // At least one tick after its start, because its siblings start in the same tick.
        self.identity.started + 1 + worked
    }
}

impl Workers for FoundWorkers {
    fn find(&mut self) -> Vec<Worker> {
        for file in std::mem::take(&mut self.ended) {
            self.free.extend(mapping::empty(file));
        }
        self.find();
        self.polls += 1;
        let mut reports = Vec::with_capacity(self.known.len());
        // Remove ended workers first: their names are then free for later ones.
        for (worker, label) in self.remove_ended() {
            let state = finished_or_lost(worker.file);
            debug!(target: WORKERS, pid = worker.identity.pid, label, ?state, "ended");
            reports.push(report(&worker, label, state));
            self.ended.push(worker.file);
        }
        let unnamed: Vec<String> = self
            .known
            .iter()
            .filter(|(_, worker)| worker.label.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in unnamed {
            let label = self.known.get(&name).map(|worker| self.label(worker, &[]));
            if let Some(worker) = self.known.get_mut(&name) {
                worker.label = label;
            }
        }
        let living = self.known.values().map(|worker| {
            let label = worker.label.clone().unwrap_or_default();
            report(worker, label, WorkerState::Running)
        });
        reports.extend(living);
        reports
    }
}

fn report(worker: &WorkerEntry, label: String, state: WorkerState) -> Worker {
    Worker {
        label,
        pid: worker.identity.pid,
        is_descendant: worker.is_descendant,
        region: &worker.file.region,
        state,
    }
}
