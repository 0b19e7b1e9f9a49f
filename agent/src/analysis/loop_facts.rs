//! One loop's share of a run: the input of the summary, and what follows from it for this loop alone.

use super::main_loop::Candidate;
use super::probe_result::ProbeResult;
use super::resources::Part;
use super::warmup::warmup;
use crate::model::record::{LoaderRecord, Role, WhatIfRecord, WhatIfStatusRecord};
use crate::model::{LoopTotals, Mode, StepSeries};
use crate::statistics::steady_state::{ENOUGH_STEPS, LEAST_STEADY, LEAST_WARMUP};

/// One loop's share of the run.
#[derive(Debug, Clone, Default)]
pub struct LoopFacts {
    /// Its numbers.
    pub totals: LoopTotals,
    /// Mode of the loop: only watched, or more.
    pub mode: Mode,
    /// Seconds from the start of the process to the first `iter()`.
    pub init_s: Option<f64>,
    /// Properties of its loader.
    pub loader: LoaderRecord,
    /// CPU time to hand over a mebibyte of shared memory on this machine, in milliseconds, if measured.
    pub shared_mib_ms: Option<f64>,
    /// Result of its probe.
    pub probe: Option<ProbeResult>,
    /// Answers of its what-if, the shortest step first. Some may be imprecise.
    pub what_if: Vec<WhatIfRecord>,
    /// How far its what-if is. The imprecise answers are not counted yet.
    pub what_if_status: WhatIfStatusRecord,
}

impl LoopFacts {
    /// Seconds spent in steps. The main loop is selected by this.
    pub(super) fn seconds(&self) -> f64 {
        let sum = |series: &StepSeries| series.totals_after(0).step.sum_nanos() as f64 / 1e9;
        sum(&self.totals.live) + sum(&self.totals.replay)
    }

    pub(super) fn candidate(&self) -> Candidate {
        let role = self.loader.role;
        Candidate {
            chosen: self.loader.chosen,
            probed: self.probe.is_some() || self.mode == Mode::WhatIf,
            secondary: role.is_some_and(Role::is_secondary),
            measurable: self.has_steady_state(),
            trains: role == Some(Role::Training),
            steps: self.totals.steps,
            seconds: self.seconds(),
        }
    }

    /// Whether the loop has enough steps for a result.
    fn has_steady_state(&self) -> bool {
        self.series().len() >= ENOUGH_STEPS
    }

    /// Number of steps to leave out before the steady state; `None` if too few steps remain for a result. If
    /// no steady state was found, only the shortest warm-up is left out.
    pub(super) fn warmup_steps(&self) -> Option<usize> {
        let series = self.series();
        let skip = warmup(series).unwrap_or(LEAST_WARMUP);
        (series.len() >= skip as u64 + LEAST_STEADY).then_some(skip)
    }

    /// The part of the run in steady state; `None` if it is too short for a result.
    pub(super) fn steady_part(&self) -> Option<Part> {
        let (skip, totals) = (self.warmup_steps()?, &self.totals);
        let early = self.series().early().iter().take(skip);
        let warmup_s = early.map(|step| step.step_ns() as f64 / 1e9).sum::<f64>();
        let from_s = totals.first_begin_s? + totals.ttfb_s.unwrap_or(0.0) + warmup_s;
        let to_s = totals.last_receive_s.filter(|last_s| *last_s > from_s)?;
        Some(Part {
            from_s,
            to_s,
            steps_per_s: Some(totals.steps.saturating_sub(skip as u64) as f64 / (to_s - from_s)),
        })
    }

    /// Mean number of samples in a batch. `None` if it is unknown.
    pub(super) fn samples_per_batch(&self) -> Option<f64> {
        let of_loader = self.loader.batch_size.map(|size| size as f64);
        self.totals.samples_per_batch.or(of_loader)
    }

    /// Whether the loop waits like a training loop. The waiting of a loop of `step()` calls is not
    /// measured. The waiting of a thread that feeds another loop has another meaning.
    pub(super) fn waits(&self) -> bool {
        !self.totals.without_loader && self.loader.role != Some(Role::Background)
    }

    /// The steps that the verdict is about.
    pub(super) fn series(&self) -> &StepSeries {
        if self.mode == Mode::Replay && !self.totals.replay.is_empty() {
            &self.totals.replay
        } else {
            &self.totals.live
        }
    }
}
