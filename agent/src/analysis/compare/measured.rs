//! What one run brings to a comparison: its ranks, added one at a time.

use std::collections::BTreeMap;

use super::super::precision::Known;
use super::super::statistics::standard_error;
use super::super::tick_series::{Asked, Quantity, Steady, TickSeries};
use crate::model::comparison::ComparedRun;
use crate::model::record::{RunState, SummaryRecord};
use crate::model::{Distribution, Mode};

/// Standard deviation of a step, as a share of it, for each unit of the logarithm of how much longer
/// waits for a core made it. 45 runs of one loop of 10 ms on two cores, of which others had 75 to
/// 97 %, took 11 to 110 ms; those of one half hour, twice as long or four times, differed by 15 and
/// by 30 %.
const OF_OTHERS: f64 = 0.2;

/// The same of a step without those waits: in the same runs it differed by 2 and by 8 %.
const OF_WAITS: f64 = 0.04;

/// The same for each share of the cores that others had, whether the loop waited for one or not:
/// caches, memory bandwidth and clocks are shared as well.
const OF_SHARING: f64 = 0.015;

/// A loop that waited for a core for a larger share of its time hardly ran: nothing can be said of
/// its step without that.
const MOST_WAITING: f64 = 0.95;

/// One run, all its ranks together.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Its id.
    pub run_id: String,
    /// Whether a rank did not end in order, or left no summary.
    pub unfinished: bool,
    /// The type of the exception that ended one of its ranks, where nothing caught it.
    pub exception: Option<String>,
    mode: Option<Mode>,
    loop_name: String,
    ranks: u32,
    steps: Distribution,
    step: Pooled,
    wait: Pooled,
    compute: Pooled,
    batch: Pooled,
    floor: Pooled,
    stages: BTreeMap<String, StagePart>,
    others: Others,
}

/// What other programs did to a run, in shares in `[0, 1]`.
#[derive(Debug, Clone, Copy, Default)]
struct Others {
    /// Of the usable cores, what was used by none of the run's processes.
    cores: f64,
    /// Of the runnable threads of the machine, those that waited for a core: 0 where some were idle.
    crowd: f64,
    /// Of the time, what the thread that takes the batches waited for a core that others had; `None`
    /// where that is not known.
    waiting: Option<f64>,
    /// Of the cores that the run used, what its other threads and processes had at least.
    helpers: f64,
}

#[derive(Debug, Clone, Default)]
struct StagePart {
    call: Pooled,
    calls_per_batch: Pooled,
}

