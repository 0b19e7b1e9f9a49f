//! The exceptions for errors of a session's start.

use headspace_exporters::catalog::DestinationError;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};

use crate::session::start_agent::SessionError;

impl From<SessionError> for PyErr {
    fn from(error: SessionError) -> Self {
        let text = error.to_string();
        match error {
            SessionError::Destination(DestinationError::Closed { .. })
            | SessionError::Folder(_) => PyOSError::new_err(text),
            SessionError::Interval(_) | SessionError::RunId(_) | SessionError::Destination(_) => {
                PyValueError::new_err(text)
            }
            SessionError::Agent(_) => PyRuntimeError::new_err(text),
        }
    }
}
