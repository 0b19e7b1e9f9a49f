//! Finds the files of a trainer's workers, and reports the workers' state.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use headspace_agent::recording::stage::{Worker, WorkerState, Workers};
use rustix::param::clock_ticks_per_second;
use rustix::process::geteuid;

use super::layout::{File, PROOF, SIZE, is_proof};
use super::{Identity, Marker, mapping};

/// Number of workers whose state is read per poll; the others follow in the next polls. Reading one
/// takes about 10 µs.
const LOOKED_INTO: usize = 16;

/// The workers of the process that created the marker.
#[derive(Debug)]
pub struct FoundWorkers {
    marker: Marker,
    /// Known workers, by file name.
    seen: BTreeMap<String, Seen>,
    /// Files of workers reported as ended: readable until the next poll.
    ended: Vec<&'static File>,
    /// Mappings that are free for new files.
    free: Vec<&'static File>,
    looks: usize,
}

#[derive(Debug)]
struct Seen {
    identity: Identity,
    file: &'static File,
    label: Option<String>,
}

impl FoundWorkers {
    /// Searches for files below this marker. Its creator removes it at the end.
    pub fn below(marker: Marker) -> Self {
        Self {
            marker,
            seen: BTreeMap::new(),
            ended: Vec::new(),
            free: Vec::new(),
            looks: 0,
        }
    }

    /// Opens new files.
    fn find(&mut self) {
        let Ok(entries) = fs::read_dir(self.marker.folder()) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !self.seen.contains_key(*name)) else {
                continue;
            };
            let Some((identity, _)) = Identity::parse(name) else {
                continue;
            };
            if let Ok(file) = self.open(&entry.path(), identity) {
                let seen = Seen {
                    identity,
                    file,
                    label: None,
                };
                self.seen.insert(name.to_owned(), seen);
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
    fn has_ended(&self, place: usize, seen: &Seen) -> bool {
        let many = self.seen.len();
        let turn = (place + many - (self.looks * LOOKED_INTO) % many) % many < LOOKED_INTO;
        seen.identity.number_is_free()
            || ((turn || seen.file.header.is_finished()) && !seen.identity.lives())
    }

    /// A name that no other running worker has, and that is not in `besides`. Names may repeat: each
    /// loader numbers its workers from 0, and all workers of a pool have the same name.
    fn label(&self, seen: &Seen, besides: &[&str]) -> String {
        let own = seen.file.header.label();
        let label = own.unwrap_or_else(|| format!("pid {}", seen.identity.pid));
        let is_free = |label: &str| {
            let mut others = self.seen.values().filter_map(|other| other.label.as_ref());
            others.all(|other| other != label) && !besides.contains(&label)
        };
        if is_free(&label) {
            return label;
        }
        (2..=self.seen.len() + besides.len() + 2)
            .map(|number| format!("{label} #{number}"))
            .find(|label| is_free(label))
            .unwrap_or(label)
    }

    /// Removes the workers that have ended, and returns each with its name. A worker that started and
    /// ended between two polls reuses the name of one that ended before it began. A pool that is
    /// recreated often therefore never has more names than it has concurrent workers.
    fn take_ended(&mut self) -> Vec<(Seen, String)> {
        let places = self.seen.iter().enumerate();
        let gone: Vec<String> = places
            .filter(|(place, (_, seen))| self.has_ended(*place, seen))
            .map(|(_, (name, _))| name.clone())
            .collect();
        let mut gone: Vec<(String, Seen)> = gone
            .into_iter()
            .filter_map(|name| self.seen.remove_entry(&name))
            .collect();
        gone.sort_by_key(|(_, seen)| seen.identity.started);
        let mut named: Vec<(Seen, String)> = Vec::with_capacity(gone.len());
        for (name, seen) in gone {
            let begun = seen.identity.started;
            let label = seen.label.clone().unwrap_or_else(|| {
                let at_once = |(other, _): &&(Seen, String)| other.worked_until() > begun;
                let besides = named.iter().filter(at_once);
                self.label(
                    &seen,
                    &besides.map(|(_, label)| label.as_str()).collect::<Vec<_>>(),
                )
            });
            let _ = fs::remove_file(self.marker.folder().join(name));
            named.push((seen, label));
        }
        named
    }
}

impl Seen {
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
        self.looks += 1;
        let mut told = Vec::with_capacity(self.seen.len());
        // Remove ended workers first: their names are then free for later ones.
        for (seen, label) in self.take_ended() {
            let state = if seen.file.ended_well() {
                WorkerState::Finished
            } else {
                WorkerState::Lost
            };
            told.push(worker(&seen, label, state));
            self.ended.push(seen.file);
        }
        let unnamed: Vec<String> = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.label.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in unnamed {
            let label = self.seen.get(&name).map(|seen| self.label(seen, &[]));
            if let Some(seen) = self.seen.get_mut(&name) {
                seen.label = label;
            }
        }
        let living = self.seen.values().map(|seen| {
            let label = seen.label.clone().unwrap_or_default();
            worker(seen, label, WorkerState::Running)
        });
        told.extend(living);
        told
    }
}

fn worker(seen: &Seen, label: String, state: WorkerState) -> Worker {
    Worker {
        label,
        pid: seen.identity.pid,
        region: &seen.file.region,
        state,
    }
}
