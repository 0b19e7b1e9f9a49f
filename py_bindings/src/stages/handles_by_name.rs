//! The handles of stages, by name. A name has one handle, so a repeated lookup is fast.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Handles are never removed.
static HANDLES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

pub(crate) fn handles(py: Python<'_>) -> &Bound<'_, PyDict> {
    HANDLES
        .get_or_init(py, || PyDict::new(py).unbind())
        .bind(py)
}
