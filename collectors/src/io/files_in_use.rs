//! The files that this process and its descendants have open, and their working directories.

use std::path::{Path, PathBuf};

use crate::procfs::walk::Walker;
use crate::procfs::{self, open_files};

/// Maximum number of processes whose files are searched.
const MOST_PROCESSES: usize = 64;

/// Number of readings of a source between two searches.
const SEARCH_EVERY: u32 = 10;

/// Finds the files in use.
#[derive(Debug)]
pub(super) struct FilesInUse {
    root: PathBuf,
    walker: Walker,
    /// Number of readings until the next search.
    until_search: u32,
}

impl FilesInUse {
    /// Searches the processes that `proc` below `root` describes.
    pub(super) fn with_root(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            walker: Walker::with_root(root),
            until_search: 0,
        }
    }

    /// Whether a search is due. A source asks once in each reading.
    pub(super) fn is_search_due(&mut self) -> bool {
        let is_due = self.until_search == 0;
        if is_due {
            self.until_search = SEARCH_EVERY;
        }
        self.until_search -= 1;
        is_due
    }

    /// Their paths. A path may occur several times.
    pub(super) fn paths(&mut self) -> Vec<PathBuf> {
        let own = procfs::below(&self.root, "/proc/self");
        let descendants = self.descendants();
        let folders = descendants.into_iter().map(|pid| self.walker.folder(pid));
        open_files::paths(std::iter::once(own).chain(folders).take(MOST_PROCESSES))
    }

    /// The pids of all descendants of this process; none if they cannot be found.
    fn descendants(&mut self) -> Vec<u32> {
        let Ok(own) = self.walker.own() else {
            return Vec::new();
        };
        let tree = self.walker.trees(&[own.pid]).unwrap_or_default();
        let numbers = tree.into_iter().map(|process| process.pid);
        numbers.filter(|&pid| pid != own.pid).collect()
    }
}
