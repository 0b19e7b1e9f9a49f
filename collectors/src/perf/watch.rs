//! Selects the threads that are counted individually, and holds their counters.
//!
//! Each counter uses one of the program's descriptors. So at most [`MOST_THREADS`] threads are watched,
//! with at most 1/32 of the descriptors that the process may open (two sources do this: 1/16 together).
//! The consumer has priority, then the threads that ran most recently, so that a pool of hundreds of
//! sleeping threads does not displace others. The agent's threads are excluded.
//!
//! A thread is counted from the time it is first seen. `inherit`, which counts from a thread's start,
//! works only for threads created later, and adds them to their creator.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use headspace_agent::port::{CollectError, ConsumerThread};
use perf_event::events::Event;
use rustix::process::{Resource, getrlimit};

use super::counter::Sensor;
use super::groups::{Counts, Groups};
use super::names::{AGENT, CONSUMER, group_of};
use super::refused_events;
use super::thread_list::Tasks;

/// Maximum number of watched threads.
const MOST_THREADS: usize = 32;

/// Divisor of the process's descriptor limit: the part that one source may use.
const SHARE_OF_DESCRIPTORS: u64 = 32;

/// Number of readings between two rankings, if there are more threads than may be watched.
const RANKING: u32 = 10;

/// Number of counters that other code may close before the source gives up.
const MOST_LOST: u32 = 100;

/// The watched threads, each with one counter per event.
#[derive(Debug)]
pub(super) struct Watch<const N: usize> {
    /// `None` for events that this machine does not count.
    events: [Option<Event>; N],
    tasks: Tasks,
    consumer: ConsumerThread,
    watched: HashMap<i32, Watched<N>>,
    /// CPU time of each thread at the last ranking.
    ran: HashMap<i32, u64>,
    /// Number of readings until the next ranking.
    until_ranking: u32,
    lost: u32,
    pub(super) groups: Groups<N>,
}

#[derive(Debug)]
struct Watched<const N: usize> {
    sensors: [Option<Sensor>; N],
    group: Box<str>,
}

impl<const N: usize> Watch<N> {
    /// Tries each event on the calling thread, and keeps those that can be counted here.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if no event can be counted. The reason is the first permission
    /// error, or else the first error. `what` says what the events count.
    pub(super) fn new(
        events: [Event; N],
        what: &str,
        consumer: ConsumerThread,
    ) -> Result<Self, CollectError> {
        let root = Path::new("/");
        let mut errors = Vec::new();
        let events = events.map(|event| match Sensor::open(event.clone(), 0) {
            Ok(_) => Some(event),
            Err(error) => {
                errors.push(error);
                None
            }
        });
        if events.iter().all(Option::is_none) {
            let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            let position = errors.iter().position(denied).unwrap_or(0);
            return Err(refused_events::explain(&errors[position], what, root));
        }
        Ok(Self {
            events,
            tasks: Tasks::with_root(root),
            consumer,
            watched: HashMap::new(),
            ran: HashMap::new(),
            until_ranking: 0,
            lost: 0,
            groups: Groups::new(),
        })
    }

    /// Reads all watched threads. `used` selects the count by which groups are ordered.
    pub(super) fn read_threads(
        &mut self,
        used: impl Fn(&Counts<N>, u64) -> u64,
    ) -> Result<(), CollectError> {
        let tids = self.tasks.list()?;
        let consumer = self.consumer.get().filter(|tid| tids.contains(tid));
        let chosen = self.choose(&tids, consumer);
        for &tid in &chosen {
            let name = self.tasks.name(tid).map(|name| group_of(name).into());
            let group: Option<Box<str>> = match name {
                _ if Some(tid) == consumer => Some(CONSUMER.into()),
                name => name,
            };
            if let Some(group) = group.filter(|group| **group != *AGENT) {
                self.open(tid, group);
            }
        }

        self.groups.begin();
        let mut lost = 0;
        for watched in self.watched.values_mut() {
            let (counts, time, gone) = watched.advance();
            self.groups
                .add(&watched.group, used(&counts, time), &counts);
            lost += gone;
        }
        self.groups.end();
        // Threads that have ended or were not chosen were read a last time.
        self.watched.retain(|tid, _| chosen.contains(tid));
        self.lost += lost;
        if self.lost > MOST_LOST {
            return Err(CollectError::unsupported(
                "another part of the program keeps closing file descriptors that are not its own",
            ));
        }
        Ok(())
    }

