//! Handles `headspace tune` without the Python package. The search is part of that package, whose command
//! handles `tune` before it calls this crate.

use std::ffi::OsStr;
use std::io;

use crate::args::TuneArgs;
use crate::{Context, EXIT_USAGE};

/// Prints what to install.
pub(crate) fn absent(args: &TuneArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let words = args.words.join(OsStr::new(" "));
    let message = format!(
        "this `headspace` was built without the Python package, which `tune` needs (`pip install \
         '.[tune]'` in a clone of headspace, then `python -m headspace tune {}`)",
        words.to_string_lossy()
    );
    context.fail(message, EXIT_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_program_prints_where_the_search_is_and_repeats_the_arguments() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut context = Context {
            out: &mut out,
            err: &mut err,
            runs: "headspace-runs".into(),
            settings: crate::source_settings(),
            more_sources: &mut Vec::new,
            inject: None,
        };
        let words = [
            "headspace",
            "tune",
            "--knob",
            "a=1..2",
            "--",
            "true",
            "{a}",
            "--help",
        ];

        let code = crate::run(words.into_iter().map(Into::into), &mut context);

        assert_eq!(code, EXIT_USAGE);
        let said = String::from_utf8(err).unwrap();
        assert!(
            said.contains("python -m headspace tune --knob a=1..2"),
            "{said}"
        );
    }
}
