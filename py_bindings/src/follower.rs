//! Records of a run, read while they are written.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use headspace_exporters::encode::json_lines;
use headspace_exporters::run_folder;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Follows a run's files across rotation.
#[pyclass(frozen, module = "headspace._native")]
pub(crate) struct Follower {
    follower: Mutex<run_folder::Follower>,
}

#[pymethods]
impl Follower {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let follower = if path.exists() {
            run_folder::Follower::open(&path).map_err(os_error)?
        } else {
            run_folder::Follower::of_base(&path)
        };
        Ok(Self {
            follower: Mutex::new(follower),
        })
    }

    /// The folder of the run that is followed.
    #[getter]
    fn run(&self) -> Option<PathBuf> {
        self.locked(|follower| follower.run().map(ToOwned::to_owned))
    }

    /// Stays with the run that is followed, even when another one begins.
    fn stay(&self) {
        self.locked(run_folder::Follower::stay);
    }

    /// Whether these records are of another run, ranks with records as JSON, and whether there are more.
    fn poll(&self, py: Python<'_>) -> PyResult<(bool, Vec<(u32, String)>, bool)> {
        py.detach(|| {
            let polled = self.locked(run_folder::Follower::poll).map_err(os_error)?;
            let mut records = Vec::with_capacity(polled.records.len());
            for (rank, record) in &polled.records {
                let mut line = Vec::new();
                json_lines::encode(record, &mut line)?;
                records.push((*rank, String::from_utf8(line)?));
            }
            Ok((polled.another_run, records, polled.more))
        })
    }
}

impl Follower {
    fn locked<T>(&self, act: impl FnOnce(&mut run_folder::Follower) -> T) -> T {
        act(&mut self.follower.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn os_error(error: run_folder::ReadError) -> PyErr {
    PyOSError::new_err(error.to_string())
}
