//! The `headspace` command, as the wheel installs it.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::interpreter::Interpreter;

/// Runs the command with these arguments, the first being the program's name, and the folder that
/// `run` injects. Returns its exit status.
#[pyfunction]
#[pyo3(signature = (args, inject = None, /))]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>, inject: Option<PathBuf>) -> i32 {
    let mut opened = None;
    let code = py.detach(|| {
        // Only `doctor` asks for them.
        let mut sources = || {
            let (interpreter, entries) = Python::attach(Interpreter::open);
            opened = Some(interpreter);
            entries
        };
        headspace::main_with(args.into_iter(), &mut sources, inject)
    });
    if let Some(interpreter) = opened {
        interpreter.end_around(py, || ());
    }
    code
}
