//! Converts the mapping that `_session/lifecycle.py` passes, and the errors of a start.

use headspace_agent::model::Mode;
use headspace_exporters::catalog::DestinationError;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::session::start_agent::{SessionConfig, SessionError};

/// # Errors
///
/// `KeyError` if a key is missing; `TypeError` or `OverflowError` if a value has another type.
pub(crate) fn session_config(given: &Bound<'_, PyAny>) -> PyResult<SessionConfig> {
    let mode: String = given.get_item("mode")?.extract()?;
    Ok(SessionConfig {
        base: given.get_item("base")?.extract()?,
        run_id: given.get_item("run_id")?.extract()?,
        interval: given.get_item("interval")?.extract()?,
        rank: given.get_item("rank")?.extract()?,
        local_rank: given.get_item("local_rank")?.extract()?,
        rank_on_node: given.get_item("rank_on_node")?.extract()?,
        world_size: given.get_item("world_size")?.extract()?,
        mode: Mode::named(&mode).unwrap_or_default(),
        versions: given.get_item("versions")?.extract()?,
        argv: given.get_item("argv")?.extract()?,
        settings: given.get_item("settings")?.extract()?,
        quiet: given.get_item("quiet")?.extract()?,
        origin: given.get_item("origin")?.extract()?,
        exports: given.get_item("exports")?.extract()?,
        scalars: given.get_item("scalars")?.extract()?,
    })
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
