//! What is said of a probe before it begins: how long it takes, and what happens to training.

use std::fmt;

use crate::model::{LoopOption, OptionsFrom};

/// What a probe is about to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeFacts {
    /// Most steps that it takes. Exact where several ranks train together.
    pub total: u64,
    /// From how many to how many it usually takes, where that is less.
    pub usual: Option<(u64, u64)>,
    /// Most steps that train on repeated batches. Exact where several ranks train together.
    pub replayed: u64,
    /// Batches that are repeated at a time.
    pub cached: u32,
    /// Whether several ranks train together.
    pub has_ranks: bool,
    /// Batches of an epoch, where the loader says.
    pub epoch: Option<u64>,
    /// Whether an epoch delivers every batch of a loader that has a length.
    pub exactly_once: bool,
    /// What the loop does when the probe is over.
    pub afterwards: Afterwards,
    /// Where the user sets the options.
    pub from: OptionsFrom,
}

/// What a loop does when its probe is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Afterwards {
    /// It trains on, unless the user asks for its end.
    #[default]
    TrainsOn,
    /// It trains on: only the program ends it.
    OnlyTrainsOn,
    /// It ends.
    Ends,
}

impl fmt::Display for ProbeFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_length(f)?;
        self.write_epoch(f)?;
        self.write_need(f)?;
        if self.afterwards != Afterwards::Ends {
            write!(
                f,
                " A checkpoint of this run was trained on the repeated batches more often: for a \
                 model to keep, probe in a short run of its own"
            )?;
            if self.afterwards == Afterwards::TrainsOn {
                let stop = self.from.with(LoopOption::StopAfterProbe, "");
                write!(f, " (`{stop}`)")?;
            }
            write!(f, ".")?;
        }
        Ok(())
    }
}

impl ProbeFacts {
    fn write_length(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            total,
            replayed,
            cached,
            ..
        } = self;
        match (self.has_ranks, self.usual) {
            (true, _) => write!(f, "{total} steps on every rank, of which {replayed}")?,
            (false, Some((least, most))) => write!(
                f,
                "up to {total} steps, usually {least} to {most}, of which up to {replayed}"
            )?,
            (false, None) => write!(f, "up to {total} steps, of which up to {replayed}")?,
        }
        let batches = if *cached == 1 { "batch" } else { "batches" };
        write!(
            f,
            " train on repeated batches, from a cache of {cached} {batches}."
        )
    }

    fn write_epoch(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.epoch, self.exactly_once) {
            (Some(_), false) => write!(
                f,
                " An epoch keeps its length: the loader's last batches are left out, as many as were \
                 repeated (`{}` delivers all).",
                self.from.with(LoopOption::ExactlyOnce, "")
            ),
            (Some(_), true) => write!(
                f,
                " Every batch of the loader is delivered: an epoch has more steps by the repeated \
                 ones."
            ),
            (None, _) => write!(f, " Every batch of the loader is delivered."),
        }
    }

    /// How long to train, where one epoch may be too short for the probe.
    fn write_need(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.usual.unwrap_or((self.total, self.total));
        let Some(epoch) = self.epoch.filter(|&epoch| epoch > 0 && epoch < most) else {
            return Ok(());
        };
        let epochs = |steps: u64| steps.div_ceil(epoch);
        write!(
            f,
            " An epoch of this loader has {epoch} batches: train for {most} steps or more ("
        )?;
        if least < most {
            let (least, total) = (epochs(least), epochs(self.total));
            write!(
                f,
                "usually {least} to {} epochs, at most {total}",
                epochs(most)
            )?;
        } else {
            write!(f, "{} epochs", epochs(most))?;
        }
        write!(f, ").")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long() -> ProbeFacts {
        ProbeFacts {
            total: 2400,
            usual: Some((600, 1200)),
            replayed: 776,
            cached: 10,
            ..ProbeFacts::default()
        }
    }

    #[test]
    fn a_probe_says_how_long_it_takes_and_what_happens_to_training() {
        let facts = ProbeFacts {
            epoch: Some(5000),
            from: OptionsFrom::Run,
            ..long()
        };
        assert_eq!(
            facts.to_string(),
            "up to 2400 steps, usually 600 to 1200, of which up to 776 train on repeated \
             batches, from a cache of 10 batches. An epoch keeps its length: the loader's last batches \
             are left out, as many as were repeated (`--exactly-once` delivers all). A checkpoint of \
             this run was trained on the repeated batches more often: for a model to keep, probe in a short \
             run of its own (`--stop-after-probe`)."
        );
    }

    #[test]
    fn a_loop_that_only_the_program_ends_cannot_be_stopped() {
        let facts = ProbeFacts {
            afterwards: Afterwards::OnlyTrainsOn,
            ..long()
        };
        let said = facts.to_string();
        assert!(said.ends_with("probe in a short run of its own."), "{said}");
    }

    #[test]
    fn where_all_batches_are_delivered_epochs_are_longer() {
        let facts = ProbeFacts {
            epoch: Some(5000),
            exactly_once: true,
            afterwards: Afterwards::Ends,
            ..long()
        };
        let text = facts.to_string();
        assert!(
            text.ends_with("an epoch has more steps by the repeated ones."),
            "{text}"
        );
        let endless = ProbeFacts {
            epoch: None,
            ..facts
        };
        let text = endless.to_string();
        assert!(
            text.ends_with("Every batch of the loader is delivered."),
            "{text}"
        );
    }

    #[test]
    fn epochs_that_are_shorter_than_the_probe_are_counted() {
        let facts = ProbeFacts {
            epoch: Some(120),
            ..long()
        };
        let text = facts.to_string();
        assert!(
            text.contains(
                "An epoch of this loader has 120 batches: train for 1200 steps or more (usually 5 \
                 to 10 epochs, at most 20)."
            ),
            "{text}"
        );
    }

    #[test]
    fn several_ranks_know_the_number_of_steps_beforehand() {
        let facts = ProbeFacts {
            total: 1035,
            usual: None,
            replayed: 304,
            cached: 1,
            has_ranks: true,
            epoch: Some(1000),
            ..ProbeFacts::default()
        };
        let text = facts.to_string();
        assert!(
            text.starts_with(
                "1035 steps on every rank, of which 304 train on repeated batches, from a \
                 cache of 1 batch."
            ),
            "{text}"
        );
        assert!(
            text.contains("train for 1035 steps or more (2 epochs)."),
            "{text}"
        );
    }
}
