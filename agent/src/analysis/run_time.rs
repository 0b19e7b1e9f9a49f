//! How long an epoch and the whole run take, and how much of that changes would save.
//!
//! The duration of steps that are still to come is their number times the mean step. Its interval has two parts: the error
//! of the mean, and the variation of the future steps about it (prediction interval for the mean of future observations:
//! Hahn and Meeker, "Statistical Intervals", 1991, chapter 4). Neighbouring steps are correlated, so both are
//! computed from batch means ([`ratio`]).

use super::attribution::Remedy;
use super::loop_facts::LoopFacts;
use super::resources::RankNode;
use crate::model::Mode;
use crate::model::record::{Estimate, PeriodRecord, RunState, RunTimeRecord, SummaryRecord};
use crate::statistics::precision::{Known, ratio};
use crate::statistics::{FREEDOM, student};

/// Standard deviation of the time between two epochs, as a share of it, before the second epoch and before the third. It is a
/// guess, which measured variation replaces. In most loops, this time is a small part of an epoch.
const SPREAD_BETWEEN_EPOCHS: (f64, f64) = (0.5, 0.1);

/// The length of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Length {
    steps: u64,
    epochs: Option<u64>,
}

/// What a step of a period costs, and what changes would save of it, in seconds.
struct Costs {
    step: Estimate,
    /// Duration of an epoch beyond its steps.
    between_epochs: f64,
    /// What the program did besides its steps within an epoch, for each step.
    gaps: f64,
    saved_by_free_data: Option<Estimate>,
    saved_by_remedy: Option<(f64, Option<(f64, f64)>)>,
}

/// The durations of an epoch and of the run. `None` if both lengths are unknown, or if the step is.
pub fn run_time(
    summary: &SummaryRecord,
    main: &LoopFacts,
    remedies: &[Remedy],
    node: RankNode<'_>,
) -> Option<RunTimeRecord> {
    let costs = Costs::new(summary, main, remedies)?;
    let epoch_steps = epoch_steps(main);
    let length = length(main, epoch_steps);
    let ended = summary.state == RunState::Finished;
    let rest = length
        .filter(|_| !ended)
        .and_then(|length| rest(main, length, epoch_steps));
    let whole = match length {
        Some(length) => Some((length, whole_run(main, &costs, length, rest))),
        // The duration of a probe, or of a run that an exception or a signal ended, is not that of the whole run.
        None if ended && summary.ended_by.is_none() && main.mode == Mode::Measure => {
            let taken = Length {
                steps: main.totals.batches(),
                epochs: Some(main.totals.epochs),
            };
            elapsed_s(main).map(|elapsed| (taken, Estimate::around(elapsed, 0.0)))
        }
        None => None,
    };
    if epoch_steps.is_none() && whole.is_none() {
        return None;
    }
    Some(RunTimeRecord {
        gpus: gpus(node),
        epochs: whole.as_ref().and_then(|(length, _)| length.epochs),
        epoch: epoch_steps.map(|steps| costs.period(steps, costs.duration_s(steps, 1.0))),
        run: whole.map(|(length, duration)| costs.period(length.steps, duration)),
        remaining: (length.zip(rest)).map(|(length, rest)| {
            let left = length.steps.saturating_sub(main.totals.batches());
            let since = since_last_batch_s(main, summary.elapsed_s);
            costs.period(left, rest.map(|seconds| (seconds - since).max(0.0)))
        }),
    })
}

/// Batches of an epoch: as many as the last complete epoch had, because a program may leave an epoch early. Before that, as
/// many as the loader says. Epochs of the other modes may be longer or shorter than usual.
fn epoch_steps(main: &LoopFacts) -> Option<u64> {
    let complete = main.totals.epoch_steps;
    let measured = complete.filter(|_| main.mode == Mode::Measure);
    measured.or(main.loader.batches).filter(|steps| *steps > 0)
}

