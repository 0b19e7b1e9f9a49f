//! The trainer's side: finds the files of its workers, and tells how the workers go.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use headspace_agent::record::stage::{Worker, WorkerState, Workers};
use rustix::param::clock_ticks_per_second;
use rustix::process::geteuid;

use super::layout::{File, PROOF, SIZE, is_proof};
use super::{Identity, Marker, mapping};

/// Workers whose state is read at one look; the others have their turn at the next. Reading one
/// takes about 10 µs.
const LOOKED_INTO: usize = 16;

/// The workers of the process that made the marker.
#[derive(Debug)]
pub struct FoundWorkers {
    marker: Marker,
    /// By the name of their files.
    seen: BTreeMap<String, Seen>,
    /// Told of as ended: readable until the next look.
    ended: Vec<&'static File>,
    /// Memory for files to come.
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
    /// Looks for files below that marker. Whoever made it removes it in the end.
    #[must_use]
    pub fn below(marker: Marker) -> Self {
        Self {
            marker,
            seen: BTreeMap::new(),
            ended: Vec::new(),
            free: Vec::new(),
            looks: 0,
        }
    }

    /// Takes note of files that are new.
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
                // It ended before its file was whole, or is of another version.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Maps a file if it is whole, and what it says it is. Until then no byte of it is touched as
    /// memory.
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

    /// Whether it has ended, as far as is looked into at this look.
    fn has_ended(&self, place: usize, seen: &Seen) -> bool {
        let many = self.seen.len();
        let turn = (place + many - (self.looks * LOOKED_INTO) % many) % many < LOOKED_INTO;
        seen.identity.number_is_free()
            || ((turn || seen.file.is_finished()) && !seen.identity.lives())
    }

    /// A name that no other living worker has, nor one of `besides`: loaders each number theirs from
    /// 0, and the workers of a pool are all called so.
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

    /// Takes those out that have ended, each with its name. One that nobody saw while it lived takes the
    /// name of one that ended before it began, so that a pool that is made anew, however often between
    /// two looks, has as many workers as it has at once.
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
    /// When it was surely still there, in clock ticks since boot: it worked for so long.
    fn worked_until(&self) -> u64 {
        let taken = self.file.region.stages.iter();
        let taken = taken.take_while(|stage| stage.name.get().is_some());
        let busy_ns = taken.map(|stage| stage.busy.load(Ordering::Relaxed)).max();
        let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
        let worked = busy_ns.unwrap_or(0) / tick_ns.max(1);
        // At least the tick in which it started: its siblings start in it as well.
        self.identity.started + 1 + worked
    }
}

impl Workers for FoundWorkers {
    fn look(&mut self) -> Vec<Worker> {
        for file in std::mem::take(&mut self.ended) {
            self.free.extend(mapping::empty(file));
        }
        self.find();
        self.looks += 1;
        let mut told = Vec::with_capacity(self.seen.len());
        // Those that have ended first: their names are free for those that came after them.
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
