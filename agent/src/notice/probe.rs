//! The notice before a probe: how long it takes, and its effect on training.

use std::fmt;

use crate::model::{LoopOption, OptionsFrom};

/// Facts about a probe that is about to begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeFacts {
    /// Maximum number of steps. Exact if there are several ranks.
    pub total: u64,
    /// Usual number of steps, from and to, if that is less.
    pub usual: Option<(u64, u64)>,
    /// Maximum number of steps on repeated batches. Exact if there are several ranks.
    pub replayed: u64,
    /// Number of batches in the cache.
    pub cached: u32,
    /// Whether there are several ranks.
    pub has_ranks: bool,
    /// Number of batches in an epoch, if the loader reports it.
    pub epoch: Option<u64>,
    /// Whether an epoch delivers every batch of a loader that has a length.
    pub exactly_once: bool,
    /// What the loop does after the probe.
    pub afterwards: Afterwards,
    /// Where the user sets the options.
    pub from: OptionsFrom,
}

/// What a loop does after its probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Afterwards {
    /// It continues to train, unless the user sets `stop_after_probe`.
    #[default]
    TrainsOn,
    /// It continues to train: only the program can end it.
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
                " This run trains several times on the repeated batches. To keep a model, probe \
                 in a separate, short run"
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
        if self.afterwards == Afterwards::Ends {
            let stop = self.from.with(LoopOption::StopAfterProbe, "");
            return write!(f, " The epoch ends when the probe is done (`{stop}`).");
        }
        match (self.epoch, self.exactly_once) {
            (Some(_), false) => write!(
                f,
                " Repeated batches count towards the epoch. For each of them, one of the loader's \
                 last batches is not delivered (`{}` delivers all).",
                self.from.with(LoopOption::ExactlyOnce, "")
            ),
            (Some(_), true) => write!(
                f,
                " Every batch of the loader is delivered. The repeated batches make the epoch longer."
            ),
            (None, _) => write!(f, " Every batch of the loader is delivered."),
        }
    }

    /// Writes how long to train, if one epoch may be too short for the probe.
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
    fn the_notice_states_the_length_of_the_probe_and_its_effect_on_training() {
        let facts = ProbeFacts {
            epoch: Some(5000),
            from: OptionsFrom::Run,
            ..long()
        };
        assert_eq!(
            facts.to_string(),
            "up to 2400 steps, usually 600 to 1200, of which up to 776 train on repeated \
             batches, from a cache of 10 batches. Repeated batches count towards the epoch. For each of \
             them, one of the loader's last batches is not delivered (`--exactly-once` delivers all). This \
             run trains \
             several times on the repeated batches. To keep a model, probe in a separate, short run \
             (`--stop-after-probe`)."
        );
    }

    #[test]
    fn the_notice_names_no_option_if_only_the_program_can_end_the_loop() {
        let facts = ProbeFacts {
            afterwards: Afterwards::OnlyTrainsOn,
            ..long()
        };
        let said = facts.to_string();
        assert!(said.ends_with("probe in a separate, short run."), "{said}");
    }

    #[test]
    fn epochs_are_longer_if_all_batches_are_delivered() {
        let facts = ProbeFacts {
            epoch: Some(5000),
            exactly_once: true,
            ..long()
        };
        let text = facts.to_string();
        assert!(
            text.contains(
                "Every batch of the loader is delivered. The repeated batches make the epoch longer. This run"
            ),
            "{text}"
        );
        let endless = ProbeFacts {
            epoch: None,
            ..facts
        };
        let text = endless.to_string();
        assert!(
            text.contains("Every batch of the loader is delivered. This run"),
            "{text}"
        );
    }

    #[test]
    fn the_notice_says_that_the_epoch_ends_with_the_probe() {
        for (epoch, exactly_once) in [(None, false), (Some(5000), false), (Some(5000), true)] {
            let facts = ProbeFacts {
                epoch,
                exactly_once,
                afterwards: Afterwards::Ends,
                from: OptionsFrom::Run,
                ..long()
            };
            let text = facts.to_string();
            assert!(
                text.ends_with(
                    "from a cache of 10 batches. The epoch ends when the probe is done (`--stop-after-probe`)."
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn the_notice_counts_epochs_that_are_shorter_than_the_probe() {
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
    fn the_number_of_steps_is_exact_with_several_ranks() {
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
