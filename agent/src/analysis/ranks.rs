//! Which rank the others wait for, and why.
//!
//! Where ranks exchange gradients in every step, all steps are as long as those of the slowest rank,
//! and its step says nothing. Its wait does: the rank whose data comes late waits for it, and the
//! others, which have theirs, wait for that rank inside their compute. So the rank with the longest
//! wait is the slow one, and what the others compute longer than it is their waiting. A rank whose
//! own compute is long cannot be seen so, since the others' computes are then as long.
//!
//! Where the steps differ, no one waits for anyone in each step, and the slowest is the one with the
//! longest step; its wait or its compute is what exceeds that of the others.
//!
//! Ranks are added one at a time, and each is reduced to a few numbers; histograms are merged. The
//! cost is linear in the ranks.

use super::statistics::precision::Known;
use super::tick_series::{Asked, Quantity, TickSeries};
use crate::model::Distribution;
use crate::model::ranks::{RankCause, RankSummary, RanksRecord, SpreadRecord};
use crate::model::record::{Estimate, RunState, SummaryRecord};

/// Least excess of a slow rank, as a share of the step. Less is not worth a search.
const RELEVANT: f64 = 0.02;

/// Where noise hides an excess of this share of the step, nothing can be said.
const BLIND: f64 = 0.1;

/// Ranks that are named one by one where many are missing.
const NAMED: usize = 16;

/// The ranks of a run, added one at a time.
#[derive(Debug, Clone, Default)]
pub struct Ranks {
    world_size: Option<u32>,
    seen: Vec<u32>,
    unfinished: Vec<u32>,
    members: Vec<Member>,
    each: Vec<RankSummary>,
    step: Distribution,
    wait: Distribution,
    compute: Distribution,
}

/// A rank with numbers.
#[derive(Debug, Clone, Copy)]
struct Member {
    rank: u32,
    step: Known,
    wait: Option<Known>,
    compute: Option<Known>,
}

/// The ranks together, and what was concluded of the slowest.
///
/// The record has no text of its evidence: [`ranks_record`](crate::wording::ranks::ranks_record) adds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RanksTogether {
    /// The numbers.
    pub record: RanksRecord,
    /// What the slowest rank, or that there is none, was concluded from.
    pub evidence: RankEvidence,
}

/// What the slowest rank was concluded from. Durations are compared with the quick ranks (lower quartile).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum RankEvidence {
    /// Fewer than two ranks have a steady state.
    #[default]
    TooFewRanks,
    /// The runs are too short for an error of their means.
    TooShort,
    /// The ranks' waits are not known.
    WaitsUnknown,
    /// Noise hides a difference that matters.
    TooNoisy,
    /// Neither steps nor waits differ.
    Balanced,
    /// The steps differ: the ranks do not wait for each other in each step.
    StepsDiffer {
        /// By how much its step is longer.
        step_ms: f64,
        /// By how much its wait and its compute are longer, where both are known.
        wait_and_compute_ms: Option<(f64, f64)>,
    },
    /// The steps are alike and its wait is longer: the others wait for it within their compute.
    WaitsLonger {
        /// By how much.
        wait_ms: f64,
    },
}

/// What was found of the slowest rank.
#[derive(Default)]
struct Finding {
    slowest: Option<u32>,
    cause: RankCause,
    excess_ms: Option<Estimate>,
    evidence: RankEvidence,
    /// Compute of the slowest rank, where the others wait for it in theirs.
    others_beyond_ms: Option<f64>,
}

impl Ranks {
    /// Adds a rank. `summary` is its last one; `None` where it left none.
    pub fn add(
        &mut self,
        rank: u32,
        world_size: Option<u32>,
        summary: Option<&SummaryRecord>,
        series: &TickSeries,
    ) {
        self.world_size = self.world_size.max(world_size);
        let Some(summary) = summary else { return };
        self.seen.push(rank);
        if summary.state == RunState::Running {
            self.unfinished.push(rank);
        }
        let steady = series.steady(&Asked::of(summary));
        let mean = |of| steady.as_ref().and_then(|steady| steady.mean_ms(of));
        let ms = |known: Option<Known>| known.map(|known| known.mean);
        let [step, wait, compute] = [Quantity::Step, Quantity::Wait, Quantity::Compute].map(mean);
        self.each.push(RankSummary {
            rank,
            state: summary.state,
            steps: summary.steps,
            step_ms: ms(step).or(summary.steady_step_mean_ms),
            wait_ms: ms(wait).or(summary.wait_ms),
            compute_ms: ms(compute).or(summary.compute_ms),
            others_ms: None,
        });
        if let Some(steady) = &steady {
            self.step.merge(&steady.distribution(Quantity::Step));
            self.wait.merge(&steady.distribution(Quantity::Wait));
            self.compute.merge(&steady.distribution(Quantity::Compute));
        }
        if let Some(step) = step {
            self.members.push(Member {
                rank,
                step,
                wait,
                compute,
            });
        }
    }

