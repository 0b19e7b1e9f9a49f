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
    use crate::testing::run_words;

    #[test]
    fn the_plain_program_prints_where_the_command_is_and_repeats_the_arguments() {
        let tune = "headspace tune --knob a=1..2 -- true {a} --help";
        let demo = "headspace demo --threads 4 --help";

        let said = [tune, demo].map(|command| {
            let (code, _, err) = run_words(command.split(' '));
            assert_eq!(code, EXIT_USAGE);
            err
        });
        let said = said.concat();
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
