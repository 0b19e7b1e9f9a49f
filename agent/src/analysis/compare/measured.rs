//! What one run brings to a comparison: its ranks, added one at a time.

use std::collections::BTreeMap;

use super::super::course::{Asked, Course, Quantity, Steady};
use super::super::precision::Known;
use crate::model::Distribution;
use crate::model::comparison::ComparedRun;
use crate::model::record::{RunState, SummaryRecord};

/// Half a 95 % interval, in standard errors.
const HALF: f64 = 1.96;

/// Standard deviation of a step, as a share of it, for each share of the cores that other programs
/// have. Ten runs of one loop of matrix products, on two cores of which others had 40 to 78 %,
/// differed by 24 %.
const OF_OTHERS: f64 = 0.35;

/// One run, all its ranks together.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Its id.
    pub run_id: String,
    /// Whether a rank did not end in order, or left no summary.
    pub unfinished: bool,
    mode: String,
    loop_name: String,
    ranks: u32,
    steps: Distribution,
    step: Pooled,
    wait: Pooled,
    compute: Pooled,
    batch: Pooled,
    floor: Pooled,
    stages: BTreeMap<String, StagePart>,
    others: f64,
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
        })
    }
}

impl Measured {
    /// Adds a rank: its last summary, where it left one, and how it went.
    pub fn add_rank(&mut self, summary: Option<&SummaryRecord>, course: &Course) {
        self.unfinished |= summary.is_none_or(|summary| summary.state == RunState::Running);
        let mode = summary.map_or("measure", |summary| summary.mode.as_str());
        if self.mode.is_empty() {
            mode.clone_into(&mut self.mode);
        }
        let steady = course.steady(&Asked {
            loop_name: summary.and_then(|summary| summary.loop_name.as_deref()),
            replay: mode == "replay",
            steady_steps: summary.map(|summary| summary.steady_steps),
        });
        if let Some(steady) = &steady {
            self.add(steady);
        }
        // Of several ranks on a machine each would take the others for other programs.
        self.others = summary
            .and_then(others)
            .filter(|_| self.ranks < 2)
            .unwrap_or(0.0);
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
        let exact = |mean| Known { mean, error: None };
        self.batch.add(weight, steady.batch_size().map(exact));
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
        self.mode == "replay"
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

    /// A mean that is known less well because other programs had a share of the cores, which is
    /// another one in another run.
    fn beside_others(&self, known: Known) -> Known {
        let of_others = OF_OTHERS * self.others * known.mean;
        Known {
            error: known.error.map(|error| error.hypot(of_others)),
            ..known
        }
    }

    /// Share of the usable cores that other programs had, in `[0, 1]`; 0 where that is not known.
    #[must_use]
    pub fn others(&self) -> f64 {
        self.others
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
            mode: self.mode.clone(),
            loop_name: self.loop_name.clone(),
            ranks: self.ranks,
            steady_steps: self.steps.count(),
            steady_s: self.steps.sum_nanos() as f64 / 1e9,
            step_ms: self.steps.mean_ms(),
        }
    }
}

/// Share of the usable cores that were used by none of the run's processes.
fn others(summary: &SummaryRecord) -> Option<f64> {
    let usable = summary
        .resources
        .cores_usable
        .filter(|cores| *cores > 0.0)?;
    let all = summary.cpu_utilization_pct? / 100.0;
    Some((all - summary.resources.cores_used? / usable).clamp(0.0, 1.0))
}

/// What the probe measured.
fn floor(summary: &SummaryRecord) -> Option<Known> {
    let (low, high) = summary.floor_ci_ms?;
    Some(Known {
        mean: summary.floor_step_ms?,
        error: Some((high - low) / 2.0 / HALF),
    })
}
