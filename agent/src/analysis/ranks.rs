//! Finds the rank that the other ranks wait for, and the cause.
//!
//! If ranks exchange gradients in every step, all steps are as long as those of the slowest rank, so the
//! steps do not show which rank is slow. The waits do: a rank whose data is late waits for its data, and the
//! other ranks wait for that rank inside their compute. So the rank with the longest wait is the slow one,
//! and the extra compute of the others is waiting.
//!
//! A rank with a long compute of its own waits least for the others inside its compute. How long a rank waits there is
//! known from sampled stacks. If both the waits for data and the own compute times differ, the larger
//! difference counts.
//!
//! If the steps differ, the ranks do not wait for each other in each step. The slowest rank is then the one
//! with the longest step. The cause is its wait or its compute, whichever exceeds that of the others by more.
//!
//! Ranks that read the same files in the same order do the same work: `ranks/same_files.rs`.
//!
//! Ranks are added one at a time, and each is reduced to a few numbers and lines. Histograms are merged. The cost is
//! linear in the number of ranks.

mod same_files;

use self::same_files::SameFiles;
use super::same_batches::ranks_with_same_batches;
use super::tick_series::{Quantity, Steady, StepSelection, TickSeries};
use crate::model::Distribution;
use crate::model::record::{
    Estimate, LineKind, LineRecord, RankCause, RankSummary, RanksRecord, RunState, SpreadRecord,
    SummaryRecord,
};
use crate::statistics::precision::Known;
use crate::statistics::{lower_quantile, standard_error};

/// Minimum excess of a slow rank, as a share of the step.
const RELEVANT: f64 = 0.02;

/// If noise can hide an excess of this share of the step, the ranks do not count as balanced.
const BLIND: f64 = 0.1;

/// The fast ranks: this quantile of all ranks, so that neither one rank nor many decide it.
const FAST: f64 = 0.25;

/// If all ranks are equal, one of them is found to be slow in at most one of this many runs.
const FALSE_FINDINGS: f64 = 40.0;

/// Maximum number of missing or unfinished ranks that are listed.
const NAMED: usize = 16;

/// The ranks of a run, added one at a time.
#[derive(Debug, Clone, Default)]
pub struct Ranks {
    world_size: Option<u32>,
    unfinished: Vec<u32>,
    members: Vec<Member>,
    each: Vec<RankSummary>,
    /// Digests of each rank's first batches.
    batch_digests: Vec<Vec<String>>,
    same_files: SameFiles,
    step: Distribution,
    wait: Distribution,
    compute: Distribution,
}

/// The means of a rank that has a steady state.
#[derive(Debug, Clone)]
struct Member {
    rank: u32,
    step: Known,
    wait: Option<Known>,
    compute: Option<Known>,
    /// Compute without waits for other threads, processes and machines.
    own_compute: Option<Known>,
    /// Lines of the program in the compute, without lines that wait.
    lines: Vec<RankLine>,
}

/// A line of a rank's program.
#[derive(Debug, Clone, PartialEq)]
pub struct RankLine {
    /// Path of the source file.
    pub file: String,
    /// Line number in the source file.
    pub line: u32,
    /// Name of the function that contains the line.
    pub function: String,
    /// Its time in milliseconds per step.
    pub ms: f64,
}

/// The record of all ranks, and the evidence for the slowest one.
///
/// The record has no text of its evidence: [`ranks_record`](crate::wording::ranks::ranks_record) adds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RanksTogether {
    /// The numbers.
    pub record: RanksRecord,
    /// The evidence for the slowest rank, or that there is none.
    pub evidence: RankEvidence,
}

/// The evidence for the slowest rank. Durations are compared with the fast ranks (lower quartile).
#[derive(Debug, Clone, Default, PartialEq)]
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
    Balanced {
        /// Whether the ranks' own computes are known, and do not differ.
        own_compute_known: bool,
    },
    /// The steps differ: the ranks do not wait for each other in each step.
    StepsDiffer {
        /// The excess of its step.
        step_ms: f64,
        /// The excess of its wait and of its compute, if both are known.
        wait_and_compute_ms: Option<(f64, f64)>,
    },
    /// The steps are equally long and its wait is longer: the others wait for it within their compute.
    WaitsLonger {
        /// The excess of its wait.
        wait_ms: f64,
    },
    /// Steps and waits are equally long and its own compute is longer: the others wait for it within theirs.
    OwnComputeLonger {
        /// The excess of its own compute.
        own_ms: f64,
        /// The line of its program whose time exceeds that of the other ranks most.
        line: Option<RankLine>,
    },
}

