//! Texts of a probe: why it has no result, why its result is uncertain, and why a window was not used.
//!
//! The texts name options as in `` `probe_steps` ``. [`OptionsFrom::spell`] replaces these names by those
//! that the user uses.
//!
//! [`OptionsFrom::spell`]: crate::model::OptionsFrom::spell

use std::fmt;

use super::units::duration_ms;
use crate::analysis::floor::{
    Asynchrony, FloorWarning, LEAST_LIVE, LEAST_REPLAY, NoFloor, NoHeadspace, Unused,
    WindowAnalysis,
};
use crate::analysis::probe_result::ProbeResult;
use crate::model::record::{LoaderRecord, ProbeRecord, WindowRecord};

/// The record of the probe of `loader`'s loop.
pub fn probe_record(
    loader: &LoaderRecord,
    probe: &ProbeResult,
    replayed_steps: u64,
) -> ProbeRecord {
    let options_from = loader.options_from.unwrap_or_default();
    let spell = |text: String| options_from.spell(&text);
    let warning = (!probe.warnings.is_empty()).then(|| spell(warnings_text(&probe.warnings)));
    ProbeRecord {
        loop_name: loader.name.clone(),
        windows: probe.windows.iter().map(window_record).collect(),
        floor: probe.floor.ok(),
        reason: probe.floor.err().map(|reason| spell(reason.to_string())),
        warning,
        cached_batches: probe.cache.batches,
        cached_bytes: probe.cache.bytes,
        mutated_batches: probe.cache.mutated,
        replayed_steps,
    }
}

/// All warnings as one text.
pub(super) fn warnings_text(warnings: &[FloorWarning]) -> String {
    let texts: Vec<String> = warnings.iter().copied().map(warning_text).collect();
    texts.join(" ")
}

/// The record of a window.
fn window_record(window: &WindowAnalysis) -> WindowRecord {
    WindowRecord {
        unused: window.unused.map(unused_text),
        ..window.record.clone()
    }
}

impl fmt::Display for NoHeadspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::CopiesTooLarge => String::from(
                "the training loop changes its batches in place, and copies of them would take \
                 more than 1 GiB (lower `num_caches`, or do not modify the batch tensors in place)",
            ),
            Self::BatchesMutated { mutated, cached } => format!(
                "the training loop changed {mutated} of {cached} cached batches in place while they \
                 were replayed, so the replayed steps may have cost more or less than live ones"
            ),
            Self::NoFloor(reason) => reason.to_string(),
            Self::EndedEarly(reason) => format!("the run ended before the probe did: {reason}"),
            Self::NotFinite => String::from("the floor is not a finite number"),
            Self::NotDone => String::from("the probe is not done yet"),
        };
        f.write_str(&text)
    }
}

impl fmt::Display for NoFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::TooFewSteps { live, replay } => format!(
                "too few usable steps: {live} live (minimum {LEAST_LIVE}) and {replay} in replay \
                 (minimum {LEAST_REPLAY}); train for longer, or over longer epochs"
            ),
            Self::Unsettled { unsettled, windows } => format!(
                "after the repeated batches, the wait time did not return to its earlier value in \
                 {unsettled} of {windows} live windows (raise `probe_steps`, so that the loader's \
                 queue can drain)"
            ),
            Self::Disagree {
                spread_pct,
                value_pct,
                half_pct,
            } => format!(
                "the mean steps of the live windows differ by {spread_pct:.0} %. The estimate is too \
                 uncertain: headspace {value_pct:.0} % ± {half_pct:.0} points (something changed \
                 during the probe; repeat it when the machine is idle, or raise `probe_steps`)"
            ),
            Self::Asynchronous(asynchrony) => asynchrony_text(*asynchrony),
            Self::ReplaySlower { pct } => format!(
                "replayed steps took {pct:.1} % longer than live steps, which is more than noise. \
                 Possible causes: a repeated batch costs more (for example, it is copied from \
                 another device); something changed during the probe; the device's queue was not \
                 full in the live windows; the device is idle between epochs. Repeat the probe on \
                 an idle machine"
            ),
            Self::TooWide {
                value_pct,
                half_pct,
            } => format!(
                "the steps vary too much. The estimate is too uncertain: headspace {value_pct:.0} % ± \
                 {half_pct:.0} points (train for more steps in a probe: raise `probe_steps`, or run \
                 for longer)"
            ),
        };
        f.write_str(&text)
    }
}

