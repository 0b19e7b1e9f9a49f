//! Measurements of one run for a comparison. Its ranks are added one at a time.

use std::collections::BTreeMap;

use super::super::tick_series::{Quantity, Steady, StepSelection, TickSeries};
use crate::analysis::resources::{CoresInUse, MOST_WAITING};
use crate::model::comparison::ComparedRun;
use crate::model::record::{RunState, SummaryRecord};
use crate::model::{Distribution, Mode};
use crate::statistics::precision::Known;
use crate::statistics::standard_error;

/// Standard deviation of a step caused by other programs, as a share of it, per unit of the logarithm of
/// the factor by which waits for a core made the step longer. Source: 45 runs of one loop of 10 ms on two
/// cores, of which other programs used 75 to 97 %, took 11 to 110 ms. Runs within one half hour differed by
/// 15 % where waits doubled the step, and by 30 % where they made it four times as long.
const DEVIATION_BY_WAITS: f64 = 0.2;

/// The same for a step without those waits: in the same runs it differed by 2 and by 8 %.
const DEVIATION_WITHOUT_WAITS: f64 = 0.04;

/// The same per share of the cores that other programs used, whether or not the loop waited for a core:
/// caches, memory bandwidth and clock frequencies are shared as well.
const DEVIATION_BY_SHARING: f64 = 0.015;

/// One run with all its ranks.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Its id.
    pub run_id: String,
    /// Whether a rank did not finish normally, or left no summary.
    pub unfinished: bool,
    /// The type of the uncaught exception that ended one of its ranks, if any.
    pub exception: Option<String>,
    mode: Option<Mode>,
    pub(super) loop_name: String,
    ranks: u32,
    pub(super) steps: Distribution,
    /// By [`Quantity`].
    times: [Pooled; 3],
    batch: Pooled,
    floor: Pooled,
    stages: BTreeMap<String, StagePart>,
    other_programs: OtherPrograms,
}

/// Effects of other programs on a run, as shares in `[0, 1]`.
#[derive(Debug, Clone, Copy, Default)]
struct OtherPrograms {
    /// Share of the usable cores that processes outside the run used.
    cores: f64,
    /// Share of the machine's runnable threads that waited for a core: 0 if some cores were idle.
    oversubscription: f64,
    /// Share of time that the thread that receives the batches waited for a core that other programs used;
    /// `None` if not known.
    loop_wait: Option<f64>,
    /// Lower bound of the cores used by the run's other threads and processes, as a share of those used by
    /// the run.
    helper_share: f64,
}

#[derive(Debug, Clone, Default)]
struct StagePart {
    call: Pooled,
    calls_per_batch: Pooled,
}

/// The weighted mean over ranks. Ranks run side by side and vary together, so more ranks do not make the
/// mean more precise.
#[derive(Debug, Clone, Copy, Default)]
struct Pooled {
    weight: f64,
    sum: f64,
    errors: f64,
    unsure: bool,
}

impl Pooled {
    fn add(&mut self, weight: f64, known: Option<Known>) {
        let Some(known) = known else { return };
        self.weight += weight;
        self.sum += weight * known.mean;
        match known.error {
            Some(error) => self.errors += weight * error,
            None => self.unsure = true,
        }
    }

    fn known(self) -> Option<Known> {
        (self.weight > 0.0).then(|| Known {
            mean: self.sum / self.weight,
            error: (!self.unsure).then(|| self.errors / self.weight),
            ..Known::default()
        })
    }
}

impl Measured {
    /// Adds a rank: its last summary, if it left one, and its time series.
    pub fn add_rank(&mut self, summary: Option<&SummaryRecord>, series: &TickSeries) {
        self.unfinished |= summary.is_none_or(|summary| summary.state == RunState::Running);
        let end = summary.and_then(|summary| summary.ended_by.as_ref());
        if let Some(end) = end.filter(|end| end.is_crash()) {
            self.exception = Some(end.name.clone());
        }
        let mode = summary.and_then(|summary| summary.mode);
        self.mode = self.mode.or(mode);
        let steady = series.steady(&summary.map(StepSelection::from_summary).unwrap_or_default());
        if let Some(steady) = &steady {
            self.add(steady);
        }
        // With several ranks on a machine, each rank would count the others as other programs.
        self.other_programs = summary
            .and_then(|summary| OtherPrograms::from_summary(summary, steady.as_ref()))
            .filter(|_| self.ranks < 2)
            .unwrap_or_default();
        self.floor.add(1.0, summary.and_then(floor));
    }

    fn add(&mut self, steady: &Steady<'_>) {
        if self.loop_name.is_empty() {
            steady.loop_name().clone_into(&mut self.loop_name);
        }
        let steps = steady.distribution(Quantity::Step);
        let weight = steps.count() as f64;
        if steps.is_empty() {
            return;
        }
        self.ranks += 1;
        self.steps.merge(&steps);
        for quantity in Quantity::ALL {
            self.times[quantity as usize].add(weight, steady.mean_ms(quantity));
        }
        self.batch
            .add(weight, steady.batch_size().map(Known::exactly));
        for stage in steady.stages() {
            let part = self.stages.entry(stage.to_owned()).or_default();
            part.call.add(weight, steady.call_ms(stage));
            part.calls_per_batch
                .add(weight, steady.calls_per_batch(stage));
        }
    }

    /// Whether the run trained on cached batches throughout.
    pub(super) fn is_replay(&self) -> bool {
        self.mode == Some(Mode::Replay)
    }

    /// Whether the run has a step in steady state.
    pub fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    pub(super) fn mean_ms(&self, quantity: Quantity) -> Option<Known> {
        let known = self.times[quantity as usize].known()?;
        Some(self.widen_for_other_programs(known))
    }