/// The slowest rank and the cause, as in the record.
#[derive(Default)]
struct Finding {
    slowest: Option<u32>,
    cause: RankCause,
    excess_ms: Option<Estimate>,
    evidence: RankEvidence,
    /// Compute of the slowest rank, if the others wait for it within their compute.
    slowest_compute_ms: Option<f64>,
}

impl Finding {
    /// Mean step of the slowest rank without its excess.
    fn step_without_excess_ms(&self, members: &[Member]) -> Option<f64> {
        let slowest = members.iter().find(|m| Some(m.rank) == self.slowest)?;
        Some(slowest.step.mean - self.excess_ms?.value)
    }
}

impl Ranks {
    /// Adds a rank. `summary` is its last one; `None` if it left none.
    pub fn add(
        &mut self,
        rank: u32,
        world_size: Option<u32>,
        summary: Option<&SummaryRecord>,
        series: &TickSeries,
    ) {
        if let Some(steady) = self.add_means(rank, world_size, summary, series) {
            self.step.merge(&steady.distribution(Quantity::Step));
            self.wait.merge(&steady.distribution(Quantity::Wait));
            self.compute.merge(&steady.distribution(Quantity::Compute));
        }
    }

    /// Adds a rank without its durations, which the search for the slowest rank does not need. Returns its
    /// steady state.
    pub fn add_means<'a>(
        &mut self,
        rank: u32,
        world_size: Option<u32>,
        summary: Option<&'a SummaryRecord>,
        series: &'a TickSeries,
    ) -> Option<Steady<'a>> {
        self.world_size = self.world_size.max(world_size);
        let summary = summary?;
        if summary.state == RunState::Running {
            self.unfinished.push(rank);
        }
        self.same_files.add_rank(&summary.data_files);
        let steady = series.steady(&StepSelection::from_summary(summary));
        self.batch_digests.push(summary.batch_digests.clone());
        let mean = |of| steady.as_ref().and_then(|steady| steady.mean_ms(of));
        let ms = |known: Option<Known>| known.map(|known| known.mean);
        let [step, wait, compute] = Quantity::ALL.map(mean);
        self.each.push(RankSummary {
            rank,
            state: summary.state,
            steps: summary.steps,
            step_ms: ms(step).or(summary.steady_step_mean_ms),
            wait_ms: ms(wait).or(summary.wait_ms),
            compute_ms: ms(compute).or(summary.compute_ms),
            others_ms: None,
        });
        if let Some(step) = step {
            self.members.push(Member {
                rank,
                step,
                wait,
                compute,
                own_compute: own_compute(summary),
                lines: compute_lines(summary),
            });
        }
        steady
    }

    /// Returns the result; `None` if no rank left a summary.
    pub fn finish(mut self) -> Option<RanksTogether> {
        if self.each.is_empty() {
            return None;
        }
        self.each.sort_by_key(|rank| rank.rank);
        let seen: Vec<u32> = self.each.iter().map(|rank| rank.rank).collect();
        let (missing_count, missing) = missing(&seen, self.world_size);
        let finding = slowest(&self.members);
        if let Some(slowest) = finding.slowest_compute_ms {
            for rank in &mut self.each {
                rank.others_ms = rank.compute_ms.map(|compute| (compute - slowest).max(0.0));
            }
        }
        let steps = self.each.iter().map(|rank| rank.steps);
        let record = RanksRecord {
            read: count(seen.len()),
            world_size: self.world_size,
            missing_count,
            missing,
            unfinished_count: count(self.unfinished.len()),
            unfinished: self.unfinished.iter().take(NAMED).copied().collect(),
            steps: steps.clone().min().zip(steps.max()),
            step: SpreadRecord::from_distribution(&self.step),
            wait: SpreadRecord::from_distribution(&self.wait),
            compute: SpreadRecord::from_distribution(&self.compute),
            slowest: finding.slowest,
            cause: finding.cause,
            excess_ms: finding.excess_ms,
            predicted_step_ms: finding.step_without_excess_ms(&self.members),
            ranks_reading_same_files: self.same_files.ranks(),
            evidence: String::new(),
            ranks_with_same_batches: ranks_with_same_batches(
                self.batch_digests.iter().map(Vec::as_slice),
            ),
            each: self.each,
        };
        Some(RanksTogether {
            record,
            evidence: finding.evidence,
        })
    }
}

