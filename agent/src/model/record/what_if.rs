//! The measured answers of a run in mode `whatif`.

use serde::{Deserialize, Serialize};

use crate::model::what_if::InterventionKind;

/// Measured step time while one stage of the pipeline was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfRecord {
    /// Name of the stage.
    pub stage: String,
    /// How its calls were changed.
    pub intervention: InterventionKind,
    /// `free`, `half`, `cut`: share of the calls that did no work. `gate`: maximum number of calls at once. `delay`: mean
    /// delay of a call, in milliseconds.
    pub amount: f64,
    /// Step time with the change, in milliseconds.
    pub step_ms: f64,
    /// 95 % confidence interval of `step_ms`.
    pub step_ci_ms: (f64, f64),
    /// Reduction of the step time by the change, in percent. Negative if the step is longer.
    pub gain_pct: f64,
    /// 95 % confidence interval of `gain_pct`.
    pub gain_ci_pct: (f64, f64),
    /// Number of steps that were measured with the change.
    pub steps: u64,
    /// Number of inputs of stages for which a call returned the result of another input.
    pub inputs_not_trained_on: u64,
}
