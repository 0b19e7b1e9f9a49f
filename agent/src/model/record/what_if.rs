//! The measured answers of a run in mode `whatif`, and what it could not answer.

use serde::{Deserialize, Serialize};

use super::Estimate;
use crate::model::what_if::InterventionKind;

/// Widest interval of a precise answer: half its width, in points of the unchanged step, or of a
/// longer changed one. With 10 points, a third more answers are
/// given, and twice as many are off by more than 3 points.
const WIDEST_PCT: f64 = 5.0;

/// The same for fewer calls at once, if they make the step surely shorter or surely longer: this decides how many calls to
/// keep, and the gains are large.
const WIDEST_DECIDED_PCT: f64 = 10.0;

/// Measured step time while one stage of the pipeline was changed, or the loop's requests for batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfRecord {
    /// Name of the stage. Null: the loop's requests for batches, and so the whole loader.
    pub stage: Option<String>,
    /// How its calls were changed.
    pub intervention: InterventionKind,
    /// `free`, `half`, `cut`: share of the calls that did no work. `gate`: maximum number of calls at once. `delay`: mean
    /// delay of a call, in milliseconds.
    pub amount: f64,
    /// Step time with the change, in milliseconds.
    pub step_ms: f64,
    /// 95 % confidence interval of `step_ms`.
    pub step_ci_ms: (f64, f64),
    /// Step time with the change by the model, in milliseconds. Absent if the model does not contain the stage, and for
    /// the loop's requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled_step_ms: Option<f64>,
    /// Reduction of the step time by the change, in percent. Negative if the step is longer.
    pub gain_pct: f64,
    /// 95 % confidence interval of `gain_pct`.
    pub gain_ci_pct: (f64, f64),
    /// Number of steps that were measured with the change.
    pub steps: u64,
    /// Number of inputs of stages for which a call returned the result of another input. Of the requests: number of batches.
    pub inputs_not_trained_on: u64,
}

impl WhatIfRecord {
    /// Whether the loop got each batch without a wait, so that the step is the floor.
    pub fn is_floor(&self) -> bool {
        self.stage.is_none() && self.intervention == InterventionKind::Free
    }

    /// Step time with the change, in milliseconds, with its interval.
    pub fn step(&self) -> Estimate {
        Estimate {
            value: self.step_ms,
            low: self.step_ci_ms.0,
            high: self.step_ci_ms.1,
        }
    }

    /// Whether the interval is narrow enough to report the answer.
    pub fn is_precise(&self) -> bool {
        self.relative_width() <= 1.0
    }

    /// Width of the interval, relative to the widest that is reported.
    pub fn relative_width(&self) -> f64 {
        let (low, high) = self.gain_ci_pct;
        // A longer step may be as uncertain relative to itself.
        let longer = (1.0 - self.gain_pct / 100.0).max(1.0);
        let is_decided = self.intervention == InterventionKind::Gate && (low > 0.0 || high < 0.0);
        let widest_pct = if is_decided {
            WIDEST_DECIDED_PCT
        } else {
            WIDEST_PCT
        };
        (high - low) / (2.0 * widest_pct * longer)
    }
}

/// How far a what-if is, and what it cannot answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WhatIfStatusRecord {
    /// Whether the last question has been asked. The loop then trains as in mode `measure`.
    pub finished: bool,
    /// Maximum number of steps of the what-if (`what_if_steps`).
    pub steps: u32,
    /// Number of changes that were measured too imprecisely to be reported.
    pub imprecise: u64,
    /// About how many steps (`what_if_steps`) would make the interval of each measured change narrow enough. Null if all are,
    /// and if the run ended before the what-if.
    pub steps_for_precision: Option<u32>,
    /// Stages that are not measured without their work, because their calls cannot return an earlier result.
    pub not_replaceable: Vec<String>,
    /// Whether the floor is not measured, because the batches cannot be copied.
    pub batches_not_repeatable: bool,
    /// The smallest `what_if_steps` that leaves time to settle after each switch. Null if the run has as many. With fewer,
    /// gains are too small.
    pub steps_to_settle: Option<u32>,
    /// Number of calls of stages that returned an earlier result, so that their inputs were not trained on, and of requests
    /// that returned an earlier batch. It includes windows without an answer.
    pub inputs_not_trained_on: u64,
}
