//! Conclusions are data (ARCHITECTURE.md, "Layers"): `agent/src/model`, `agent/src/analysis` and the renderers (see
//! `RENDERERS`) contain no sentences about a run. Such sentences are in `agent/src/wording`, and notices are in
//! `agent/src/notice.rs`.
//!
//! A renderer may contain labels of columns, keys and legends, messages about files and options, and the help text of
//! the command. Labels have fewer than six words. The other texts are listed in `NOT_ABOUT_A_RUN`.

#![allow(clippy::expect_used, reason = "all of it is test code")]

use std::fs;
use std::path::Path;

/// A string literal of the model or the analysis with this many words or more is a sentence, and not a name.
const SENTENCE: usize = 3;

/// The same limit for a renderer. It is higher, because tables have headings such as `a call of the stage`.
const SENTENCE_OF_RENDERER: usize = 6;

/// Folders and files that render the sections of a verdict.
const RENDERERS: [&str; 5] = [
    "cli/src/compare",
    "cli/src/page",
    "cli/src/report",
    "cli/src/top",
    "exporters/src/encode/verdict_text.rs",
];

/// Texts of the renderers that are messages about files and options, or hints about keys.
const NOT_ABOUT_A_RUN: [&str; 6] = [
    "help.rs: ",
    "needs exactly one run",
    "open it at https://",
    "name a folder of runs",
    "`top` needs a terminal",
    "more lines (v shows all)",
];

/// String literals with at least `words` words in a source file, outside comments, attributes and unit tests.
fn sentences(source: &str, words: usize) -> Vec<&str> {
    let code = source.split("#[cfg(test)]\nmod tests {").next();
    let lines = code.unwrap_or_default().lines().map(str::trim);
    lines
        .filter(|line| !line.starts_with("//") && !line.contains("reason = "))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(|literal| {
            let is_word =
                |piece: &&str| piece.contains(char::is_alphabetic) && !piece.contains('{');
            literal.split_whitespace().filter(is_word).count() >= words
        })
        .collect()
}

fn collect(path: &Path, words: usize, found: &mut Vec<String>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("the sources are here") {
            collect(&entry.expect("it can be listed").path(), words, found);
        }
    } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
        let source = fs::read_to_string(path).expect("sources are text");
        let here = sentences(&source, words).into_iter();
        found.extend(here.map(|sentence| format!("{}: {sentence}", path.display())));
    }
}

/// The sentences in a source file, or in all source files of a folder.
fn sentences_in(path: &str, words: usize) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    collect(&root.join(path), words, &mut found);
    found
}

#[test]
fn the_model_contains_no_sentences() {
    let mut found = sentences_in("agent/src/model", SENTENCE);
    // Exporters send the descriptions of the metrics, so these stay in the model.
    found.retain(|one| !one.contains("metric.rs"));
    // This is the message of an assertion.
    found.retain(|one| !one.contains("are within the histogram's range"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn the_analysis_contains_no_sentences() {
    let mut found = sentences_in("agent/src/analysis", SENTENCE);
    // These are units in the table that `make study` prints.
    found.retain(|one| !one.contains("thresholds.rs"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn the_renderers_contain_no_sentences_about_a_run() {
    let mut found: Vec<String> = (RENDERERS.iter())
        .flat_map(|path| sentences_in(path, SENTENCE_OF_RENDERER))
        .collect();
    found.retain(|one| !NOT_ABOUT_A_RUN.iter().any(|text| one.contains(text)));
    assert_eq!(found, [""; 0]);
}

#[test]
fn the_rule_finds_a_sentence_and_accepts_a_name() {
    let source = "//! \"one two three\"\nlet a = (\"cores\", \"CPU quota\");\nlet b = \"It waits for data\";\n";
    assert_eq!(sentences(source, SENTENCE), ["It waits for data"]);
}