/// Says that about one of `every` steps is much longer, and what to do before the probe or what-if is repeated.
pub(super) fn rare_long_steps(every: usize, measurement: &str) -> String {
    format!(
        "about one of {every} steps takes much longer than the others, and there were too few of them. Either the loop \
         waits there for work that it queued on a device: then let it wait for a result once per step, for example with \
         `loss.item()` or `jax.block_until_ready(loss)`. Or another program had the cores: then repeat the {measurement} \
         on an idle machine"
    )
}

fn asynchrony_text(asynchrony: Asynchrony) -> String {
    let sign = match asynchrony {
        Asynchrony::Owed { replay_ms, owed_ms } => format!(
            "a step took {} in replay, but the live steps after it also finished queued work. \
             Counting this work, a step takes at least {}",
            duration_ms(replay_ms),
            duration_ms(owed_ms)
        ),
        Asynchrony::Growing {
            before_ms,
            after_ms,
        } => format!(
            "the steps grew from {} to {} at the end of the long replay, when the device's \
             queue was full",
            duration_ms(before_ms),
            duration_ms(after_ms)
        ),
        Asynchrony::Rare { every } => return rare_long_steps(every, "probe"),
        Asynchrony::Short { replay_ms, steps } => format!(
            "a step took {} in replay, far less than live, and the longest replay of {steps} \
             steps cannot distinguish a fast step from a queued one",
            duration_ms(replay_ms)
        ),
    };
    format!(
        "the replay timed only how fast work is queued on the device: {sign} (during the probe, let the loop wait for a \
         result once per step, for example with `loss.item()` or `jax.block_until_ready(loss)`)"
    )
}

fn warning_text(warning: FloorWarning) -> String {
    match warning {
        FloorWarning::ShortReplays => String::from(
            "The run ended before the probe's long replay. In a short replay the loader still \
             fills its queue. The true floor may be lower, and the true headspace larger, than \
             the numbers shown. Train for more steps, or set a lower `probe_steps`.",
        ),
        FloorWarning::WindowsDiffer { spread_pct } => format!(
            "The unchanged windows differ by {spread_pct:.0} % of a step: other \
             programs used the machine, or the loop changed. This widens the \
             interval. On an idle machine, it is narrower."
        ),
        FloorWarning::Oversubscribed { share } => format!(
            "The training thread waited for a core in {:.0} % of the probe. The numbers include \
             this wait. If another program used the cores, repeat the probe without it.",
            100.0 * share
        ),
        FloorWarning::NextToNothing { floor_ms } => format!(
            "A step with free data took only {}. If the loop queues its work on a device and \
             never waits for a result, the true floor is longer: let it wait for a result \
             once per step.",
            duration_ms(floor_ms)
        ),
    }
}

/// Why a window was not used.
fn unused_text(unused: Unused) -> String {
    match unused {
        Unused::Unsettled => String::from(
            "after the repeated batches, the wait time did not return to its earlier value within \
             the allowed steps",
        ),
        Unused::TooShort { settled } => format!("only {settled} usable steps"),
        Unused::StillQueueing => String::from(
            "its compute is far shorter than later: the device's queue was not full yet",
        ),
        Unused::StillFilling => String::from(
            "its steps differ from those late in the long replay, when the loader is idle",
        ),
        Unused::StillDraining => String::from(
            "the loop did not wait in this window, but waits in other live windows: the queue was \
             still full",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_of_a_floor_names_its_cause() {
        for (warning, cause) in [
            (FloorWarning::ShortReplays, "before the probe's long replay"),
            (
                FloorWarning::WindowsDiffer { spread_pct: 21.4 },
                "differ by 21 % of a step",
            ),
            (
                FloorWarning::Oversubscribed { share: 0.3 },
                "waited for a core in 30 % of the probe",
            ),
            (
                FloorWarning::NextToNothing { floor_ms: 0.01 },
                "took only 10.0 µs",
            ),
        ] {
            let text = warning_text(warning);
            assert!(text.contains(cause), "{text}");
        }
    }

    #[test]
    fn each_reason_for_an_unused_window_names_its_cause() {
        for (unused, cause) in [
            (Unused::Unsettled, "did not return to its earlier value"),
            (Unused::TooShort { settled: 7 }, "only 7 usable steps"),
            (Unused::StillQueueing, "the device's queue was not full"),
            (Unused::StillFilling, "late in the long replay"),
            (Unused::StillDraining, "the queue was still full"),
        ] {
            let text = unused_text(unused);
            assert!(text.contains(cause), "{text}");
        }
    }
}
