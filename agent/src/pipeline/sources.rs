//! The sources of one run: who is read at a tick, and who is retired.

use std::time::Duration;

use super::apart::Apart;
use super::board::NoticeBoard;
use crate::model::Reading;
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
    pub(super) fn ask(&mut self, at: Duration) {
        for slot in &mut self.0 {
            if let Some(Source::Apart(apart)) = slot {
                apart.ask(at);
            }
        }
    }

    /// Appends what all of them say. One that does not work is retired, with one notice.
    pub(super) fn collect(
        &mut self,
        at: Duration,
        last: bool,
        board: &NoticeBoard,
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
                    retire(slot, error, board);
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
                Some(Err(error)) => retire(slot, error, board),
                None => {
                    if apart.outstanding(at).is_some() {
                        // It has used up the time that there was for all.
                        grace = Duration::ZERO;
                    }
                    if apart.outstanding(at).is_some_and(|for_| for_ >= LATE) {
                        board.post(&Notice::SourceSilent {
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
fn retire(slot: &mut Option<Source>, error: CollectError, board: &NoticeBoard) {
    let CollectError::Unsupported { reason, .. } = error else {
        return;
    };
    let Some(source) = slot.take() else { return };
    let name = match &source {
        Source::Inline(collector) => collector.name(),
        Source::Apart(apart) => apart.name(),
    };
    board.post(&Notice::SourceOff {
        source: name,
        reason,
    });
    // A collector that panicked may panic again when it is dropped.
    let _ = contain(|| drop(source));
}
