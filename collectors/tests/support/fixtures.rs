//! Provides recorded files of `/proc` and `/sys` of real machines.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub(crate) const KERNELS: [&str; 3] = ["linux-4.18", "linux-5.15-arm64", "linux-6.18"];

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// A copy of a machine's files that a test may change.
pub(crate) fn copy_of(name: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    copy(&fixture(name), root.path());
    root
}

/// Copies the files in a folder into another folder, and creates that folder if it does not exist.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}