/// The mean over ranks, by weight. Ranks run side by side and vary together, so that many ranks do
/// not make the mean better known than one.
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
    /// Adds a rank: its last summary, where it left one, and how it went.
    pub fn add_rank(&mut self, summary: Option<&SummaryRecord>, series: &TickSeries) {
        self.unfinished |= summary.is_none_or(|summary| summary.state == RunState::Running);
        let end = summary.and_then(|summary| summary.ended_by.as_ref());
        if let Some(end) = end.filter(|end| end.is_crash()) {
            self.exception = Some(end.name.clone());
        }
        let mode = summary.and_then(|summary| summary.mode);
        self.mode = self.mode.or(mode);
        let steady = series.steady(&summary.map(Asked::of).unwrap_or_default());
        if let Some(steady) = &steady {
            self.add(steady);
        }
        // Of several ranks on a machine each would take the others for other programs.
        self.others = summary
            .and_then(|summary| Others::of(summary, steady.as_ref()))
            .filter(|_| self.ranks < 2)
            .unwrap_or_default();
        if let Some(floor) = summary.and_then(floor) {
            self.floor.add(1.0, Some(floor));
        }
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
        self.step.add(weight, steady.mean_ms(Quantity::Step));
        self.wait.add(weight, steady.mean_ms(Quantity::Wait));
        self.compute.add(weight, steady.mean_ms(Quantity::Compute));
        self.batch
            .add(weight, steady.batch_size().map(Known::exactly));
        for stage in steady.stages() {
            let part = self.stages.entry(stage.to_owned()).or_default();
            part.call.add(weight, steady.call_ms(stage));
            part.calls_per_batch
                .add(weight, steady.calls_per_batch(stage));
        }
    }

    /// The loop that is compared.
    #[must_use]
    pub fn loop_name(&self) -> &str {
        &self.loop_name
    }

    /// Whether it trained on cached batches throughout.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.mode == Some(Mode::Replay)
    }

    /// Whether it has a step in steady state.
    #[must_use]
    pub fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    pub(super) fn steps(&self) -> &Distribution {
        &self.steps
    }

    pub(super) fn mean_ms(&self, of: Quantity) -> Option<Known> {
        let known = match of {
            Quantity::Step => self.step.known(),
            Quantity::Wait => self.wait.known(),
            Quantity::Compute => self.compute.known(),
        };
        known.map(|known| self.beside_others(known))
    }

    /// A mean that is known less well because other programs had cores that it waited for, and have
    /// others in another run.
    fn beside_others(&self, known: Known) -> Known {
        let others = self.others;
        let longer = others
            .waiting
            .map_or(others.cores * others.crowd, |waiting| {
                waiting.max(self.waiting_of_helpers())
            });
        Known {
            others: (OF_OTHERS * logarithm(longer)).hypot(OF_SHARING * others.cores) * known.mean,
            ..known
        }
    }

    /// The mean step less the time in which its thread waited for a core that other programs had;
    /// `None` where that time is not known.
    ///
    /// Those waits are also most of what varies within a run, so the error shrinks with the step.
    pub(super) fn undisturbed_ms(&self) -> Option<Known> {
        let others = self.others;
        let left = 1.0 - others.waiting?;
        let step = self.step.known()?.times(left);
        let share = (OF_WAITS * logarithm(1.0 - left))
            .hypot(OF_OTHERS * logarithm(self.waiting_of_helpers()))
            .hypot(OF_SHARING * others.cores);
        Some(Known {
            error: step.error.map(|error| error * left),
            others: share * step.mean,
            ..step
        })
    }

    /// Share of a step in which the loop may have waited for threads and processes of the run that
    /// waited for a core that others had.
    fn waiting_of_helpers(&self) -> f64 {
        let others = self.others;
        let mean = |of: Pooled| of.known().map_or(0.0, |known| known.mean);
        let wait = mean(self.wait) / mean(self.step).max(f64::MIN_POSITIVE);
        others.cores * others.crowd * others.helpers * wait.min(1.0)
    }

    /// Share of the usable cores that other programs had, in `[0, 1]`; 0 where that is not known.
    #[must_use]
    pub fn others(&self) -> f64 {
        self.others.cores
    }

    pub(super) fn batch_size(&self) -> Option<f64> {
        Some(self.batch.known()?.mean)
    }

    pub(super) fn floor_ms(&self) -> Option<Known> {
        self.floor.known()
    }

    pub(super) fn stages(&self) -> impl Iterator<Item = &str> {
        self.stages.keys().map(String::as_str)
    }

    pub(super) fn call_ms(&self, stage: &str) -> Option<Known> {
        let known = self.stages.get(stage)?.call.known()?;
        Some(self.beside_others(known))
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

impl Others {
    fn of(summary: &SummaryRecord, steady: Option<&Steady<'_>>) -> Option<Self> {
        let r = &summary.resources;
        let usable = r.cores_usable.filter(|cores| *cores > 0.0)?;
        let used = r.cores_used?;
        let all = summary.cpu_utilization_pct? / 100.0;
        let cores = (all - used / usable).clamp(0.0, 1.0);
        // Pressure says for how long any thread waited at all.
        let pressure = r.cpu_pressure_pct.map_or(1.0, |pct| pct / 100.0);
        let crowd = r.runnable_threads.map_or(1.0, |threads| {
            (1.0 - usable / threads.max(usable)).min(pressure)
        });
        // A short run has one look in its steady state, which tells no share.
        let waiting = r.consumer_run_queue_pct.map(|pct| pct / 100.0);
        let waiting = waiting.or_else(|| steady?.waiting_for_core());
        let waiting = waiting.filter(|waiting| (0.0..=MOST_WAITING).contains(waiting));
        // The loop's thread was on a core for what it did not wait at most.
        let on_core = 1.0 - waiting.unwrap_or(0.0);
        let helpers = (used - on_core).max(r.other_threads_cores.unwrap_or(0.0));
        let helpers = helpers.clamp(0.0, used.max(0.0));
        // Waiting for the run's own threads and processes is its own.
        let blame = cores * usable / (cores * usable + helpers).max(f64::MIN_POSITIVE);
        Some(Self {
            cores,
            crowd: crowd.clamp(0.0, 1.0),
            waiting: waiting.map(|waiting| waiting * blame),
            helpers: helpers / used.max(f64::MIN_POSITIVE),
        })
    }
}

/// Of how many times longer a step is of which such a share is waiting.
fn logarithm(waiting: f64) -> f64 {
    -(1.0 - waiting.clamp(0.0, MOST_WAITING)).ln()
}

/// What the probe measured.
fn floor(summary: &SummaryRecord) -> Option<Known> {
    let (low, high) = summary.floor_ci_ms?;
    Some(Known {
        mean: summary.floor_step_ms?,
        error: Some(standard_error(low, high)),
        ..Known::default()
    })
}
