//! Neighbouring ticks, merged into one bucket.

use std::collections::BTreeMap;

use super::quantity::Quantity;
use super::series_tick::{SeriesLoop, SeriesTick};
use crate::analysis::main_loop::MOST_NAMES;
use crate::model::Distribution;
use crate::model::record::Phase;

/// Neighbouring ticks, merged.
#[derive(Debug, Clone, Default)]
pub(super) struct Bucket {
    pub(super) loops: BTreeMap<String, Phases>,
    pub(super) stages: BTreeMap<String, StagePart>,
    /// The last reading of the thread that receives the batches: its time in seconds since the run began,
    /// and the seconds that the thread had waited for a core until then.
    pub(super) core_wait: Option<(f64, f64)>,
}

/// The steps of one loop, by the origin of their batches. Steps during settling are in neither phase.
#[derive(Debug, Clone, Default)]
pub(super) struct Phases {
    pub(super) live: LoopPart,
    replay: LoopPart,
    /// Batches received in ticks whose stages count.
    pub(super) batches_with_stages: u64,
}

/// Steps of one loop and phase.
#[derive(Debug, Clone, Default)]
pub(super) struct LoopPart {
    /// By [`Quantity`].
    times: [Distribution; 3],
    pub(super) batches: u64,
    pub(super) samples: u64,
}

/// Totals of a stage over all its processes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StagePart {
    pub(super) calls: u64,
    pub(super) ms: f64,
}

impl Bucket {
    pub(super) fn add(&mut self, tick: &SeriesTick<'_>) {
        // While batches come from a cache, or a stage is changed, the stages run at another pace.
        let stages_count = tick.loops.iter().all(|entry| entry.phase == Phase::Live);
        for entry in &tick.loops {
            let Some(phases) = entry_by_name(&mut self.loops, &entry.name) else {
                continue;
            };
            if stages_count {
                phases.batches_with_stages += entry.steps;
            }
            match entry.phase {
                Phase::Live => phases.live.add(entry),
                Phase::Replay => phases.replay.add(entry),
                Phase::Settle | Phase::Changed => {}
            }
        }
        let waited = tick.waited_for_core_s;
        self.core_wait = waited.map(|s| (tick.at_s, s)).or(self.core_wait);
        for stage in tick.stages.iter().filter(|_| stages_count) {
            if let Some(part) = entry_by_name(&mut self.stages, &stage.name) {
                part.calls += stage.calls;
                part.ms += stage.ms;
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.core_wait = other.core_wait.or(self.core_wait);
        for (name, phases) in other.loops {
            let own = self.loops.entry(name).or_default();
            own.live.merge(&phases.live);
            own.replay.merge(&phases.replay);
            own.batches_with_stages += phases.batches_with_stages;
        }
        for (name, part) in other.stages {
            let own = self.stages.entry(name).or_default();
            own.calls += part.calls;
            own.ms += part.ms;
        }
    }
}

/// Returns the entry called `name`, and creates it if there is room.
fn entry_by_name<'a, T: Default>(
    all: &'a mut BTreeMap<String, T>,
    name: &str,
) -> Option<&'a mut T> {
    if !all.contains_key(name) {
        if all.len() >= MOST_NAMES {
            return None;
        }
        all.insert(name.to_owned(), T::default());
    }
    all.get_mut(name)
}

impl Phases {
    pub(super) fn part(&self, replay: bool) -> &LoopPart {
        if replay { &self.replay } else { &self.live }
    }
}

impl LoopPart {
    fn add(&mut self, entry: &SeriesLoop<'_>) {
        let records = [&entry.step, &entry.wait, &entry.compute];
        for (time, record) in self.times.iter_mut().zip(records) {
            time.merge_record(record);
        }
        self.batches += entry.steps;
        self.samples += entry.samples.unwrap_or(0);
    }

    pub(super) fn time(&self, quantity: Quantity) -> &Distribution {
        &self.times[quantity as usize]
    }

    /// The last `steps` steps of this part. `step_ms` and `wait_ms` are their total duration and total
    /// wait, if known; otherwise both are estimated in proportion.
    pub(super) fn last_of(&self, steps: u64, step_ms: Option<f64>, wait_ms: Option<f64>) -> Self {
        let [step, wait, compute] = &self.times;
        let all_steps = step.count().max(1);
        let share = |count: u64| (count.saturating_mul(steps) + all_steps / 2) / all_steps;
        let last = |all: &Distribution, ms: Option<f64>| {
            let few = all.thinned(share(all.count()));
            let most = all.max_ms().unwrap_or(0.0) * few.count() as f64;
            match ms.filter(|ms| *ms > 0.0 && *ms <= most) {
                Some(ms) => few.with_sum_ms(ms),
                None => few,
            }
        };
        let (step, wait) = (last(step, step_ms), last(wait, wait_ms));
        let compute_ms = step.sum_nanos() as f64 / 1e6 - wait.sum_nanos() as f64 / 1e6;
        Self {
            times: [step, wait, last(compute, Some(compute_ms))],
            batches: share(self.batches),
            samples: share(self.samples),
        }
    }

    fn merge(&mut self, other: &Self) {
        for (time, other) in self.times.iter_mut().zip(&other.times) {
            time.merge(other);
        }
        self.batches += other.batches;
        self.samples += other.samples;
    }
}
