//! The options of a loop, and their spelling in each place where the user can set them.
//!
//! Each option can be set in three places. A message names an option as it is written in the place that
//! this user uses.

use super::Mode;
use super::record::codes;

codes! {
    /// Place where the user sets the options of a loop.
    #[derive(Default)]
    OptionsFrom {
        /// On the command line of `headspace run`.
        Run = "run",
        /// In environment variables.
        #[default]
        Environment = "environment",
        /// In the arguments of `headspace.wrap`.
        Wrap = "wrap",
    }
}

/// Declares the options of a loop, each with its name.
macro_rules! loop_options {
    ($($(#[$doc:meta])+ $option:ident = $name:literal,)+) => {
        /// An option of a loop.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum LoopOption {
            $($(#[$doc])+ $option,)+
        }

        impl LoopOption {
            /// All of them.
            pub const ALL: [Self; [$(Self::$option),+].len()] = [$(Self::$option),+];

            /// Its name as an argument of `headspace.wrap`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$option => $name,)+
                }
            }
        }
    };
}

loop_options! {
    /// Mode of the loop.
    Mode = "mode",
    /// Number of epochs of the run.
    Epochs = "epochs",
    /// Number of batches of the run.
    TotalSteps = "total_steps",
    /// Maximum number of steps of a probe.
    ProbeSteps = "probe_steps",
    /// Maximum number of steps of a what-if.
    WhatIfSteps = "what_if_steps",
    /// Whether a what-if trains on every input.
    KeepData = "keep_data",
    /// Number of batches that are cached and repeated.
    NumCaches = "num_caches",
    /// Whether the loop ends with its probe.
    StopAfterProbe = "stop_after_probe",
    /// Whether a probed epoch delivers every batch of its loader.
    ExactlyOnce = "exactly_once",
    /// Number of live batches before a replay.
    ReturnCachesAfter = "return_caches_after",
    /// Number of batches after which an epoch of a replay ends.
    StopAfter = "stop_after",
}

impl LoopOption {
    fn is_switch(self) -> bool {
        matches!(
            self,
            Self::StopAfterProbe | Self::ExactlyOnce | Self::KeepData
        )
    }
}

impl OptionsFrom {
    /// Text that sets an option to a value in this place. A switch has no value: the text turns it
    /// on.
    pub fn with(self, option: LoopOption, value: &str) -> String {
        let name = self.name_of(option);
        match (self, option) {
            (Self::Run, _) if option.is_switch() => name,
            (Self::Run, _) => format!("{name} {value}"),
            (Self::Environment, _) if option.is_switch() => format!("{name}=1"),
            (Self::Wrap, LoopOption::Mode) => format!("{name}=\"{value}\""),
            (Self::Wrap, _) if option.is_switch() => format!("{name}=True"),
            (Self::Environment | Self::Wrap, _) => format!("{name}={value}"),
        }
    }

    /// Replaces the name of each option in a text, as in `` `probe_steps` ``, by its name in this
    /// place.
    pub fn spell(self, text: &str) -> String {
        LoopOption::ALL
            .iter()
            .fold(text.to_owned(), |text, option| {
                let named = format!("`{}`", option.name());
                text.replace(&named, &format!("`{}`", self.name_of(*option)))
            })
    }

    /// Name of an option in this place.
    fn name_of(self, option: LoopOption) -> String {
        let name = option.name();
        match self {
            Self::Run => format!("--{}", name.replace('_', "-")),
            Self::Environment => format!("HEADSPACE_{}", name.to_uppercase()),
            Self::Wrap => name.to_owned(),
        }
    }

    /// Text that tells the user how to run the program again in a mode.
    pub fn with_mode(self, mode: Mode) -> String {
        let option = self.with(LoopOption::Mode, mode.as_str());
        match self {
            Self::Run => format!("`headspace run {option}`"),
            Self::Environment => format!("`{option}`"),
            Self::Wrap => format!("`headspace.wrap(..., {option})`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_written_as_in_the_place_that_the_user_uses() {
        let steps = |from: OptionsFrom| from.with(LoopOption::ProbeSteps, "500");
        assert_eq!(steps(OptionsFrom::Run), "--probe-steps 500");
        assert_eq!(steps(OptionsFrom::Environment), "HEADSPACE_PROBE_STEPS=500");
        assert_eq!(steps(OptionsFrom::Wrap), "probe_steps=500");
        let once = |from: OptionsFrom| from.with(LoopOption::ExactlyOnce, "");
        assert_eq!(once(OptionsFrom::Run), "--exactly-once");
        assert_eq!(once(OptionsFrom::Environment), "HEADSPACE_EXACTLY_ONCE=1");
        assert_eq!(once(OptionsFrom::Wrap), "exactly_once=True");
    }

    #[test]
    fn a_text_names_its_options_as_in_the_place_that_the_user_uses() {
        let text = "raise `probe_steps`, or lower `num_caches`";
        assert_eq!(
            OptionsFrom::Run.spell(text),
            "raise `--probe-steps`, or lower `--num-caches`"
        );
        assert_eq!(
            OptionsFrom::Environment.spell(text),
            "raise `HEADSPACE_PROBE_STEPS`, or lower `HEADSPACE_NUM_CACHES`"
        );
        assert_eq!(OptionsFrom::Wrap.spell(text), text);
    }

    #[test]
    fn a_mode_is_set_in_the_place_of_the_options() {
        let probe = |from: OptionsFrom| from.with_mode(Mode::Probe);
        assert_eq!(probe(OptionsFrom::Run), "`headspace run --mode probe`");
        assert_eq!(probe(OptionsFrom::Environment), "`HEADSPACE_MODE=probe`");
        assert_eq!(
            probe(OptionsFrom::Wrap),
            "`headspace.wrap(..., mode=\"probe\")`"
        );
    }
}
