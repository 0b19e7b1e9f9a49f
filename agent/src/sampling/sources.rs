//! Reads the sources of one run at each tick, and retires those that do not work.

use std::time::Duration;

use super::background_source::{BackgroundSource, collect_span};
use crate::model::{Reading, log_target};
use crate::notice::{Notice, NoticeLog};
use crate::port::catch_panics::contain;
use crate::port::{CollectError, Collector};

/// How long a tick waits for all background sources together. Later responses count for the next tick.
const GRACE: Duration = Duration::from_millis(20);

/// The same at the end of the run, which has no next tick.
const LAST_GRACE: Duration = Duration::from_millis(250);

/// A notice is posted for a source that has not responded for this long.
const LATE: Duration = Duration::from_secs(30);

/// How the sampler reads a source.
pub enum Source {
    /// On the sampler's thread.
    Inline(Box<dyn Collector>),
    /// On a thread of its own.
    Background(BackgroundSource),
}

/// Every source of a run. A retired source is `None`.
#[derive(Default)]
pub struct Sources(Vec<Option<Source>>);

impl Sources {
    /// Sources that have not been read.
    pub fn new(sources: Vec<Source>) -> Self {
        Self(sources.into_iter().map(Some).collect())
    }

    /// Requests readings from the background sources.
    pub(super) fn request(&mut self, at: Duration, last: bool) {
        for slot in &mut self.0 {
            if let Some(Source::Background(source)) = slot {
                source.request(at, last);
            }
        }
    }

    /// Appends the readings of all sources. A source that does not work is retired, with one notice.
    pub(super) fn collect(
        &mut self,
        at: Duration,
        last: bool,
        notice_log: &NoticeLog,
        out: &mut Vec<Reading>,
    ) {
        // Background sources come last: they work while the others are read.
        for slot in &mut self.0 {
            if let Some(Source::Inline(collector)) = slot {
                let before = out.len();
                let _collect = collect_span(collector.name()).entered();
                let outcome = contain(|| collector.collect(at, out));
                let result = outcome.unwrap_or_else(|panic| Err(CollectError::unsupported(panic)));
                if let Err(error) = result {
                    out.truncate(before);
                    retire(slot, error, notice_log);
                }
            }
        }
        let mut grace = if last { LAST_GRACE } else { GRACE };
        for slot in &mut self.0 {
            let Some(Source::Background(source)) = slot else {
                continue;
            };
            match source.receive(grace) {
                Some(Ok(mut readings)) => out.append(&mut readings),
                Some(Err(error)) => retire(slot, error, notice_log),
                None => {
                    let Some(outstanding) = source.outstanding(at) else {
                        continue;
                    };
                    // This source has used up the time for all of them.
                    grace = Duration::ZERO;
                    if outstanding >= LATE {
                        notice_log.post(&Notice::SourceSilent {
                            source: source.name(),
                            seconds: LATE.as_secs(),
                        });
                    }
                }
            }
        }
    }

    /// CPU time of the sources on threads other than the sampler's.
    pub(super) fn cpu_time(&self) -> Duration {
        self.0
            .iter()
            .flatten()
            .map(|source| match source {
                Source::Inline(collector) => collector.cpu_time(),
                Source::Background(source) => source.cpu_time(),
            })
            .sum()
    }
}

/// Handles an error: a transient error loses the readings of one tick, any other retires the source.
fn retire(slot: &mut Option<Source>, error: CollectError, notice_log: &NoticeLog) {
    let name = match slot {
        Some(Source::Inline(collector)) => collector.name(),
        Some(Source::Background(source)) => source.name(),
        None => return,
    };
    let CollectError::Unsupported { reason, .. } = error else {
        tracing::debug!(target: log_target::SOURCE, source = name, %error, "no readings this tick");
        return;
    };
    let source = slot.take();
    tracing::info!(target: log_target::SOURCE, source = name, reason, "retired");
    notice_log.post(&Notice::SourceOff {
        source: name,
        reason,
    });
    // A collector that panicked may panic again when it is dropped.
    let _ = contain(|| drop(source));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;
    use crate::model::{Scope, metric};
    use crate::sampling::background_source::background_source;
    use crate::testing::{CollectWith, ManualClock};

    /// A notice log, and what it printed.
    fn notice_log() -> (NoticeLog, Arc<Mutex<Vec<String>>>) {
        let posted = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&posted);
        let notice_log = NoticeLog::new(Box::new(move |notice| {
            log.lock().unwrap().push(notice.code().to_owned());
        }));
        (notice_log, posted)
    }

    fn reading() -> Reading {
        Reading::new(&metric::PROCESS_THREAD_COUNT, Scope::Process, 1.0)
    }

    fn read(sources: &mut Sources, at_s: u64, notice_log: &NoticeLog) -> usize {
        let at = Duration::from_secs(at_s);
        let mut out = Vec::new();
        sources.request(at, true);
        sources.collect(at, true, notice_log, &mut out);
        out.len()
    }

    #[test]
    fn a_stuck_source_loses_only_its_own_readings_and_has_one_notice() {
        let (notice_log, posted) = notice_log();
        let (_stuck, wait) = mpsc::channel::<()>();
        let (tick, source_thread) = background_source("driver", Duration::ZERO);
        thread::spawn(move || {
            let collector = CollectWith(move |_, _: &mut Vec<Reading>| {
                let _ = wait.recv();
                Ok(())
            });
            source_thread.run(Box::new(collector), &ManualClock::default());
        });
        let other = CollectWith(|_, out: &mut Vec<Reading>| {
            out.push(reading());
            Ok(())
        });
        let mut sources = Sources::new(vec![
            Source::Background(tick),
            Source::Inline(Box::new(other)),
        ]);

        let counts = [0, 29, 30, 31].map(|at_s| read(&mut sources, at_s, &notice_log));

        assert_eq!(counts, [1, 1, 1, 1]);
        assert_eq!(*posted.lock().unwrap(), ["source_silent"]);
    }

    #[test]
    fn a_failing_background_source_is_retired_with_one_notice() {
        let (notice_log, posted) = notice_log();
        let (tick, source_thread) = background_source("driver", Duration::ZERO);
        let thread = thread::spawn(move || {
            let collector =
                CollectWith(|_, _: &mut Vec<Reading>| Err(CollectError::unsupported("lost")));
            source_thread.run(Box::new(collector), &ManualClock::default());
        });
        let mut sources = Sources::new(vec![Source::Background(tick)]);
        sources.request(Duration::ZERO, false);
        // The response is there when the thread has ended.
        thread.join().unwrap();

        let counts = [0, 1].map(|at_s| read(&mut sources, at_s, &notice_log));

        assert_eq!(counts, [0, 0]);
        assert_eq!(*posted.lock().unwrap(), ["source_off"]);
    }
}