    /// Opens the missing counters of a thread. A counter that cannot be opened now is tried again.
    fn open(&mut self, tid: i32, group: Box<str>) {
        let watched = self.watched.entry(tid).or_insert_with(|| Watched {
            sensors: [const { None }; N],
            group: group.clone(),
        });
        watched.group = group;
        for (sensor, event) in watched.sensors.iter_mut().zip(&self.events) {
            if sensor.is_none() {
                *sensor = event
                    .as_ref()
                    .and_then(|event| Sensor::open(event.clone(), tid).ok());
            }
        }
    }

    /// The threads to watch from now on.
    fn choose(&mut self, tids: &[i32], consumer: Option<i32>) -> HashSet<i32> {
        let counters = self.events.iter().flatten().count();
        let limit = thread_limit(counters);
        if tids.len() <= limit {
            self.until_ranking = 0;
            return tids.iter().copied().collect();
        }
        let mut chosen: HashSet<i32> = consumer.into_iter().collect();
        if self.until_ranking > 0 {
            self.until_ranking -= 1;
            let stay = tids.iter().filter(|tid| self.watched.contains_key(tid));
            chosen.extend(stay.take(limit.saturating_sub(chosen.len())));
            return chosen;
        }
        self.until_ranking = RANKING;
        let ran: HashMap<i32, u64> = tids
            .iter()
            .filter_map(|&tid| Some((tid, self.tasks.times(tid)?.ran_ns)))
            .collect();
        let lately = |tid: &i32| {
            let now = ran.get(tid).copied().unwrap_or(0);
            now.saturating_sub(self.ran.get(tid).copied().unwrap_or(0))
        };
        let mut order: Vec<_> = tids
            .iter()
            .filter(|&&tid| Some(tid) != consumer)
            .map(|tid| (lately(tid), self.watched.contains_key(tid), *tid))
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, _, tid) in order {
            if chosen.len() >= limit {
                break;
            }
            let name = self.tasks.name(tid);
            if name.is_some_and(|name| group_of(name) != AGENT) {
                chosen.insert(tid);
            }
        }
        self.ran = ran;
        chosen
    }
}

impl<const N: usize> Watched<N> {
    /// The increase since the last reading, the nanoseconds that the thread ran in that time, and the number
    /// of lost counters.
    fn advance(&mut self) -> (Counts<N>, u64, u32) {
        let (mut counts, mut time, mut lost) = ([None; N], 0, 0);
        for (count, slot) in counts.iter_mut().zip(&mut self.sensors) {
            let Some(sensor) = slot else { continue };
            match sensor.advance() {
                Ok(Some((grown, enabled))) => {
                    *count = Some(grown);
                    time = time.max(enabled);
                }
                Ok(None) => {}
                Err(_) => {
                    *slot = None;
                    lost += 1;
                }
            }
        }
        (counts, time, lost)
    }
}

/// Maximum number of watched threads with this many counters each; at least one.
fn thread_limit(counters: usize) -> usize {
    let open = getrlimit(Resource::Nofile).current;
    share(open.unwrap_or(u64::MAX), counters)
}

fn share(open: u64, counters: usize) -> usize {
    let counters_allowed = usize::try_from(open / SHARE_OF_DESCRIPTORS).unwrap_or(usize::MAX);
    (counters_allowed / counters.max(1)).clamp(1, MOST_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_make_few_watched_threads() {
        assert_eq!(share(1024, 2), 16);
        assert_eq!(share(1024, 6), 5);
        assert_eq!(share(20_000, 2), MOST_THREADS);
        assert_eq!(share(64, 6), 1);
        assert_eq!(share(u64::MAX, 0), MOST_THREADS);
    }
}
