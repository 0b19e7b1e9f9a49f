//! Concludes from the record of a comparison whether B is slower, and whether B is within its limit.

use crate::model::comparison::{ComparisonRecord, ComparisonVerdict, Gate, JudgedBy};
use crate::model::record::Estimate;

/// The difference that is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Whether the whole interval is above zero, below zero, or contains zero.
    pub verdict: ComparisonVerdict,
    /// Quantity that differs.
    pub judged_by: JudgedBy,
    /// B − A in percent of A, with its 95 % confidence interval.
    pub pct: Estimate,
}

/// Whether B is within its limit. Durations are in percent of A's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LimitConclusion {
    /// Passed: the whole interval is at or below zero.
    NotSlower,
    /// Passed: the interval's upper end, which is within the limit.
    SlowerByAtMost(f64),
    /// Failed: the interval's lower end, which is beyond the limit.
    SlowerByAtLeast(f64),
    /// The interval contains the limit.
    Inconclusive(Remedy),
    /// There is no interval.
    NoInterval,
}

/// What would make an inconclusive comparison conclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// More runs per side.
    Runs {
        /// Runs per side that would detect a difference as large as the limit.
        needed: u32,
        /// Runs of the side that has more of them.
        present: usize,
    },
    /// Longer runs, or an unknown number of runs.
    NarrowerInterval,
}

/// Whether B is slower than A. `None` without an interval.
pub fn conclude(record: &ComparisonRecord) -> Option<Difference> {
    Some(Difference {
        verdict: record.verdict,
        judged_by: record.judged_by,
        pct: judged_pct(record)?,
    })
}

/// Whether B is within the limit, and the limit in percent. `None` without a limit.
pub fn conclude_limit(record: &ComparisonRecord) -> Option<(f64, LimitConclusion)> {
    let limit_pct = record.limit_pct?;
    let conclusion = match (record.gate?, judged_pct(record)) {
        (Gate::Passed, Some(pct)) if pct.high <= 0.0 => LimitConclusion::NotSlower,
        (Gate::Passed, Some(pct)) => LimitConclusion::SlowerByAtMost(pct.high),
        (Gate::Failed, Some(pct)) => LimitConclusion::SlowerByAtLeast(pct.low),
        (Gate::Open, _) => LimitConclusion::Inconclusive(remedy(record)),
        (Gate::Passed | Gate::Failed, None) | (Gate::Unknown, _) => LimitConclusion::NoInterval,
    };
    Some((limit_pct, conclusion))
}

fn judged_pct(record: &ComparisonRecord) -> Option<Estimate> {
    let change = match record.judged_by {
        JudgedBy::Step => record.step_ms,
        JudgedBy::Sample => record.sample_ms,
        JudgedBy::UndisturbedStep | JudgedBy::UndisturbedSample => record.undisturbed_ms,
    };
    change.difference_pct
}

fn remedy(record: &ComparisonRecord) -> Remedy {
    match record.runs_needed {
        Some(needed) => Remedy::Runs {
            needed,
            present: record.a.runs.len().max(record.b.runs.len()),
        },
        None => Remedy::NarrowerInterval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparison::{Change, ComparedRun};

    fn record(gate: Gate, low: f64, high: f64) -> ComparisonRecord {
        let value = f64::midpoint(low, high);
        let mut record = ComparisonRecord {
            verdict: ComparisonVerdict::Slower,
            limit_pct: Some(5.0),
            gate: Some(gate),
            step_ms: Change {
                difference_pct: Some(Estimate { value, low, high }),
                ..Change::default()
            },
            ..ComparisonRecord::default()
        };
        record.b.runs = vec![ComparedRun::default(); 2];
        record
    }

    #[test]
    fn the_limit_is_compared_with_the_end_of_the_interval_that_decides() {
        let conclusion = |gate, low, high| conclude_limit(&record(gate, low, high));

        let cases = [
            (Gate::Passed, -2.0, 0.0, LimitConclusion::NotSlower),
            (
                Gate::Passed,
                -2.0,
                3.0,
                LimitConclusion::SlowerByAtMost(3.0),
            ),
            (
                Gate::Failed,
                7.0,
                9.0,
                LimitConclusion::SlowerByAtLeast(7.0),
            ),
            (
                Gate::Open,
                2.0,
                9.0,
                LimitConclusion::Inconclusive(Remedy::NarrowerInterval),
            ),
        ];
        for (gate, low, high, expected) in cases {
            assert_eq!(conclusion(gate, low, high), Some((5.0, expected)));
        }
    }

    #[test]
    fn the_remedy_names_the_runs_that_are_needed_and_present() {
        let open = ComparisonRecord {
            runs_needed: Some(9),
            ..record(Gate::Open, 2.0, 9.0)
        };

        let (needed, present) = (9, 2);
        assert_eq!(
            conclude_limit(&open),
            Some((
                5.0,
                LimitConclusion::Inconclusive(Remedy::Runs { needed, present })
            ))
        );
    }

    #[test]
    fn without_an_interval_or_a_limit_nothing_is_concluded() {
        let none = ComparisonRecord {
            step_ms: Change::default(),
            ..record(Gate::Unknown, 0.0, 0.0)
        };

        assert_eq!(conclude(&none), None);
        assert_eq!(
            conclude_limit(&none),
            Some((5.0, LimitConclusion::NoInterval))
        );
        assert_eq!(conclude_limit(&ComparisonRecord::default()), None);
    }

    #[test]
    fn only_the_judged_quantity_counts() {
        let by_sample = ComparisonRecord {
            judged_by: JudgedBy::Sample,
            ..record(Gate::Failed, 7.0, 9.0)
        };

        assert_eq!(conclude(&by_sample), None);
    }
}