    /// Increases the error of a mean for the effect of other programs, which may differ in another run.
    fn widen_for_other_programs(&self, known: Known) -> Known {
        let others = self.other_programs;
        let waiting = others
            .loop_wait
            .map_or(others.cores * others.oversubscription, |loop_wait| {
                loop_wait.max(self.helper_wait())
            });
        let share = (DEVIATION_BY_WAITS * log_of_slowdown(waiting))
            .hypot(DEVIATION_BY_SHARING * others.cores);
        Known {
            others: share * known.mean,
            ..known
        }
    }

    /// The mean step without the time that its thread waited for a core that other programs used; `None` if
    /// that time is not known.
    ///
    /// Those waits are also most of the variation within a run, so the error shrinks with the step.
    pub(super) fn undisturbed_ms(&self) -> Option<Known> {
        let others = self.other_programs;
        let loop_wait = others.loop_wait?;
        let running = 1.0 - loop_wait;
        let step = self.times[Quantity::Step as usize].known()?.times(running);
        let share = (DEVIATION_WITHOUT_WAITS * log_of_slowdown(loop_wait))
            .hypot(DEVIATION_BY_WAITS * log_of_slowdown(self.helper_wait()))
            .hypot(DEVIATION_BY_SHARING * others.cores);
        Some(Known {
            error: step.error.map(|error| error * running),
            others: share * step.mean,
            ..step
        })
    }

    /// Share of a step in which the loop may have waited for the run's other threads and processes while
    /// these waited for a core that other programs used.
    fn helper_wait(&self) -> f64 {
        let others = self.other_programs;
        let mean = |quantity: Quantity| {
            self.times[quantity as usize]
                .known()
                .map_or(0.0, |known| known.mean)
        };
        let wait = mean(Quantity::Wait) / mean(Quantity::Step).max(f64::MIN_POSITIVE);
        others.cores * others.oversubscription * others.helper_share * wait.min(1.0)
    }

    /// Share of the usable cores that other programs used, in `[0, 1]`; 0 if not known.
    pub(super) fn cores_of_other_programs(&self) -> f64 {
        self.other_programs.cores
    }

    pub(super) fn batch_size(&self) -> Option<f64> {
        Some(self.batch.known()?.mean)
    }

    /// A time per step, converted to a time per sample.
    pub(super) fn per_sample(&self, step: Known) -> Option<Known> {
        Some(step.times(1.0 / self.batch_size()?))
    }

    pub(super) fn floor_ms(&self) -> Option<Known> {
        self.floor.known()
    }

    pub(super) fn stages(&self) -> impl Iterator<Item = &str> {
        self.stages.keys().map(String::as_str)
    }

    pub(super) fn call_ms(&self, stage: &str) -> Option<Known> {
        let known = self.stages.get(stage)?.call.known()?;
        Some(self.widen_for_other_programs(known))
    }

    pub(super) fn calls_per_batch(&self, stage: &str) -> Option<Known> {
        self.stages.get(stage)?.calls_per_batch.known()
    }

    pub(super) fn record(&self) -> ComparedRun {
        ComparedRun {
            run_id: self.run_id.clone(),
            mode: self.mode.unwrap_or_default(),
            loop_name: self.loop_name.clone(),
            ranks: self.ranks,
            steady_steps: self.steps.count(),
            steady_s: self.steps.sum_nanos() as f64 / 1e9,
            step_ms: self.steps.mean_ms(),
        }
    }
}

impl OtherPrograms {
    fn from_summary(summary: &SummaryRecord, steady: Option<&Steady<'_>>) -> Option<Self> {
        let r = &summary.resources;
        let usable = r.cores_usable.filter(|cores| *cores > 0.0)?;
        let used = r.cores_used?;
        let others = r.others_cores?;
        // Pressure is the share of time in which at least one thread waited.
        let pressure = r.cpu_pressure_pct.map_or(1.0, |pct| pct / 100.0);
        let oversubscription = r.runnable_threads.map_or(1.0, |threads| {
            (1.0 - usable / threads.max(usable)).min(pressure)
        });
        // A short run has only one reading in its steady state, which gives no share.
        let waiting = r.consumer_run_queue_pct.map(|pct| pct / 100.0);
        let waiting = waiting.or_else(|| steady?.waiting_for_core());
        let waiting = waiting.filter(|waiting| (0.0..=MOST_WAITING).contains(waiting));
        // The loop's thread ran on a core at most while it did not wait for one.
        let on_core = 1.0 - waiting.unwrap_or(0.0);
        let helpers = (used - on_core).max(r.other_threads_cores.unwrap_or(0.0));
        let in_use = CoresInUse {
            own_beside_loop: helpers.clamp(0.0, used.max(0.0)),
            others: others + r.other_ranks_cores.unwrap_or(0.0),
        };
        Some(Self {
            cores: (others / usable).clamp(0.0, 1.0),
            oversubscription: oversubscription.clamp(0.0, 1.0),
            loop_wait: waiting.map(|waiting| waiting * in_use.share_of_waits_by_others()),
            helper_share: in_use.own_beside_loop / used.max(f64::MIN_POSITIVE),
        })
    }
}

/// Logarithm of the factor by which a step is longer if the share `waiting` of it is waiting.
fn log_of_slowdown(waiting: f64) -> f64 {
    -(1.0 - waiting.clamp(0.0, MOST_WAITING)).ln()
}

/// The floor that the probe measured.
fn floor(summary: &SummaryRecord) -> Option<Known> {
    let (low, high) = summary.floor_ci_ms?;
    Some(Known {
        mean: summary.floor_step_ms?,
        error: Some(standard_error(low, high)),
        ..Known::default()
    })
}
