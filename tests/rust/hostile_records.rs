//! Tests every output on records and folder names that contain markup and escape sequences.
//!
//! `make fuzz` varies such records (`fuzz/targets/terminal.rs`, `fuzz/targets/page.rs`).

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "../../fuzz/src/outputs.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets use it as a library")]
mod outputs;
#[path = "../../fuzz/src/schema_records.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets use it as a library")]
mod schema_records;

use std::fs;
use std::os::unix::fs::symlink;

use headspace_exporters::encode::json_lines::decode;
use outputs::{HOSTILE, check_page, check_terminal, hostile_name, write_other_formats};
use schema_records::lines;
use tempfile::TempDir;

/// Number of variants of the codes in the records.
const VARIANTS: usize = 12;

/// A run with `ranks` ranks, in a folder with a hostile name.
fn hostile_run(ranks: u32, variant: usize) -> TempDir {
    let name = hostile_name();
    let folder = tempfile::Builder::new().prefix(&name).tempdir().unwrap();
    for rank in 0..ranks {
        let records = lines(HOSTILE, rank, variant).concat();
        fs::write(folder.path().join(format!("rank{rank}.jsonl")), records).unwrap();
    }
    folder
}

#[test]
fn the_hostile_records_have_every_field_and_are_read() {
    for variant in 0..VARIANTS {
        let records = lines(HOSTILE, 0, variant);
        assert_eq!(records.len(), 7, "kinds of records");
        for line in records {
            let read = decode(line.as_bytes());
            assert!(read.is_ok(), "{read:?}: {line}");
        }
    }
}

#[test]
fn no_control_character_of_a_record_reaches_the_terminal() {
    for (ranks, variant) in (1..=2).flat_map(|ranks| (0..VARIANTS).map(move |v| (ranks, v))) {
        let run = hostile_run(ranks, variant);
        let shown = check_terminal(run.path());
        assert!(shown.contains("hs-mark"), "the texts are shown");
        let json = write_other_formats(run.path(), &run.path().join("output"));
        assert!(json.contains("hs-mark"), "the texts are in the JSON");
    }
}

#[test]
fn no_control_character_of_a_name_reaches_the_terminal_if_the_records_are_bad() {
    let run = hostile_run(1, 0);
    let file = run.path().join("rank0.jsonl");
    for bad in ["garbage\n", ""] {
        fs::write(&file, bad).unwrap();
        check_terminal(run.path());
        write_other_formats(run.path(), &run.path().join("output"));
    }
    fs::remove_file(&file).unwrap();
    check_terminal(run.path());
    symlink("/dev/zero", &file).unwrap();
    let shown = check_terminal(run.path());
    assert!(shown.contains("it is not a regular file"), "{shown}");
    write_other_formats(run.path(), &run.path().join("output"));
}

#[test]
fn no_text_of_a_record_is_markup_in_the_page() {
    for (ranks, variant) in (1..=2).flat_map(|ranks| (0..VARIANTS).map(move |v| (ranks, v))) {
        let html = check_page(hostile_run(ranks, variant).path());
        assert!(html.contains("&lt;hs-mark"), "the texts are in the page");
    }
}
