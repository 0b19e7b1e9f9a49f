//! Compares two sides of runs, with confidence intervals.
//!
//! Only the steady state of the main loop is compared. The error of a run's mean follows from the variation
//! of its buckets. The error of a side's mean also follows from the variation between its runs: see
//! [`precision`](super::precision). An alarm requires that the whole interval lies beyond the limit.
//!
//! If other programs used cores, the step depends on them, and a few runs measure the other programs more
//! than the loop. The kernel counts how long the loop's thread waited for a core. In that case the sides
//! are compared by the step without this wait. Waits that the run's own threads cause are not subtracted.

mod conclusion;
mod measured;

pub use self::conclusion::{Difference, LimitConclusion, Remedy, conclude, conclude_limit};
pub use self::measured::Measured;
use super::tick_series::Quantity;
use crate::model::Distribution;
use crate::model::comparison::{
    Change, ComparisonRecord, ComparisonVerdict, Gate, JudgedBy, SCHEMA, SideRecord, StageChange,
};
use crate::model::record::Estimate;
use crate::statistics::precision::{
    Allowance, Known, RUN_TO_RUN, difference, relative_difference, runs_needed,
};

/// If batch sizes differ by more than this share, runs are compared per sample.
const SAME_SIZE: f64 = 0.005;

/// A note is added if other programs used at least this share of the cores.
const NOTABLE: f64 = 0.05;

/// The runs of one side.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// Path at which the runs were found.
    pub path: String,
    /// The runs, at least one.
    pub runs: Vec<Measured>,
}

/// A comparison and its notes.
///
/// The record has no notes: [`comparison_record`](crate::wording::comparison::comparison_record) adds
/// their texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The numbers.
    pub record: ComparisonRecord,
    /// Notes about the numbers.
    pub notes: Vec<Note>,
}

/// A note about the numbers of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// A run is too short for an interval of its own.
    TooShort {
        /// `A` or `B`.
        side: char,
        /// The run.
        run_id: String,
        /// Whether the interval uses the errors of other runs.
        has_interval: bool,
    },
    /// A run did not finish normally.
    NotFinished {
        /// `A` or `B`.
        side: char,
        /// The run.
        run_id: String,
        /// The exception that ended it; `None` where no end is recorded.
        exception: Option<String>,
    },
    /// Other programs used some of the cores.
    OtherPrograms {
        /// Largest share of the cores, over all runs.
        share: f64,
        /// Whether the loop's waits for these cores are subtracted.
        is_left_out: bool,
    },
    /// Some runs replay cached batches, others do not.
    ModesDiffer,
    /// The loops have different names.
    LoopsDiffer,
    /// Each side has only one run.
    OneRunEach {
        /// Assumed standard deviation between runs of one configuration, as a share of the step.
        allowance: f64,
    },
}

