//! Converts the mode that `_session/lifecycle.py` passes, and the errors of a start.

use headspace_agent::model::Mode;
use headspace_exporters::catalog::DestinationError;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::session::start_agent::SessionError;

/// The mode of that name, by default `measure`.
pub(crate) fn mode(name: &Bound<'_, PyAny>) -> PyResult<Mode> {
    Ok(Mode::named(name.extract()?).unwrap_or_default())
}

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
