//! Creates root folders of simulated machines.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A root with these files.
pub(crate) fn root<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        write(root.path(), path, content);
    }
    root
}

/// Writes a file below `root`, and the folders above it.
pub(crate) fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
