//! Writes the bytes of an input as the files of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::outputs::hostile_name;

/// Which files an input becomes: its first byte. The second one says where a file ends and the next one begins.
pub const LAYOUTS: [&[&str]; 4] = [
    &["rank0.jsonl"],
    &["rank0.001.jsonl", "rank0.jsonl"],
    &["rank0.jsonl", "rank1.jsonl"],
    &[
        "rank0.001.jsonl",
        "rank0.002.jsonl",
        "rank0.jsonl",
        "rank1.jsonl",
    ],
];

/// Writes the input into the folder of this process, in memory if the system has `/dev/shm`. Returns the run's folder
/// and a file beside it for output. `None` if the input is too short.
pub fn write(input: &[u8]) -> Option<(PathBuf, PathBuf)> {
    static FOLDER: OnceLock<Option<TempDir>> = OnceLock::new();
    let (&[layout, share], records) = input.split_first_chunk()?;
    let new_folder = || {
        tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .ok()
    };
    let folder = FOLDER.get_or_init(new_folder).as_ref()?.path();
    let run = folder.join(hostile_name());
    let _ = fs::remove_dir_all(&run);
    fs::create_dir_all(&run).ok()?;
    write_files(
        &run,
        LAYOUTS[usize::from(layout) % LAYOUTS.len()],
        share,
        records,
    )?;
    Some((run, folder.join("output")))
}

fn write_files(run: &Path, names: &[&str], share: u8, records: &[u8]) -> Option<()> {
    let mut rest = records;
    for (left, name) in (1..=names.len()).rev().zip(names) {
        let length = rest.len() * usize::from(share) / 256;
        let (file, more) = rest.split_at(if left == 1 { rest.len() } else { length });
        fs::write(run.join(name), file).ok()?;
        rest = more;
    }
    Some(())
}