/// Compares `b` with `a`. `limit_pct` is the largest accepted slowdown of B.
///
/// The caller has the settings records and must add the changed settings.
pub fn compare(a: &Side, b: &Side, limit_pct: Option<f64>) -> Comparison {
    let step_ms = relative(&a.known(Quantity::Step), &b.known(Quantity::Step));
    let sample_ms = relative(&a.samples(), &b.samples());
    let batch_sizes = a.batch_size().zip(b.batch_size());
    let by_sample = batch_sizes.is_some_and(|(a, b)| (b / a - 1.0).abs() > SAME_SIZE);
    let undisturbed = (a.undisturbed(by_sample), b.undisturbed(by_sample));
    let undisturbed_ms = if a.cores_of_other_programs().max(b.cores_of_other_programs()) > NOTABLE {
        relative(&undisturbed.0, &undisturbed.1)
    } else {
        Change::default()
    };
    let (judged_by, judged) = match (undisturbed_ms.difference.is_some(), by_sample) {
        (true, false) => (JudgedBy::UndisturbedStep, undisturbed),
        (true, true) => (JudgedBy::UndisturbedSample, undisturbed),
        (false, false) => (
            JudgedBy::Step,
            (a.known(Quantity::Step), b.known(Quantity::Step)),
        ),
        (false, true) => (JudgedBy::Sample, (a.samples(), b.samples())),
    };
    let slower = relative(&judged.0, &judged.1).difference_pct;
    let gate = limit_pct.map(|limit| slower.map_or(Gate::Unknown, |slower| gate(slower, limit)));
    let runs_needed = limit_pct
        .filter(|_| gate == Some(Gate::Open))
        .and_then(|pct| runs_needed(&judged.0, &judged.1, RUN_TO_RUN, (pct / 100.0).ln_1p()));
    let quantile = |q: f64| points(a.quantile_ms(q), b.quantile_ms(q));
    let record = ComparisonRecord {
        schema: SCHEMA.to_owned(),
        a: a.record(),
        b: b.record(),
        wait_ms: part(a, b, Quantity::Wait, step_ms.a),
        compute_ms: part(a, b, Quantity::Compute, step_ms.a),
        step_ms,
        sample_ms,
        undisturbed_ms,
        step_p50_ms: quantile(0.5),
        step_p95_ms: quantile(0.95),
        step_p99_ms: quantile(0.99),
        floor_ms: relative(&a.each(Measured::floor_ms), &b.each(Measured::floor_ms)),
        stages: stages(a, b),
        changed: Vec::new(),
        judged_by,
        verdict: slower.map_or(ComparisonVerdict::Unknown, verdict),
        limit_pct,
        gate,
        runs_needed,
        notes: Vec::new(),
    };
    Comparison {
        record,
        notes: notes(a, b, judged_by, slower.is_some()),
    }
}

fn verdict(slower_pct: Estimate) -> ComparisonVerdict {
    if slower_pct.low > 0.0 {
        ComparisonVerdict::Slower
    } else if slower_pct.high < 0.0 {
        ComparisonVerdict::Faster
    } else {
        ComparisonVerdict::NoDifference
    }
}

fn gate(slower_pct: Estimate, limit_pct: f64) -> Gate {
    if slower_pct.low > limit_pct {
        Gate::Failed
    } else if slower_pct.high <= limit_pct {
        Gate::Passed
    } else {
        Gate::Open
    }
}

/// One value per run of a side; empty if a run lacks it.
type Knowns = Vec<Known>;

impl Side {
    fn each(&self, of: impl Fn(&Measured) -> Option<Known>) -> Knowns {
        let all: Option<Knowns> = self.runs.iter().map(of).collect();
        all.unwrap_or_default()
    }

    fn known(&self, of: Quantity) -> Knowns {
        self.each(|run| run.mean_ms(of))
    }

    fn samples(&self) -> Knowns {
        self.each(|run| run.per_sample(run.mean_ms(Quantity::Step)?))
    }

    /// Times per step or per sample, without waits for a core that other programs used.
    fn undisturbed(&self, by_sample: bool) -> Knowns {
        self.each(|run| {
            let step = run.undisturbed_ms()?;
            if by_sample {
                run.per_sample(step)
            } else {
                Some(step)
            }
        })
    }

    /// The largest share of the cores that other programs used in one of the side's runs.
    fn cores_of_other_programs(&self) -> f64 {
        self.runs
            .iter()
            .map(Measured::cores_of_other_programs)
            .fold(0.0, f64::max)
    }

    fn batch_size(&self) -> Option<f64> {
        let sizes: Option<Vec<f64>> = self.runs.iter().map(Measured::batch_size).collect();
        let sizes = sizes.filter(|sizes| !sizes.is_empty())?;
        Some(sizes.iter().sum::<f64>() / sizes.len() as f64)
    }

    fn quantile_ms(&self, q: f64) -> Option<f64> {
        let mut all = Distribution::default();
        self.runs.iter().for_each(|run| all.merge(&run.steps));
        all.quantile_ms(q)
    }

    fn record(&self) -> SideRecord {
        SideRecord {
            path: self.path.clone(),
            runs: self.runs.iter().map(Measured::record).collect(),
        }
    }
}

