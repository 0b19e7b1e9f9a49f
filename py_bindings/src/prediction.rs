//! Predicted steps of configurations, for `headspace tune`.

use headspace_agent::analysis::attribution::{
    PredictedStep, SettingValue, predict_steps as predict,
};
use headspace_agent::model::record::{LoaderRecord, Setting, SummaryRecord};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A setting of a configuration: the stage or queue (`None`: the loader), the name of the setting, and its value.
type PySetting = (Option<String>, String, u32);

/// The predicted steps of configurations in milliseconds, each also by the simulation alone, from the JSON text of a run's
/// `summary` record and of its loader.
#[pyfunction]
#[pyo3(signature = (summary, loader, configurations, /))]
pub(crate) fn predict_steps(
    py: Python<'_>,
    summary: &str,
    loader: &str,
    configurations: Vec<Vec<PySetting>>,
) -> PyResult<Vec<Option<(f64, f64)>>> {
    let invalid = |error: serde_json::Error| PyValueError::new_err(error.to_string());
    let summary: SummaryRecord = serde_json::from_str(summary).map_err(invalid)?;
    let loader: LoaderRecord = serde_json::from_str(loader).map_err(invalid)?;
    let configurations: Vec<Vec<SettingValue>> = (configurations.into_iter())
        .map(|settings| settings.into_iter().map(setting).collect())
        .collect::<PyResult<_>>()?;
    let predicted = py.detach(|| predict(&summary, &loader, &configurations));
    let pair = |step: PredictedStep| (step.step_ms, step.simulated_ms);
    Ok(predicted.into_iter().map(|step| step.map(pair)).collect())
}

fn setting((target, name, value): PySetting) -> PyResult<SettingValue> {
    let setting = Setting::named(&name)
        .ok_or_else(|| PyValueError::new_err(format!("`{name}` is not a setting")))?;
    Ok(SettingValue {
        target,
        setting,
        value,
    })
}