/// The number of ranks that are not in the sorted `seen`, and the first of them.
fn missing(seen: &[u32], world_size: Option<u32>) -> (u32, Vec<u32>) {
    let world = world_size.unwrap_or(0);
    let within = seen.iter().filter(|rank| **rank < world).count();
    // The search ends after at most `seen.len() + NAMED` ranks, however large the world size is.
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
    let Some(by_step) = compare_slowest(members, |member| Some(member.step)) else {
        return unknown(RankEvidence::TooShort);
    };
    if by_step.is_clear() {
        return steps_differ(members, &by_step);
    }
    let Some(by_wait) = compare_slowest(members, |member| member.wait) else {
        return unknown(RankEvidence::WaitsUnknown);
    };
    let by_own_compute = compare_slowest(members, |member| member.own_compute);
    let clear_own = by_own_compute.as_ref().filter(|found| found.is_clear());
    match (by_wait.is_clear(), clear_own) {
        (true, Some(own)) if own.excess > by_wait.excess => {
            return own_computes_differ(members, own);
        }
        (true, _) => return waits_differ(members, &by_wait),
        (false, Some(own)) => return own_computes_differ(members, own),
        (false, None) => {}
    }
    let hidden = by_step.error.max(by_wait.error);
    if hidden > BLIND * by_step.step_ms {
        return unknown(RankEvidence::TooNoisy);
    }
    Finding {
        cause: RankCause::Balanced,
        evidence: RankEvidence::Balanced {
            own_compute_known: by_own_compute.is_some_and(|found| found.is_within(BLIND)),
        },
        ..Finding::default()
    }
}

/// The finding if the steps differ: the ranks do not wait for each other in each step.
fn steps_differ(members: &[Member], found: &SlowestRank) -> Finding {
    let slow = members.get(found.index);
    let excess = |part: fn(&Member) -> Option<Known>| {
        let fast = quartile(members.iter().filter_map(|m| Some(part(m)?.mean)))?;
        Some(part(slow?)?.mean - fast)
    };
    let wait_and_compute_ms = excess(|m| m.wait).zip(excess(|m| m.compute));
    let cause = match wait_and_compute_ms {
        Some((wait, compute)) if wait >= compute => RankCause::Data,
        Some(_) => RankCause::Compute,
        None => RankCause::Unknown,
    };
    Finding {
        slowest: slow.map(|slow| slow.rank),
        cause,
        excess_ms: Some(found.excess_ms()),
        evidence: RankEvidence::StepsDiffer {
            step_ms: found.excess,
            wait_and_compute_ms,
        },
        ..Finding::default()
    }
}

/// The finding if only the waits differ: the others wait for the rank that waits for data.
fn waits_differ(members: &[Member], found: &SlowestRank) -> Finding {
    let slow = members.get(found.index);
    Finding {
        slowest: slow.map(|slow| slow.rank),
        cause: RankCause::Data,
        excess_ms: Some(found.excess_ms()),
        evidence: RankEvidence::WaitsLonger {
            wait_ms: found.excess,
        },
        slowest_compute_ms: slow.and_then(|slow| Some(slow.compute?.mean)),
    }
}