/// The length of the run, if the user or the framework says it. Of two lengths, the shorter one counts.
fn length(main: &LoopFacts, epoch_steps: Option<u64>) -> Option<Length> {
    let by_epochs =
        (main.loader.epochs.zip(epoch_steps)).map(|(epochs, steps)| epochs.saturating_mul(steps));
    let steps = match (by_epochs, main.loader.total_steps) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    Some(Length {
        steps,
        epochs: epoch_steps.map(|epoch| steps.div_ceil(epoch)),
    })
}

/// Seconds from the first `iter()` to the last batch.
fn elapsed_s(main: &LoopFacts) -> Option<f64> {
    let (first, last) = (main.totals.first_begin_s?, main.totals.last_receive_s?);
    (last > first).then_some(last - first)
}

/// Duration of the run: the measured part, and the rest. If batches were repeated or stages changed, the measured part
/// is not that of a usual run, and all steps count with the mean step.
fn whole_run(main: &LoopFacts, costs: &Costs, length: Length, rest: Option<Estimate>) -> Estimate {
    let is_usual = main.mode == Mode::Measure;
    if let Some(elapsed) = elapsed_s(main).filter(|_| is_usual) {
        if main.totals.batches() >= length.steps {
            return Estimate::around(elapsed, 0.0);
        }
        if let Some(rest) = rest {
            return rest.map(|seconds| elapsed + seconds);
        }
    }
    let boundaries = length.epochs.unwrap_or(1) as f64;
    costs.duration_s(length.steps, boundaries)
}

/// Seconds since the last batch.
fn since_last_batch_s(main: &LoopFacts, now_s: f64) -> f64 {
    let last_s = main.totals.last_receive_s;
    last_s.map_or(0.0, |last_s| (now_s - last_s).max(0.0))
}

/// Duration from the last batch so far to the last of the run. `None` if the steps are too few for an interval.
fn rest(main: &LoopFacts, length: Length, epoch_steps: Option<u64>) -> Option<Estimate> {
    let totals = &main.totals;
    let left = length.steps.saturating_sub(totals.batches()) as f64;
    let step = mean_step(main)?;
    let taken = step.steps;
    let square = step.known.error?.powi(2);
    let mut value = left * step.known.mean;
    let mut variance = square * left * (left + taken);
    let begun = epoch_steps
        .map_or(1, |epoch| totals.batches().div_ceil(epoch))
        .max(1);
    let boundaries = length.epochs.unwrap_or(1).saturating_sub(begun) as f64;
    let between = Between::new(main);
    // The first batch of an epoch ends no step.
    value += boundaries * (between.mean_s - step.known.mean).max(0.0);
    variance += between.variance * boundaries * (1.0 + boundaries / between.count);
    let gaps = totals.gaps;
    if gaps.count > 0 {
        let expected = left * gaps.count as f64 / totals.steps as f64;
        value += expected * (gaps.mean_s - step.known.mean);
        variance +=
            gaps.variance().unwrap_or(0.0) * expected * (1.0 + expected / gaps.count as f64);
    }
    let half = student(FREEDOM) * variance.sqrt();
    Some(Estimate::around(value, half))
}

/// The time from the last batch of an epoch to the first of the next.
struct Between {
    mean_s: f64,
    variance: f64,
    count: f64,
}

impl Between {
    /// As measured. Before the second epoch it is the time to the first batch, which is all that is known.
    fn new(main: &LoopFacts) -> Self {
        let measured = main.totals.boundaries;
        let ttfb_s = main.totals.ttfb_s.unwrap_or(0.0);
        let (mean_s, spread) = match measured.count {
            0 => (ttfb_s, SPREAD_BETWEEN_EPOCHS.0),
            _ => (measured.mean_s, SPREAD_BETWEEN_EPOCHS.1),
        };
        Self {
            mean_s,
            variance: (measured.variance()).unwrap_or_else(|| (spread * mean_s).powi(2)),
            count: measured.count.max(1) as f64,
        }
    }
}

/// The mean step in seconds, and the number of steps that it is known from.
struct MeanStep {
    known: Known,
    steps: f64,
}

