//! Gives arbitrary bytes and damaged kernel files to every parser.
//!
//! `make fuzz` does the same for longer, guided by coverage (`fuzz/targets/kernel_files.rs`).

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "support/fixtures.rs"]
#[allow(dead_code, reason = "other tests copy the files")]
mod fixtures;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use fixtures::{KERNELS, fixture};
use headspace_collectors::fuzzing::parsers;
use proptest::prelude::*;

/// The recorded files of all kernels.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut files = Vec::new();
    for kernel in KERNELS {
        add_files(&fixture(kernel), &mut files);
    }
    files
});

fn add_files(folder: &Path, files: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.extend(fs::read(&path));
        }
    }
}

fn parse(bytes: &[u8]) {
    for (_, parse) in parsers() {
        parse(bytes);
    }
}

#[test]
fn every_parser_accepts_every_recorded_file() {
    assert!(FILES.len() > 100, "{} recorded files", FILES.len());
    FILES.iter().for_each(|file| parse(file));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_parser_panics_on_a_damaged_file(
        file: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end: prop::sample::Index,
        other: prop::sample::Index,
    ) {
        let mut bytes = file.get(&FILES).clone();
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes.truncate(end.index(bytes.len() + 1));
        parse(&bytes);
        // Appends another file, usually without a line break between the two.
        bytes.extend(other.get(&FILES));
        parse(&bytes);
    }

    #[test]
    fn no_parser_panics_on_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse(&bytes);
    }

    #[test]
    fn no_parser_panics_on_arbitrary_text(text in "[ -~\t\n]{0,200}") {
        parse(text.as_bytes());
    }
}
