//! Handles the commands of the Python package without that package. With it, they never come here.

use std::ffi::OsStr;
use std::io;

use crate::args::PythonArgs;
use crate::{Context, EXIT_USAGE};

/// Prints what to install for the command `name`. `package` is what pip installs.
pub(crate) fn report_missing_package(
    name: &str,
    package: &str,
    args: &PythonArgs,
    context: &mut Context<'_>,
) -> io::Result<i32> {
    let words = args.words.join(OsStr::new(" "));
    let message = format!(
        "this `headspace` was built without the Python package, which `{name}` needs (`pip install {package}` in a \
         clone of headspace, then `python -m headspace {name} {}`)",
        words.to_string_lossy()
    );
    context.fail(message, EXIT_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_program_prints_where_the_command_is_and_repeats_the_arguments() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut context = Context {
            out: &mut out,
            err: &mut err,
            runs: "headspace-runs".into(),
            settings: crate::source_settings(),
            more_sources: &mut Vec::new,
            inject: None,
        };
        let tune = "headspace tune --knob a=1..2 -- true {a} --help";
        let demo = "headspace demo --threads 4 --help";

        for command in [tune, demo] {
            let words = command.split(' ').map(Into::into);
            assert_eq!(crate::run(words, &mut context), EXIT_USAGE);
        }

        let said = String::from_utf8(err).unwrap();
        assert!(
            said.contains("python -m headspace tune --knob a=1..2"),
            "{said}"
        );
        assert!(
            said.contains("python -m headspace demo --threads 4"),
            "{said}"
        );
    }
}
