//! Ticks, reduced to the fields that a series needs.

use std::borrow::Cow;

use crate::model::distribution::DistributionRecord;
use crate::model::metric::THREAD_RUN_QUEUE_TIME;
use crate::model::record::{Phase, TickRecord};
use crate::model::{Scope, attributes};

/// The fields of a `tick` record that a series needs. A reader of files skips the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeriesTick<'a> {
    /// Monotonic seconds since the run began.
    pub at_s: f64,
    /// Entries of the loops.
    pub loops: Vec<SeriesLoop<'a>>,
    /// Entries of the stages.
    pub stages: Vec<SeriesStage<'a>>,
    /// Seconds that the thread that receives the batches has waited for a core since it began, if measured.
    pub waited_for_core_s: Option<f64>,
}

/// The fields of a loop's entry in a tick that a series needs, as in the record.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesLoop<'a> {
    /// The loop's name.
    pub name: Cow<'a, str>,
    /// Where the batches came from.
    pub phase: Phase,
    /// Batches received.
    pub steps: u64,
    /// Samples in them, where known.
    pub samples: Option<u64>,
    /// From requesting a batch to receiving it.
    pub wait: Cow<'a, DistributionRecord>,
    /// From receiving a batch to requesting the next.
    pub compute: Cow<'a, DistributionRecord>,
    /// From one batch to the next.
    pub step: Cow<'a, DistributionRecord>,
}

/// The fields of a stage's entry in a tick that a series needs.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesStage<'a> {
    /// The stage's name.
    pub name: Cow<'a, str>,
    /// Calls that ended.
    pub calls: u64,
    /// Total duration of these calls, in milliseconds.
    pub ms: f64,
}

impl<'a> From<&'a TickRecord> for SeriesTick<'a> {
    fn from(tick: &'a TickRecord) -> Self {
        let loops = tick.loops.iter().map(|entry| SeriesLoop {
            name: Cow::Borrowed(&entry.name),
            phase: entry.phase,
            steps: entry.steps,
            samples: entry.samples,
            wait: Cow::Borrowed(&entry.wait),
            compute: Cow::Borrowed(&entry.compute),
            step: Cow::Borrowed(&entry.step),
        });
        let stages = tick.stages.iter().map(|stage| SeriesStage {
            name: Cow::Borrowed(&stage.name),
            calls: stage.time.count,
            ms: stage.time.sum_ms,
        });
        let consumer = Scope::Thread(attributes::CONSUMER.into());
        Self {
            at_s: tick.at_s,
            loops: loops.collect(),
            stages: stages.collect(),
            waited_for_core_s: tick.reading(&consumer, &THREAD_RUN_QUEUE_TIME),
        }
    }
}