    /// What they say together; `None` where no rank left a summary.
    #[must_use]
    pub fn finish(mut self) -> Option<RanksTogether> {
        if self.seen.is_empty() {
            return None;
        }
        self.seen.sort_unstable();
        self.each.sort_by_key(|rank| rank.rank);
        let missing = missing(&self.seen, self.world_size);
        let finding = slowest(&self.members);
        if let Some(beyond) = finding.others_beyond_ms {
            for rank in &mut self.each {
                rank.others_ms = rank.compute_ms.map(|compute| (compute - beyond).max(0.0));
            }
        }
        let steps = self.each.iter().map(|rank| rank.steps);
        let record = RanksRecord {
            read: count(self.seen.len()),
            world_size: self.world_size,
            missing_count: missing.0,
            missing: missing.1,
            unfinished_count: count(self.unfinished.len()),
            unfinished: self.unfinished.iter().take(NAMED).copied().collect(),
            steps: steps.clone().min().zip(steps.max()),
            step: SpreadRecord::of(&self.step),
            wait: SpreadRecord::of(&self.wait),
            compute: SpreadRecord::of(&self.compute),
            slowest: finding.slowest,
            cause: finding.cause,
            excess_ms: finding.excess_ms,
            evidence: String::new(),
            each: self.each,
        };
        Some(RanksTogether {
            record,
            evidence: finding.evidence,
        })
    }
}

/// How many ranks of the run are not among `seen`, which is sorted, and the first of them.
fn missing(seen: &[u32], world_size: Option<u32>) -> (u32, Vec<u32>) {
    let world = world_size.unwrap_or(0);
    let within = seen.iter().filter(|rank| **rank < world).count();
    // As many as were seen are passed over before the last of those named is found.
    let named = (0..world)
        .filter(|rank| seen.binary_search(rank).is_err())
        .take(NAMED)
        .collect();
    (world.saturating_sub(count(within)), named)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn slowest(members: &[Member]) -> Finding {
    let unknown = |evidence| Finding {
        evidence,
        ..Finding::default()
    };
    if members.len() < 2 {
        return unknown(RankEvidence::TooFewRanks);
    }
    let Some(by_step) = stands_out(members, |member| Some(member.step)) else {
        return unknown(RankEvidence::TooShort);
    };
    if by_step.is_clear() {
        return apart(members, &by_step);
    }
    let Some(by_wait) = stands_out(members, |member| member.wait) else {
        return unknown(RankEvidence::WaitsUnknown);
    };
    if by_wait.is_clear() {
        return together(members, &by_wait);
    }
    let hidden = by_step.error.max(by_wait.error);
    if hidden > BLIND * by_step.step_ms {
        return unknown(RankEvidence::TooNoisy);
    }
    Finding {
        cause: RankCause::Balanced,
        evidence: RankEvidence::Balanced,
        ..Finding::default()
    }
}

/// The steps differ: the ranks do not wait for each other in each of them.
fn apart(members: &[Member], found: &StandsOut) -> Finding {
    let slow = members.get(found.at);
    let wait = slow.and_then(|slow| {
        Some(slow.wait?.mean - quartile(members.iter().filter_map(|m| Some(m.wait?.mean)))?)
    });
    let compute = slow.and_then(|slow| {
        Some(slow.compute?.mean - quartile(members.iter().filter_map(|m| Some(m.compute?.mean)))?)
    });
    let wait_and_compute_ms = wait.zip(compute);
    let cause = match wait_and_compute_ms {
        Some((wait, compute)) if wait >= compute => RankCause::Data,
        Some(_) => RankCause::Compute,
        None => RankCause::Unknown,
    };
    Finding {
        slowest: slow.map(|slow| slow.rank),
        cause,
        excess_ms: Some(found.excess()),
        evidence: RankEvidence::StepsDiffer {
            step_ms: found.by,
            wait_and_compute_ms,
        },
        others_beyond_ms: None,
    }
}

/// The steps are alike and the waits are not: the others wait for the rank that waits for data.
fn together(members: &[Member], found: &StandsOut) -> Finding {
    let slow = members.get(found.at);
    Finding {
        slowest: slow.map(|slow| slow.rank),
        cause: RankCause::Data,
        excess_ms: Some(found.excess()),
        evidence: RankEvidence::WaitsLonger { wait_ms: found.by },
        others_beyond_ms: slow.and_then(|slow| Some(slow.compute?.mean)),
    }
}

/// The rank with the most of something.
struct StandsOut {
    /// Its place.
    at: usize,
    /// By how much it exceeds the quick ranks.
    by: f64,
    /// How much that may be noise.
    error: f64,
    step_ms: f64,
}

impl StandsOut {
    fn is_clear(&self) -> bool {
        self.by > self.error && self.by > RELEVANT * self.step_ms
    }

    fn excess(&self) -> Estimate {
        Estimate {
            value: self.by,
            low: self.by - self.error,
            high: self.by + self.error,
        }
    }
}

/// Compares the rank with the most of `what` to the lower quartile; `None` where that is known of
/// fewer than two ranks, or not how well.
fn stands_out(members: &[Member], what: impl Fn(&Member) -> Option<Known>) -> Option<StandsOut> {
    let values: Vec<(usize, f64, f64)> = members
        .iter()
        .enumerate()
        .filter_map(|(at, member)| {
            let known = what(member)?;
            Some((at, known.mean, known.error?))
        })
        .collect();
    let ranks = values.len() as f64;
    let quick = quartile(values.iter().map(|value| value.1))?;
    let usual = quartile(values.iter().map(|value| value.2))?;
    let (at, most, error) = values.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // The largest of so many is beyond this many errors in one of 40 cases at most, if none stands
    // out (the tail of a normal variable is below exp(−x²/2): Chernoff).
    let errors = (2.0 * (ranks * 40.0).ln()).sqrt();
    (ranks >= 2.0).then(|| StandsOut {
        at,
        by: most - quick,
        error: errors * error.hypot(usual),
        step_ms: quartile(members.iter().map(|member| member.step.mean)).unwrap_or(most),
    })
}

/// The lower quartile: what the quick ranks have, be they many or few.
fn quartile(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 4).copied()
}
