//! Passes what a worker found out about its growing memory to its trainer, in a file of the trainer's marker.

use std::fs;
use std::io::{self, Read, Write};

use super::Marker;
use super::folders::open;

/// Begin of the names of these files.
const PREFIX: &str = "memory-";

/// Maximum size of a file that is read, in bytes.
const MOST_BYTES: u64 = 64 * 1024;

/// Maximum number of files that are read.
const MOST_FILES: usize = 256;

/// Writes the examination of this process. It replaces an earlier one.
///
/// # Errors
///
/// The system's error: the trainer has ended, or the disk is full.
pub fn write_examination(marker: &Marker, text: &[u8]) -> io::Result<()> {
    let pid = std::process::id();
    let path = marker.folder().join(format!("{PREFIX}{pid}"));
    let unfinished = marker.folder().join(format!("new-{pid}"));
    let _ = fs::remove_file(&unfinished);
    open(&unfinished, true)?.write_all(text)?;
    fs::rename(unfinished, path)
}

/// The examinations of the workers so far, also of ended ones.
pub fn read_examinations(marker: &Marker) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(marker.folder()) else {
        return Vec::new();
    };
    let is_one = |entry: &fs::DirEntry| {
        entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX))
    };
    let read = |entry: fs::DirEntry| {
        let mut text = Vec::new();
        open(&entry.path(), false)
            .ok()?
            .take(MOST_BYTES)
            .read_to_end(&mut text)
            .ok()?;
        Some(text)
    };
    entries
        .flatten()
        .filter(is_one)
        .take(MOST_FILES)
        .filter_map(read)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Folders;

    #[test]
    fn a_trainer_reads_the_last_examination_of_a_worker() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Folders::below(&[folder.path()]).mark().unwrap();
        assert!(read_examinations(&marker).is_empty());

        write_examination(&marker, b"first").unwrap();
        write_examination(&marker, b"second").unwrap();

        assert_eq!(read_examinations(&marker), [b"second".to_vec()]);
        marker.remove();
        assert!(write_examination(&marker, b"late").is_err());
    }
}