fn mean(knowns: &[Known]) -> Option<f64> {
    let sum: f64 = knowns.iter().map(|known| known.mean).sum();
    (!knowns.is_empty()).then(|| sum / knowns.len() as f64)
}

/// A change without an interval.
fn points(a: Option<f64>, b: Option<f64>) -> Change {
    Change {
        a,
        b,
        ..Change::default()
    }
}

/// A relative change: the variation between runs is a share of the value.
fn relative(a: &[Known], b: &[Known]) -> Change {
    let found = relative_difference(a, b, RUN_TO_RUN);
    let scaled = |by: f64| found.map(|share| share.map(|end| by * end));
    Change {
        difference: mean(a).and_then(scaled),
        difference_pct: scaled(100.0),
        ..points(mean(a), mean(b))
    }
}

/// A change of a part of the step. The part may be near zero, so its variation is a share of the step.
fn part(a: &Side, b: &Side, of: Quantity, step_ms: Option<f64>) -> Change {
    let (a, b) = (a.known(of), b.known(of));
    let allowance = Allowance(RUN_TO_RUN * step_ms.unwrap_or(0.0));
    let difference = difference(&a, &b, allowance);
    let base = mean(&a).filter(|base| *base > 0.0);
    Change {
        difference,
        difference_pct: difference
            .zip(base)
            .map(|(ms, base)| ms.map(|end| 100.0 / base * end)),
        ..points(mean(&a), mean(&b))
    }
}

/// The stages of both sides, by name.
fn stages(a: &Side, b: &Side) -> Vec<StageChange> {
    let mut names: Vec<&str> = [a, b]
        .iter()
        .flat_map(|side| &side.runs)
        .flat_map(Measured::stages)
        .collect();
    names.sort_unstable();
    names.dedup();
    let change = |of: &dyn Fn(&Measured) -> Option<Known>| relative(&a.each(of), &b.each(of));
    names
        .into_iter()
        .map(|name| {
            let share = |side: &Side| {
                mean(&side.each(|run| {
                    let call = run.call_ms(name)?.mean * run.calls_per_batch(name)?.mean;
                    let step = run.mean_ms(Quantity::Step)?.mean;
                    (step > 0.0).then(|| Known::exactly(100.0 * call / step))
                }))
            };
            StageChange {
                name: name.to_owned(),
                call_ms: change(&|run| run.call_ms(name)),
                calls_per_batch: change(&|run| run.calls_per_batch(name)),
                share_pct: points(share(a), share(b)),
            }
        })
        .collect()
}

fn notes(a: &Side, b: &Side, judged_by: JudgedBy, has_interval: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    for (letter, side) in [('A', a), ('B', b)] {
        for run in &side.runs {
            let step = run.mean_ms(Quantity::Step);
            if step.is_none_or(|step| step.error.is_none()) {
                notes.push(Note::TooShort {
                    side: letter,
                    run_id: run.run_id.clone(),
                    has_interval,
                });
            }
            if run.exception.is_some() || run.unfinished {
                notes.push(Note::NotFinished {
                    side: letter,
                    run_id: run.run_id.clone(),
                    exception: run.exception.clone(),
                });
            }
        }
    }
    let all = || a.runs.iter().chain(&b.runs);
    let others = a.cores_of_other_programs().max(b.cores_of_other_programs());
    if has_interval && others > NOTABLE {
        let is_left_out = matches!(
            judged_by,
            JudgedBy::UndisturbedStep | JudgedBy::UndisturbedSample
        );
        notes.push(Note::OtherPrograms {
            share: others,
            is_left_out,
        });
    }
    if all().any(Measured::is_replay) && !all().all(Measured::is_replay) {
        notes.push(Note::ModesDiffer);
    }
    let first = a.runs.first();
    if all().any(|run| first.is_some_and(|first| first.loop_name != run.loop_name)) {
        notes.push(Note::LoopsDiffer);
    }
    if has_interval && a.runs.len() + b.runs.len() == 2 {
        notes.push(Note::OneRunEach {
            allowance: RUN_TO_RUN,
        });
    }
    notes
}
