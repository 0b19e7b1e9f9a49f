//! The steps of one loop in steady state: their times, and the calls of the stages meanwhile.
//!
//! The summary says how many steps are steady, because the run saw each step. If warm-up ends inside a
//! bucket, only its last *n* steps count, so that number, sum and mean of the steps match the summary.

use std::collections::BTreeSet;

use super::bucket::{Bucket, LoopPart};
use super::quantity::Quantity;
use crate::model::record::{RunState, SummaryRecord};
use crate::model::{Distribution, Mode};
use crate::statistics::precision::{Known, ratio};
use crate::statistics::steady_state::LEAST_WARMUP;

/// Selects steps of a series.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepSelection<'a> {
    /// The loop; `None` if no summary names one.
    pub loop_name: Option<&'a str>,
    /// Whether to select steps from the cache instead of steps from the source.
    pub replay: bool,
    /// How many of the last steps are in steady state; `None` if unknown.
    pub steady_steps: Option<u64>,
    /// Duration of those steps in seconds, if known.
    pub steady_s: Option<f64>,
    /// Seconds of waiting in those steps, if known.
    pub waiting_s: Option<f64>,
}

impl<'a> StepSelection<'a> {
    /// Selects the steps that a run's last summary is about.
    ///
    /// If a run did not finish normally, its last summary is older than its last ticks. The summary then
    /// does not determine which steps are the last ones, and all steps after the first 20 count.
    pub fn from_summary(summary: &'a SummaryRecord) -> Self {
        let finished = summary.state == RunState::Finished;
        // With a floor, `wait_ms` is the wait of the probe's live windows.
        let wait_ms = summary.wait_ms.filter(|_| summary.floor_step_ms.is_none());
        Self {
            loop_name: summary.loop_name.as_deref(),
            replay: summary.mode == Some(Mode::Replay),
            steady_steps: finished.then_some(summary.steady_steps),
            steady_s: Some(summary.steady_s).filter(|s| finished && *s > 0.0),
            waiting_s: wait_ms
                .map(|ms| ms / 1e3 * summary.steady_steps as f64)
                .filter(|_| finished),
        }
    }
}

/// The steps of one loop in steady state.
#[derive(Debug, Clone)]
pub struct Steady<'a> {
    buckets: &'a [Bucket],
    /// The steady steps of the bucket in which warm-up ends, if it ends inside one.
    begun: Option<LoopPart>,
    /// The last reading, before those buckets, of the thread that receives the batches.
    core_wait_before: Option<(f64, f64)>,
    name: &'a str,
    replay: bool,
}

impl<'a> Steady<'a> {
    /// The selected steps of the loop `name`; `None` if there are none.
    pub(super) fn select(
        all: &'a [Bucket],
        name: &'a str,
        selection: &StepSelection<'a>,
    ) -> Option<Self> {
        let part = |bucket: &'a Bucket| Some(bucket.loops.get(name)?.part(selection.replay));
        let count =
            |bucket: &'a Bucket| part(bucket).map_or(0, |part| part.time(Quantity::Step).count());
        let total: u64 = all.iter().map(count).sum();
        let warmup = selection
            .steady_steps
            .map_or(LEAST_WARMUP as u64, |steps| total.saturating_sub(steps));
        let mut left = total.saturating_sub(warmup);
        if left == 0 {
            return None;
        }
        // The buckets that are entirely in steady state, from the last one backwards.
        let whole = all.iter().rev().take_while(|bucket| {
            let fits = count(bucket) <= left;
            left -= if fits { count(bucket) } else { 0 };
            fits
        });
        let (before, buckets) = all.split_at_checked(all.len() - whole.count())?;
        let mut steady = Self {
            buckets,
            begun: None,
            core_wait_before: before.iter().rev().find_map(|bucket| bucket.core_wait),
            name,
            replay: selection.replay,
        };
        let begun = before.last().and_then(part).filter(|_| left > 0);
        let rest = |quantity: Quantity, seconds: Option<f64>| {
            Some(seconds? * 1e3 - steady.distribution(quantity).sum_nanos() as f64 / 1e6)
        };
        steady.begun = begun.map(|part| {
            let step = rest(Quantity::Step, selection.steady_s);
            part.last_of(left, step, rest(Quantity::Wait, selection.waiting_s))
        });
        Some(steady)
    }

    fn parts(&self) -> impl Iterator<Item = &LoopPart> {
        let whole = self
            .buckets
            .iter()
            .filter_map(|bucket| bucket.loops.get(self.name))
            .map(|phases| phases.part(self.replay));
        self.begun.iter().chain(whole)
    }

    /// The loop's name.
    pub fn loop_name(&self) -> &'a str {
        self.name
    }

    /// The distribution of all durations.
    pub fn distribution(&self, quantity: Quantity) -> Distribution {
        let mut all = Distribution::default();
        self.parts().for_each(|part| all.merge(part.time(quantity)));
        all
    }

    /// The mean in milliseconds, with its uncertainty.
    pub fn mean_ms(&self, quantity: Quantity) -> Option<Known> {
        let parts = self.parts().map(|part| {
            let time = part.time(quantity);
            (time.count() as f64, time.sum_nanos() as f64 / 1e6)
        });
        ratio(&parts.collect::<Vec<_>>())
    }

    /// Share of time that the thread that receives the batches waited for a core, between the first and the
    /// last reading around the steady state; `None` without such readings.
    pub fn waiting_for_core(&self) -> Option<f64> {
        let mut readings = self.buckets.iter().filter_map(|bucket| bucket.core_wait);
        let (begin, before) = self.core_wait_before.or_else(|| readings.next())?;
        let (end, after) = readings.next_back()?;
        (end > begin).then(|| ((after - before) / (end - begin)).max(0.0))
    }

    /// Samples per batch, if their number is known.
    pub fn batch_size(&self) -> Option<f64> {
        let (mut samples, mut batches) = (0, 0);
        for part in self.parts() {
            samples += part.samples;
            batches += part.batches;
        }
        (samples > 0 && batches > 0).then(|| samples as f64 / batches as f64)
    }

    /// The names of the stages that were called.
    pub fn stages(&self) -> Vec<&'a str> {
        let names = self.buckets.iter().flat_map(|bucket| bucket.stages.keys());
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        names.into_iter().collect()
    }

    /// Mean duration of a call of `stage` in milliseconds, with its uncertainty.
    pub fn call_ms(&self, stage: &str) -> Option<Known> {
        let parts = self.buckets.iter().filter_map(|bucket| {
            let part = bucket.stages.get(stage)?;
            Some((part.calls as f64, part.ms))
        });
        ratio(&parts.collect::<Vec<_>>())
    }

    /// Calls of `stage` per batch of the loop, with their uncertainty.
    pub fn calls_per_batch(&self, stage: &str) -> Option<Known> {
        let parts = self.buckets.iter().filter_map(|bucket| {
            let batches = bucket.loops.get(self.name)?.batches_with_stages;
            let calls = bucket.stages.get(stage).map_or(0, |part| part.calls);
            Some((batches as f64, calls as f64))
        });
        ratio(&parts.collect::<Vec<_>>())
    }
}