/// The mean of all live steps after the warm-up, with the standard error of the mean. Without a time series of the steps,
/// it is `None`.
fn mean_step(main: &LoopFacts) -> Option<MeanStep> {
    let warm_from = main.warmup_steps()? as u64;
    let buckets = main.totals.history.buckets().iter();
    let parts: Vec<(f64, f64)> = buckets
        .filter(|bucket| bucket.first_step >= warm_from)
        .map(|bucket| (bucket.steps as f64, bucket.step_ns as f64 / 1e9))
        .collect();
    Some(MeanStep {
        known: ratio(&parts)?,
        steps: parts.iter().map(|part| part.0).sum(),
    })
}

impl Costs {
    fn new(summary: &SummaryRecord, main: &LoopFacts, remedies: &[Remedy]) -> Option<Self> {
        let step_ms = summary.steady_step_mean_ms?;
        let (low, high) = summary.steady_step_ci_ms?;
        let step = Estimate {
            value: step_ms,
            low,
            high,
        };
        let step = step.map(|ms| ms / 1e3);
        let between_epochs = Between::new(main).mean_s - step.value;
        let gaps = main.totals.gaps;
        let gaps_s = gaps.count as f64 * (gaps.mean_s - step.value).max(0.0);
        let headspace = summary.headspace_pct.zip(summary.headspace_ci_pct);
        let saved_by_free_data = headspace.map(|(value, (low, high))| {
            let share = Estimate { value, low, high }.map(|pct| pct / 100.0);
            product(step, share)
        });
        let saved_by_remedy = remedies.first().and_then(|remedy| {
            let is_predicted = !remedy.at_least && remedy.predicted_gain_pct > 0.0;
            let saved = |ms: f64| (step_ms - ms) / 1e3;
            match remedy.measured_step_ms {
                Some(measured) => Some((
                    saved(measured.value),
                    Some((saved(measured.high), saved(measured.low))),
                )),
                None => is_predicted.then(|| (saved(remedy.predicted_step_ms), None)),
            }
        });
        Some(Self {
            step,
            between_epochs: between_epochs.max(0.0),
            gaps: gaps_s / main.totals.steps.max(1) as f64,
            saved_by_free_data,
            saved_by_remedy,
        })
    }

    /// Duration of this number of batches and epochs.
    fn duration_s(&self, steps: u64, epochs: f64) -> Estimate {
        let steps = steps as f64;
        let besides = epochs * self.between_epochs + steps * self.gaps;
        self.step.map(|step| steps * step + besides)
    }

    /// A number of steps, their duration, and what changes would save of it.
    fn period(&self, steps: u64, duration_s: Estimate) -> PeriodRecord {
        let count = steps as f64;
        let all = |seconds: f64| count * seconds;
        let (saved, interval) = self.saved_by_remedy.unzip();
        PeriodRecord {
            steps,
            duration_s,
            saved_by_free_data_s: self.saved_by_free_data.map(|each| each.map(all)),
            saved_by_remedy_s: saved.map(all),
            saved_by_remedy_ci_s: interval.flatten().map(|(low, high)| (all(low), all(high))),
        }
    }
}

/// The product of two independent estimates: the squares of the errors that each contributes are added (propagation of
/// uncertainty: JCGM 100:2008, "Guide to the expression of uncertainty in measurement", 5.1).
fn product(a: Estimate, b: Estimate) -> Estimate {
    let value = a.value * b.value;
    let below = ((a.value - a.low) * b.value).hypot(a.value * (b.value - b.low));
    let above = ((a.high - a.value) * b.value).hypot(a.value * (b.high - b.value));
    Estimate {
        value,
        low: value - below,
        high: value + above,
    }
}

/// Number of GPUs that the run uses, if it is known: each of several ranks uses one.
fn gpus(node: RankNode<'_>) -> Option<u32> {
    let visible = u32::try_from(node.gpus.len()).ok()?;
    match (visible, node.ranks.in_run) {
        (0, _) => None,
        (visible, 0 | 1) => (visible == 1).then_some(1),
        // More ranks than GPUs share them. A rank that sees one GPU may be alone on it.
        (visible, _) if visible > 1 && node.ranks.on_node > Some(visible) => None,
        (_, ranks) => Some(ranks),
    }
}

#[cfg(test)]
mod tests;
