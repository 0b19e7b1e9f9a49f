//! Renders a run in every form, and checks that no text of its records is more than text there.
//!
//! A fuzz target panics at the first fault. `tests/rust/hostile_records.rs` uses this file as well.

use std::path::{Path, PathBuf};

use headspace::Context;
use headspace::fuzzing::screens;
use headspace::page::PageState;
use headspace_collectors::catalog::Settings;
use headspace_exporters::encode::untrusted_text::is_unsafe;

/// A text that is markup, an escape sequence, and a reversal of the direction, if it is not made harmless.
pub const HOSTILE: &str = "\" hs-attribute=\"1 \"'><hs-mark a=\"1\" b='2'>&\u{1b}[31m\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\r\u{8}\t`";

/// The second line of [`hostile_name`]. No line of the output may begin with it.
const FORGED: &str = "headspace: hs-forged";

/// The beginning of [`HOSTILE`]'s element. The pages of headspace have no such element.
const ELEMENT: &str = "<hs-mark";

/// An attribute that [`HOSTILE`] adds to an element if its quotes are not escaped.
const ATTRIBUTE: &str = "\" hs-attribute=\"1";

/// A name of a folder that is as hostile as [`HOSTILE`], and has a line that looks like a message of headspace.
pub fn hostile_name() -> String {
    format!("{HOSTILE}\n{FORGED}")
}

/// Prints the run as text: its verdict, tables of several runs, a comparison, the screens of `top`, and the errors of
/// commands that cannot read it.
///
/// # Panics
///
/// Panics if a text has a character that moves the cursor, except the end of a line, or if the name of the folder
/// begins a line.
pub fn check_terminal(run: &Path) -> String {
    let run_text = run.to_string_lossy();
    let missing = run.join("missing");
    let missing = missing.to_string_lossy();
    let mut shown = String::new();
    for words in [
        &["report", &run_text][..],
        &["report", &run_text, &run_text],
        &["compare", &run_text, &run_text],
        &["report", &missing],
        &["report", "--html", &missing, &missing],
        &["report", "--perfetto", "/nowhere/file", &run_text],
        &["compare", &run_text, &missing],
        &["serve", &missing],
        &["run", "--", &missing],
        &["doctor", "--data", &missing],
    ] {
        shown += &printed(words);
    }
    for screen in screens(run) {
        assert_harmless("top", &screen);
        shown += &screen;
    }
    shown
}

/// Writes the run as a page, in the formats of other programs, and as JSON. Returns the JSON.
///
/// # Panics
///
/// Panics if what is printed has a character that moves the cursor, except the end of a line.
pub fn write_other_formats(run: &Path, to: &Path) -> String {
    let (run, to) = (run.to_string_lossy(), to.to_string_lossy());
    for format in ["--html", "--perfetto", "--speedscope", "--collapsed"] {
        printed(&["report", format, &to, &run]);
    }
    printed(&["report", "--json", &run])
}

/// Makes the page of the run. Returns its HTML.
///
/// # Panics
///
/// Panics if a text of a record is markup in the page, or if a part of the page has an unsafe character.
pub fn check_page(run: &Path) -> String {
    let Ok(state) = PageState::read(run) else {
        return String::new();
    };
    let page = state.page();
    for part in &page.parts {
        assert_harmless("a part of the page", &part.html);
    }
    let html = page.file();
    let found = html.find(ELEMENT);
    let around = found.map(|at| &html[at..html.len().min(at + 200)]);
    assert!(around.is_none(), "markup of a record: {around:?}");
    assert!(
        !html.contains(ATTRIBUTE),
        "a text of a record is an attribute"
    );
    html
}

/// Executes a command. Returns what it prints, on both streams.
fn printed(words: &[&str]) -> String {
    let (out, err) = execute(words);
    assert_harmless("the output", &out);
    assert_harmless("the error output", &err);
    let all = out + &err;
    let forged = all.lines().any(|line| line.starts_with(FORGED));
    assert!(!forged, "the name of the folder begins a line: {all}");
    all
}

fn execute(words: &[&str]) -> (String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut context = Context {
        out: &mut out,
        err: &mut err,
        runs: PathBuf::from("/nowhere"),
        settings: Settings::default(),
        more_sources: &mut Vec::new,
        inject: Some(PathBuf::from("/nowhere")),
    };
    let words = std::iter::once(&"headspace").chain(words);
    headspace::run(words.map(Into::into), &mut context);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(out), text(err))
}

fn assert_harmless(what: &str, text: &str) {
    let is_harmful = |c: &char| *c != '\n' && is_unsafe(*c);
    let harmful = text
        .split('\n')
        .find(|line| line.chars().any(|c| is_harmful(&c)));
    let found = harmful.and_then(|line| line.chars().find(is_harmful));
    assert!(found.is_none(), "{what} has {found:?} in {harmful:?}");
}
