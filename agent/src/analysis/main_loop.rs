//! Which of a program's loops its numbers are about.
//!
//! The run itself decides with all that it knows, and its summary says so. A reader of records takes what
//! the last summary says. Before the first summary it decides by the same rule, knowing less.

use crate::model::record::{SummaryRecord, TickRecord};

/// Most loops that a reader tells apart. More are no training script.
const MOST_LOOPS: usize = 4096;

/// What is known of a loop. What is not known is false or 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Candidate {
    /// The user named it as the training loop.
    pub chosen: bool,
    /// It is probed.
    pub probed: bool,
    /// It evaluates, or feeds another loop.
    pub apart: bool,
    /// It has steps enough for a number.
    pub measurable: bool,
    /// It trains a model.
    pub trains: bool,
    /// Batches received.
    pub steps: u64,
    /// Seconds spent in its steps.
    pub seconds: f64,
}

/// The index of the main loop: the one that the user named, else the probed one. Else one that evaluates,
/// or feeds another, stands behind all others; of the others those with enough steps for a number come
/// first, then those that train a model, then the one that most time was spent in.
#[must_use]
pub fn main_loop(candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let rank = |c: &Candidate| {
        let took_steps = c.steps > 0;
        (
            c.chosen && took_steps,
            c.probed,
            took_steps && !c.apart,
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
    /// From the last summary that named one.
    summarised: Option<String>,
    loops: Vec<(String, Candidate)>,
}

impl MainLoop {
    /// Takes what a tick says of a loop: batches received, and the seconds of its steps.
    pub fn add_steps(&mut self, name: &str, steps: u64, seconds: f64) {
        let known = self.loops.iter_mut().find(|(known, _)| known == name);
        if let Some((_, candidate)) = known {
            candidate.steps += steps;
            candidate.seconds += seconds;
        } else if self.loops.len() < MOST_LOOPS {
            let candidate = Candidate {
                steps,
                seconds,
                ..Candidate::default()
            };
            self.loops.push((name.to_owned(), candidate));
        }
    }

    /// Takes a tick.
    pub fn add_tick(&mut self, tick: &TickRecord) {
        for entry in &tick.loops {
            self.add_steps(&entry.name, entry.steps, entry.step.sum_ms / 1e3);
        }
    }

    /// Takes a summary.
    pub fn add_summary(&mut self, summary: &SummaryRecord) {
        if summary.loop_name.is_some() {
            self.summarised.clone_from(&summary.loop_name);
        }
    }

    /// Its name; `None` before the first loop.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let candidates = self.loops.iter().map(|(_, candidate)| *candidate);
        let decided = || Some(self.loops.get(main_loop(candidates)?)?.0.as_str());
        self.summarised.as_deref().or_else(decided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_takes_the_loop_that_most_time_was_spent_in_until_a_summary_names_one() {
        let mut main = MainLoop::default();
        assert_eq!(main.name(), None);
        main.add_steps("warm", 500, 1.0);
        main.add_steps("train", 10, 0.9);
        assert_eq!(main.name(), Some("warm"));
        main.add_steps("train", 10, 0.9);
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
