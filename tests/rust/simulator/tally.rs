//! Accuracy of the probe over many pipelines, by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use headspace_agent::analysis::floor::NoFloor;
use headspace_agent::batch_source::ProbePlan;

use super::answers::Answers;
use super::population::Case;
use super::{for_each_seed, probe, truth};

/// The result of probing one pipeline.
struct Outcome {
    seed: u64,
    kinds: Vec<String>,
    /// Estimate minus truth, whether the interval contains the truth, and half its width, in percentage points.
    answer: Result<(f64, bool, f64), NoFloor>,
    steps: u64,
    replayed: u64,
}

/// Counts over pipelines of a kind.
#[derive(Default)]
pub(crate) struct Tally {
    pipelines: u32,
    answers: Answers,
    steps: u64,
    replayed: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.pipelines += 1;
        self.steps += outcome.steps;
        self.replayed += outcome.replayed;
        if let Ok((error, covered, half_width)) = outcome.answer {
            self.answers.add(error, covered, half_width);
        }
    }

    /// Share of answers within the tolerance.
    pub(crate) fn within_pct(&self) -> f64 {
        self.answers.within_pct()
    }

    /// Share of intervals that contain the truth.
    pub(crate) fn covered_pct(&self) -> f64 {
        self.answers.covered_pct()
    }

    /// Share of pipelines without an answer.
    pub(crate) fn refused_pct(&self) -> f64 {
        let refused = self.pipelines - self.answers.count();
        100.0 * f64::from(refused) / f64::from(self.pipelines.max(1))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = f64::from(self.pipelines.max(1));
        write!(
            f,
            "{:5} {:8.1} {:8.1} {:8.1} {:8.2} {:8.2} {:8.0} {:8.0}",
            self.pipelines,
            self.within_pct(),
            self.covered_pct(),
            self.refused_pct(),
            self.answers.mean_error(),
            self.answers.mean_half_width(),
            self.steps as f64 / all,
            self.replayed as f64 / all,
        )
    }
}

/// Results of probing many random pipelines.
pub(crate) struct Study {
    pub(crate) all: Tally,
    pub(crate) by_kind: BTreeMap<String, Tally>,
    /// The largest errors, with the seeds to repeat them.
    worst: Vec<(f64, u64)>,
    refusals: BTreeMap<&'static str, u32>,
}

/// Draws a pipeline for every seed and probes it with the plan that `plan` returns for it. The truth is
/// the mean of `truth_steps` steps.
pub(crate) fn study(
    seeds: Range<u64>,
    truth_steps: u64,
    draw: fn(u64) -> Case,
    plan: impl Fn(&Case) -> ProbePlan + Sync,
) -> Study {
    let outcomes = for_each_seed(&seeds, |seed| outcome(seed, truth_steps, draw, &plan));
    let mut study = Study {
        all: Tally::default(),
        by_kind: BTreeMap::new(),
        worst: Vec::new(),
        refusals: BTreeMap::new(),
    };
    for outcome in &outcomes {
        study.all.add(outcome);
        for kind in &outcome.kinds {
            study.by_kind.entry(kind.clone()).or_default().add(outcome);
        }
        match &outcome.answer {
            Ok((error, ..)) => study.worst.push((*error, outcome.seed)),
            Err(reason) => *study.refusals.entry(name(reason)).or_default() += 1,
        }
    }
    study.worst.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    study.worst.truncate(8);
    study
}

fn outcome(
    seed: u64,
    truth_steps: u64,
    draw: fn(u64) -> Case,
    plan: impl Fn(&Case) -> ProbePlan,
) -> Outcome {
    let case = draw(seed);
    let probed = probe(&case.spec, plan(&case), seed * 8);
    // The truth must be about the load during the probe. So the same load of other programs repeats with this period.
    let mut spec = case.spec.clone();
    if let Some(others) = &mut spec.others {
        others.repeats_ns = Some(probed.took_ns);
    }
    let truth = truth(&spec, truth_steps, seed * 8).headspace_pct();
    let answer = probed.analysis.result.map(|floor| {
        let found = floor.headspace_pct;
        let covered = found.low <= truth && truth <= found.high;
        (found.value - truth, covered, (found.high - found.low) / 2.0)
    });
    Outcome {
        seed,
        kinds: kinds(&case),
        answer,
        steps: probed.steps,
        replayed: probed.replayed,
    }
}

fn kinds(case: &Case) -> Vec<String> {
    let band = |edges: &[f64], value: f64| {
        let upper = edges
            .iter()
            .position(|edge| value < *edge)
            .unwrap_or(edges.len() - 1);
        format!("{:.1} to {:.1}", edges[upper - 1], edges[upper])
    };
    let ratios = [0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.3, 2.0];
    let depths = [(0, 0), (1, 3), (4, 11), (12, 31), (32, 64)];
    let mut kinds = vec![format!("ratio {}", band(&ratios, case.ratio))];
    kinds.extend(
        depths
            .iter()
            .filter(|(low, high)| (low..=high).contains(&&case.depth))
            .map(|(low, high)| format!("depth {low:2} to {high:2}")),
    );
    let spec = &case.spec;
    let mut kind = |holds: bool, name: &str| {
        if holds {
            kinds.push(name.to_owned());
        }
    };
    kind(spec.device.is_some(), "asynchronous device");
    kind(spec.contention > 0.0, "contention");
    kind(
        spec.contention > 0.0 && spec.waits_for_cores,
        "contention for cores",
    );
    kind(spec.content.cv > 0.0, "batches unlike each other");
    kind(spec.epoch.is_some(), "epochs");
    kind(spec.first_step > 1.0, "slow first step");
    kind(case.depth_known, "queue depth known");
    kinds
}

fn name(reason: &NoFloor) -> &'static str {
    match reason {
        NoFloor::TooFewSteps { .. } => "too few steps",
        NoFloor::Unsettled { .. } => "not settled",
        NoFloor::Disagree { .. } => "windows disagree",
        NoFloor::Asynchronous(_) => "asynchronous",
        NoFloor::ReplaySlower { .. } => "replay slower than live",
        NoFloor::TooWide { .. } => "interval too wide",
    }
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 26;
        writeln!(
            f,
            "{:width$} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "", "n", "within %", "covers %", "none %", "bias", "half", "steps", "replayed"
        )?;
        writeln!(f, "{:width$} {}", "all", self.all)?;
        for (kind, tally) in &self.by_kind {
            writeln!(f, "{kind:width$} {tally}")?;
        }
        let worst: Vec<String> = self
            .worst
            .iter()
            .map(|(error, seed)| format!("{error:+.1} (seed {seed})"))
            .collect();
        writeln!(f, "largest errors: {}", worst.join(", "))?;
        writeln!(f, "no number: {:?}", self.refusals)
    }
}
