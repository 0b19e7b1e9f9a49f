//! Runs a command line in a unit test.

use crate::Context;

/// The exit code of a command, and what it prints on stdout and stderr.
pub(crate) fn run_words<'a>(words: impl IntoIterator<Item = &'a str>) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut context = Context {
        out: &mut out,
        err: &mut err,
        runs: "headspace-runs".into(),
        settings: crate::source_settings(),
        more_sources: &mut Vec::new,
        inject: None,
    };
    let code = crate::run(words.into_iter().map(Into::into), &mut context);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}
