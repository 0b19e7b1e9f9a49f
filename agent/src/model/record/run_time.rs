//! How long an epoch and the whole run take, and how much of that changes would save.

use serde::{Deserialize, Serialize};

use super::Estimate;

/// How long an epoch, the whole run and the rest of the run take. Intervals are 95 % confidence intervals.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunTimeRecord {
    /// Number of GPUs that the run uses, under the assumption that each of several ranks uses one. Absent if there are none,
    /// and if the number is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Number of epochs of the run. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// An epoch, with what is between two epochs. Absent if its number of batches is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<PeriodRecord>,
    /// The whole run of the main loop. If the length of the run is unknown, a run that has ended counts as complete.
    /// Absent if the run has not ended and its length is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<PeriodRecord>,
    /// The rest of the run, from this record on. Absent if the run has ended, and if its length is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<PeriodRecord>,
}

/// A number of steps, how long they take, and what changes would save.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeriodRecord {
    /// Number of batches.
    pub steps: u64,
    /// Duration in seconds: the steps at the mean of the steady state, and the time to the first batch and between epochs as
    /// measured. Steps that were already taken count with their measured duration. The interval contains the variation of
    /// the steps, but neither a later change of the program nor, before the third epoch, the variation between epochs.
    pub duration_s: Estimate,
    /// Time that free data would save, in seconds: the headspace of its steps. Absent if the headspace was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_by_free_data_s: Option<Estimate>,
    /// Time that the first remedy would save, in seconds. Absent if there is no remedy with a predicted step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_by_remedy_s: Option<f64>,
    /// Interval of `saved_by_remedy_s`. Absent if no what-if measured the step with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_by_remedy_ci_s: Option<(f64, f64)>,
}
