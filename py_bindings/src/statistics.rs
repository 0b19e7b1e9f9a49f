//! Statistics of the agent for `headspace tune`.

use headspace_agent::statistics;
use headspace_agent::statistics::precision::{Known, interval};
use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (freedom, probability = 0.975))]
pub(crate) fn t_quantile(freedom: f64, probability: f64) -> f64 {
    statistics::student_quantile(freedom, probability)
}

/// The 95 % interval of a program's mean over many starts, from the mean of one run and its standard error.
#[pyfunction]
#[pyo3(signature = (mean, error = 0.0))]
pub(crate) fn run_interval(mean: f64, error: f64) -> (f64, f64) {
    let known = Known {
        mean,
        error: Some(error),
        ..Known::default()
    };
    interval(known).unwrap_or((mean, mean))
}
