//! The sources of one run: who is read at a tick, and who is retired.

use std::time::Duration;

use super::apart::Apart;
use super::notice_log::NoticeLog;
use crate::model::{Reading, log_target};
use crate::notice::Notice;
use crate::port::contain::contain;
use crate::port::{CollectError, Collector};

/// How long a tick waits for sources that have a thread of their own, all together. They answer in
/// the next one otherwise.
const GRACE: Duration = Duration::from_millis(20);

/// The same when the run ends, and there is no next tick.
const LAST_GRACE: Duration = Duration::from_millis(250);

/// A source that has not answered for so long is told of.
const LATE: Duration = Duration::from_secs(30);

/// How the tick reaches a source.
pub enum Source {
    /// Read by the tick itself.
    Inline(Box<dyn Collector>),
    /// Read by a thread of its own.
    Apart(Apart),
}

/// Every source of a run; a retired one leaves its place empty.
#[derive(Default)]
pub struct Sources(Vec<Option<Source>>);

impl Sources {
    /// Sources that have not been read.
    #[must_use]
    pub fn new(sources: Vec<Source>) -> Self {
        Self(sources.into_iter().map(Some).collect())
    }

    /// Asks those that answer when they can.
    pub(super) fn ask(&mut self, at: Duration, last: bool) {
        for slot in &mut self.0 {
            if let Some(Source::Apart(apart)) = slot {
                apart.ask(at, last);
            }
        }
    }

    /// Appends what all of them say. One that does not work is retired, with one notice.
    pub(super) fn collect(
        &mut self,
        at: Duration,
        last: bool,
        notice_log: &NoticeLog,
        out: &mut Vec<Reading>,
    ) {
        // Those that answer when they can come last: the others give them time.
        for slot in &mut self.0 {
            if let Some(Source::Inline(collector)) = slot {
                let before = out.len();
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
            let Some(Source::Apart(apart)) = slot else {
                continue;
            };
            match apart.take(grace) {
                Some(Ok(mut readings)) => out.append(&mut readings),
                Some(Err(error)) => retire(slot, error, notice_log),
                None => {
                    if apart.outstanding(at).is_some() {
                        // It has used up the time that there was for all.
                        grace = Duration::ZERO;
                    }
                    if apart.outstanding(at).is_some_and(|for_| for_ >= LATE) {
                        notice_log.post(&Notice::SourceSilent {
                            source: apart.name(),
                            seconds: LATE.as_secs(),
                        });
                    }
                }
            }
        }
    }

    /// CPU time that they used on threads other than the tick's.
    pub(super) fn cpu_time(&self) -> Duration {
        self.0
            .iter()
            .flatten()
            .map(|source| match source {
                Source::Inline(collector) => collector.cpu_time(),
                Source::Apart(apart) => apart.cpu_time(),
            })
            .sum()
    }
}

/// A transient error costs the readings of one tick; any other, the source.
fn retire(slot: &mut Option<Source>, error: CollectError, notice_log: &NoticeLog) {
    let name = match slot {
        Some(Source::Inline(collector)) => collector.name(),
        Some(Source::Apart(apart)) => apart.name(),
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

    use super::super::apart::apart;
    use super::*;
    use crate::model::{Scope, metric};
    use crate::testing::{CollectWith, ManualClock};

    /// A notice log, and what it printed.
    fn notice_log() -> (NoticeLog, Arc<Mutex<Vec<String>>>) {
        let said = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&said);
        let notice_log = NoticeLog::new(Box::new(move |notice| {
            heard.lock().unwrap().push(notice.code().to_owned());
        }));
        (notice_log, said)
    }

    fn reading() -> Reading {
        Reading::new(&metric::PROCESS_THREAD_COUNT, Scope::Process, 1.0)
    }

    fn read(sources: &mut Sources, at_s: u64, notice_log: &NoticeLog) -> usize {
        let at = Duration::from_secs(at_s);
        let mut out = Vec::new();
        sources.ask(at, true);
        sources.collect(at, true, notice_log, &mut out);
        out.len()
    }

    #[test]
    fn a_source_that_is_stuck_costs_its_own_readings_and_is_told_of_once() {
        let (notice_log, said) = notice_log();
        let (_stuck, wait) = mpsc::channel::<()>();
        let (tick, attendant) = apart("driver", Duration::ZERO);
        thread::spawn(move || {
            let collector = CollectWith(move |_, _: &mut Vec<Reading>| {
                let _ = wait.recv();
                Ok(())
            });
            attendant.run(Box::new(collector), &ManualClock::default());
        });
        let other = CollectWith(|_, out: &mut Vec<Reading>| {
            out.push(reading());
            Ok(())
        });
        let mut sources = Sources::new(vec![Source::Apart(tick), Source::Inline(Box::new(other))]);

        let counts = [0, 29, 30, 31].map(|at_s| read(&mut sources, at_s, &notice_log));

        assert_eq!(counts, [1, 1, 1, 1]);
        assert_eq!(*said.lock().unwrap(), ["source_silent"]);
    }

    #[test]
    fn a_source_apart_that_does_not_work_is_retired_with_one_notice() {
        let (notice_log, said) = notice_log();
        let (tick, attendant) = apart("driver", Duration::ZERO);
        let thread = thread::spawn(move || {
            let collector =
                CollectWith(|_, _: &mut Vec<Reading>| Err(CollectError::unsupported("lost")));
            attendant.run(Box::new(collector), &ManualClock::default());
        });
        let mut sources = Sources::new(vec![Source::Apart(tick)]);
        sources.ask(Duration::ZERO, false);
        // It has answered when its thread has ended.
        thread.join().unwrap();

        let counts = [0, 1].map(|at_s| read(&mut sources, at_s, &notice_log));

        assert_eq!(counts, [0, 0]);
        assert_eq!(*said.lock().unwrap(), ["source_off"]);
    }
}
