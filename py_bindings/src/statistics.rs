//! Statistics of the agent for `headspace tune`.

use headspace_agent::statistics;
use headspace_agent::statistics::precision::ratio;
use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (freedom, probability = 0.975))]
pub(crate) fn t_quantile(freedom: f64, probability: f64) -> f64 {
    statistics::student_quantile(freedom, probability)
}

#[pyfunction]
#[pyo3(signature = (parts, /))]
pub(crate) fn mean_and_error(parts: Vec<(f64, f64)>) -> Option<(f64, Option<f64>)> {
    ratio(&parts).map(|known| (known.mean, known.error))
}
