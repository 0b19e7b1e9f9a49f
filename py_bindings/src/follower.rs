//! Reads the records of a run while they are written: `headspace._native.Follower`.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use headspace_agent::analysis::tick_series::{Quantity, StepSelection, TickSeries};
use headspace_agent::lock::lock;
use headspace_exporters::encode::json_lines;
use headspace_exporters::run_folder::{self, ReadError};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Follows a run's files across rotation.
#[pyclass(frozen, module = "headspace._native")]
pub(crate) struct Follower {
    state: Mutex<State>,
}

struct State {
    follower: run_folder::Follower,
    /// Of rank 0.
    series: TickSeries,
}

/// Whether the records belong to another run, the records as JSON with their ranks, and whether there are
/// more.
type Polled = (bool, Vec<(u32, String)>, bool);

#[pymethods]
impl Follower {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let follower = match run_folder::Follower::open(&path) {
            Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                run_folder::Follower::in_base(&path)
            }
            opened => opened.map_err(os_error)?,
        };
        let series = TickSeries::default();
        let state = Mutex::new(State { follower, series });
        Ok(Self { state })
    }

    /// The folder of the current run.
    #[getter]
    fn run(&self) -> Option<PathBuf> {
        lock(&self.state).follower.run().map(ToOwned::to_owned)
    }

    /// Name of rank 0's main loop, from the records read so far.
    #[getter]
    fn main_loop(&self) -> Option<String> {
        lock(&self.state).series.main_loop().map(ToOwned::to_owned)
    }

    /// The mean live step of rank 0's main loop after warm-up in milliseconds, its standard error, and the
    /// number of steps.
    #[getter]
    fn steady_step(&self) -> Option<(f64, Option<f64>, u64)> {
        let state = lock(&self.state);
        let steady = state.series.steady(&StepSelection::default())?;
        let step = steady.mean_ms(Quantity::Step)?;
        let steps = steady.distribution(Quantity::Step).count();
        Some((step.mean, step.error, steps))
    }

    /// Keeps following the current run when another begins.
    fn stay(&self) {
        lock(&self.state).follower.stay();
    }

    fn poll(&self, py: Python<'_>) -> PyResult<Polled> {
        py.detach(|| {
            let mut state = lock(&self.state);
            let polled = state.follower.poll().map_err(os_error)?;
            if polled.another_run {
                state.series = TickSeries::default();
            }
            let mut records = Vec::with_capacity(polled.records.len());
            for (rank, record) in &polled.records {
                if *rank == 0 {
                    state.series.add_record(&record.body);
                }
                let mut line = Vec::new();
                json_lines::encode(record, &mut line)?;
                records.push((*rank, String::from_utf8(line)?));
            }
            Ok((polled.another_run, records, polled.more))
        })
    }
}

fn os_error(error: ReadError) -> PyErr {
    PyOSError::new_err(error.to_string())
}
