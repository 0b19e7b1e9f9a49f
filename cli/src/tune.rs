//! `headspace tune`, where it is not: the search is a part of the Python package, whose command takes it
//! before this one is asked.

use std::io;

use crate::args::TuneArgs;
use crate::{Context, EXIT_USAGE};

/// Says what to install.
pub(crate) fn absent(args: &TuneArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let words: Vec<_> = args
        .words
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    writeln!(
        context.err,
        "headspace: `tune` is a part of the Python package, and this is the plain program: `pip \
         install '.[tune]'` in a clone of headspace, then `python -m headspace tune {}`",
        words.join(" ")
    )?;
    Ok(EXIT_USAGE)
}
