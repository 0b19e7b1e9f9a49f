//! The `headspace` command of the wheel.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::interpreter::{Interpreter, stacks};

/// Runs the command. The first of `args` is the program's name, and `run` injects the folder `inject`.
/// Returns the exit status.
#[pyfunction]
#[pyo3(signature = (args, inject = None, /))]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>, inject: Option<PathBuf>) -> i32 {
    let mut opened = None;
    let code = py.detach(|| {
        // Only `doctor` needs them.
        let mut sources = || {
            let (interpreter, mut entries) = Python::attach(Interpreter::open);
            entries.push(Python::attach(stacks::entry));
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
