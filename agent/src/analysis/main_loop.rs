//! Which of a program's loops its numbers are about.
//!
//! The run decides with everything it knows, and writes the name to its summaries. A reader uses the last
//! summary. Without one it applies the same rule to the records it has.

use super::statistics::steady_state::{LEAST_STEADY, LEAST_WARMUP};
use crate::model::RecordBody;
use crate::model::record::SummaryRecord;

/// Steps that make the smallest number.
const ENOUGH_STEPS: u64 = LEAST_WARMUP as u64 + LEAST_STEADY;

/// Loops, or stages, that a reader tells apart. More are no training script.
pub(super) const MOST_NAMES: usize = 4096;

/// What is known of a loop. What is not known is false or 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, in the order of their weight"
)]
pub struct Candidate {
    /// The user named it as the training loop.
    pub chosen: bool,
    /// It is probed.
    pub probed: bool,
    /// It evaluates, or feeds another loop.
    pub secondary: bool,
    /// It has steps enough for a number.
    pub measurable: bool,
    /// It trains a model.
    pub trains: bool,
    /// Batches received.
    pub steps: u64,
    /// Seconds spent in its steps.
    pub seconds: f64,
}

/// Returns the index of the main loop. Criteria, in order: named by the user; probed; took steps and neither
/// evaluates nor feeds another loop; has enough steps for a number; trains a model; took the most time.
#[must_use]
pub fn select_main_loop(candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let rank = |c: &Candidate| {
        let took_steps = c.steps > 0;
        (
            c.chosen && took_steps,
            c.probed,
            took_steps && !c.secondary,
            c.measurable,
            c.trains,
        )
    };
    let numbered = candidates.into_iter().enumerate();
    let main = numbered.max_by(|(_, a), (_, b)| {
        let by_time = a.seconds.total_cmp(&b.seconds);
        rank(a).cmp(&rank(b)).then(by_time)
    })?;
    Some(main.0)
}

/// The main loop of a run whose records are read in order.
#[derive(Debug, Clone, Default)]
pub struct MainLoop {
    named_by_summary: Option<String>,
    loops: Vec<(String, Candidate)>,
}

impl MainLoop {
    /// Takes the next record.
    pub fn add_record(&mut self, body: &RecordBody) {
        match body {
            RecordBody::Tick(tick) => {
                for entry in &tick.loops {
                    self.add_steps(&entry.name, entry.steps, entry.step.sum_ms / 1e3);
                }
            }
            RecordBody::Probe(probe) => {
                if let Some(candidate) = self.candidate(&probe.loop_name) {
                    candidate.probed = true;
                }
            }
            RecordBody::Summary(summary) => self.add_summary(summary),
            _ => {}
        }
    }

    /// Takes what a tick says of a loop: batches received, and the seconds of its steps.
    pub fn add_steps(&mut self, name: &str, steps: u64, seconds: f64) {
        if let Some(candidate) = self.candidate(name) {
            candidate.steps += steps;
            candidate.seconds += seconds;
            candidate.measurable = candidate.steps >= ENOUGH_STEPS;
        }
    }

    /// Takes a summary.
    pub fn add_summary(&mut self, summary: &SummaryRecord) {
        if summary.loop_name.is_some() {
            self.named_by_summary.clone_from(&summary.loop_name);
        }
    }

    /// What is known of that loop, from now on; `None` where there are too many.
    fn candidate(&mut self, name: &str) -> Option<&mut Candidate> {
        let known = self.loops.iter().position(|(known, _)| known == name);
        let number = known.unwrap_or(self.loops.len());
        if number >= MOST_NAMES {
            return None;
        }
        if known.is_none() {
            self.loops.push((name.to_owned(), Candidate::default()));
        }
        self.loops.get_mut(number).map(|(_, candidate)| candidate)
    }

    /// Its name; `None` before the first loop.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let candidates = self.loops.iter().map(|(_, candidate)| *candidate);
        let decided = || Some(self.loops.get(select_main_loop(candidates)?)?.0.as_str());
        self.named_by_summary.as_deref().or_else(decided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_takes_the_loop_that_most_time_was_spent_in_until_a_summary_names_one() {
        let mut main = MainLoop::default();
        assert_eq!(main.name(), None);
        main.add_steps("check", 5, 60.0);
        assert_eq!(main.name(), Some("check"));
        main.add_steps("warm", 500, 1.0);
        assert_eq!(main.name(), Some("warm"), "5 steps make no number");
        main.add_steps("train", 100, 1.8);
        assert_eq!(main.name(), Some("train"));
        main.add_summary(&SummaryRecord {
            loop_name: Some("warm".into()),
            ..SummaryRecord::default()
        });
        main.add_summary(&SummaryRecord::default());
        assert_eq!(
            main.name(),
            Some("warm"),
            "a summary without a loop names none"
        );
    }
}
