//! Selects the main loop of a program, which the verdict is about.
//!
//! The run selects it with all facts, and writes its name to the summaries. A reader uses the name in the
//! last summary. Without a summary, it applies the same rule to the records.

use crate::model::RecordBody;
use crate::model::record::ProbeRecord;
use crate::statistics::steady_state::ENOUGH_STEPS;

/// Maximum number of loops, or of stages, that a reader distinguishes. A training script has fewer.
pub(super) const MOST_NAMES: usize = 4096;

/// Facts about a loop. Unknown facts are false or 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the fields are independent facts, in the order of the criteria"
)]
pub struct Candidate {
    /// The user named it as the training loop.
    pub chosen: bool,
    /// It is probed.
    pub probed: bool,
    /// It evaluates, or feeds another loop.
    pub secondary: bool,
    /// It has enough steps for a result.
    pub measurable: bool,
    /// It trains a model.
    pub trains: bool,
    /// Batches received.
    pub steps: u64,
    /// Seconds spent in its steps.
    pub seconds: f64,
}

/// Returns the index of the main loop. Criteria, in order: named by the user; probed; took steps and neither
/// evaluates nor feeds another loop; has enough steps for a result; trains a model; took the most time.
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

/// The last probe of the main loop. A probe of another loop says nothing about the main loop.
pub fn main_probe<'a>(
    mut probes: impl DoubleEndedIterator<Item = &'a ProbeRecord>,
    main_loop: Option<&str>,
) -> Option<&'a ProbeRecord> {
    let main_loop = main_loop?;
    probes.rfind(|probe| probe.loop_name == main_loop)
}

/// The main loop of a run whose records are read in order.
#[derive(Debug, Clone, Default)]
pub struct MainLoop {
    named_by_summary: Option<String>,
    loops: Vec<(String, Candidate)>,
}

impl MainLoop {
    /// Adds the next record.
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
            RecordBody::Summary(summary) if summary.loop_name.is_some() => {
                self.named_by_summary.clone_from(&summary.loop_name);
            }
            _ => {}
        }
    }

    /// Adds the steps of a loop in a tick: batches received, and their duration in seconds. For ticks whose
    /// records were not read completely.
    pub(super) fn add_steps(&mut self, name: &str, steps: u64, seconds: f64) {
        if let Some(candidate) = self.candidate(name) {
            candidate.steps += steps;
            candidate.seconds += seconds;
            candidate.measurable = candidate.steps >= ENOUGH_STEPS;
        }
    }

    /// The facts about the loop called `name`; `None` if there are too many loops.
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

    /// The name of the main loop; `None` before the first loop.
    pub fn name(&self) -> Option<&str> {
        let candidates = self.loops.iter().map(|(_, candidate)| *candidate);
        let decided = || Some(self.loops.get(select_main_loop(candidates)?)?.0.as_str());
        self.named_by_summary.as_deref().or_else(decided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::SummaryRecord;

    #[test]
    fn a_reader_selects_the_loop_with_the_most_time_until_a_summary_names_one() {
        let mut main = MainLoop::default();
        assert_eq!(main.name(), None);
        main.add_steps("check", 5, 60.0);
        assert_eq!(main.name(), Some("check"));
        main.add_steps("warm", 500, 1.0);
        assert_eq!(main.name(), Some("warm"), "5 steps make no number");
        main.add_steps("train", 100, 1.8);
        assert_eq!(main.name(), Some("train"));
        let summary = |loop_name: Option<&str>| {
            RecordBody::Summary(Box::new(SummaryRecord {
                loop_name: loop_name.map(ToOwned::to_owned),
                ..SummaryRecord::default()
            }))
        };
        main.add_record(&summary(Some("warm")));
        main.add_record(&summary(None));
        assert_eq!(
            main.name(),
            Some("warm"),
            "a summary without a loop names none"
        );
    }

    #[test]
    fn the_main_probe_is_the_last_one_of_the_main_loop() {
        let probe = |loop_name: &str, cached_batches| ProbeRecord {
            loop_name: loop_name.to_owned(),
            cached_batches,
            ..ProbeRecord::default()
        };
        let probes = [probe("train", 1), probe("train", 2), probe("check", 3)];
        let cached = |main_loop| {
            let probe = main_probe(probes.iter(), main_loop);
            probe.map(|probe| probe.cached_batches)
        };
        assert_eq!(cached(Some("train")), Some(2));
        assert_eq!(cached(Some("warm")), None);
        assert_eq!(cached(None), None);
    }
}