/// The finding if the ranks' own compute times differ most: the others wait for the rank that computes longest.
fn own_computes_differ(members: &[Member], found: &SlowestRank) -> Finding {
    let slow = members.get(found.index);
    let slowest = slow.map(|slow| slow.rank);
    let others = || members.iter().filter(|member| Some(member.rank) != slowest);
    // A line that another rank does not list takes little time there.
    let ms_of = |member: &Member, line: &RankLine| {
        let is_same = |other: &&RankLine| (&other.file, other.line) == (&line.file, line.line);
        member
            .lines
            .iter()
            .find(is_same)
            .map_or(0.0, |same| same.ms)
    };
    let excess = |line: &RankLine| {
        let longest = others().fold(0.0, |longest: f64, member| longest.max(ms_of(member, line)));
        line.ms - longest
    };
    let lines = slow.map(|slow| slow.lines.as_slice()).unwrap_or_default();
    let line = lines.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)));
    let line = line.filter(|line| excess(line) > 0.0).cloned();
    Finding {
        slowest,
        cause: RankCause::Compute,
        excess_ms: Some(found.excess_ms()),
        evidence: RankEvidence::OwnComputeLonger {
            own_ms: found.excess,
            line,
        },
        ..Finding::default()
    }
}

/// Compute without the waits for other threads, processes and machines.
fn own_compute(summary: &SummaryRecord) -> Option<Known> {
    let blocked = summary.compute_blocked_ms?;
    Some(Known {
        mean: summary.compute_ms? - blocked.value,
        error: Some(standard_error(blocked.low, blocked.high)),
        ..Known::default()
    })
}

/// The lines of compute that do not wait.
fn compute_lines(summary: &SummaryRecord) -> Vec<RankLine> {
    let Some(compute_ms) = summary.compute_ms else {
        return Vec::new();
    };
    let works = |line: &&LineRecord| line.stage.is_none() && line.kind != LineKind::Wait;
    let lines = summary.lines.iter().filter(works).map(|line| RankLine {
        file: line.file.clone(),
        line: line.line,
        function: line.function.clone(),
        ms: line.share_pct / 100.0 * compute_ms,
    });
    lines.collect()
}

/// The rank with the largest value of a quantity.
struct SlowestRank {
    /// Index of the rank.
    index: usize,
    /// Excess over the fast ranks.
    excess: f64,
    /// Half-width of the interval of `excess`.
    error: f64,
    step_ms: f64,
}

impl SlowestRank {
    fn is_clear(&self) -> bool {
        self.excess > self.error && self.excess > RELEVANT * self.step_ms
    }

    /// Whether an excess of this share of the step would be clear.
    fn is_within(&self, share: f64) -> bool {
        self.error <= share * self.step_ms
    }

    fn excess_ms(&self) -> Estimate {
        Estimate::around(self.excess, self.error)
    }
}

/// Compares the rank with the largest value of `what` with the lower quartile. Returns `None` if fewer than
/// two ranks have a value with an error.
fn compare_slowest(
    members: &[Member],
    what: impl Fn(&Member) -> Option<Known>,
) -> Option<SlowestRank> {
    let values: Vec<(usize, f64, f64)> = members
        .iter()
        .enumerate()
        .filter_map(|(index, member)| {
            let known = what(member)?;
            Some((index, known.mean, known.error?))
        })
        .collect();
    let ranks = values.len() as f64;
    let fast = quartile(values.iter().map(|value| value.1))?;
    let usual = quartile(values.iter().map(|value| value.2))?;
    let (index, most, error) = values.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // If all ranks are equal, the largest of `ranks` values exceeds this many errors in at most one of
    // [`FALSE_FINDINGS`] cases (the tail of a normal variable is below exp(−x²/2): Chernoff).
    let errors = (2.0 * (ranks * FALSE_FINDINGS).ln()).sqrt();
    (ranks >= 2.0).then(|| SlowestRank {
        index,
        excess: most - fast,
        error: errors * error.hypot(usual),
        step_ms: quartile(members.iter().map(|member| member.step.mean)).unwrap_or(most),
    })
}

/// The lower quartile: the value of the fast ranks, whether they are many or few.
fn quartile(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    (!values.is_empty()).then(|| lower_quantile(&values, FAST))
}

#[cfg(test)]
mod tests;
