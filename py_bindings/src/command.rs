//! The `headspace` command, as the wheel installs it.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments, the first being the program's name. Returns its exit
/// status.
#[pyfunction]
#[pyo3(signature = (args, /))]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>) -> i32 {
    py.detach(|| headspace::main(args.into_iter()))
}
