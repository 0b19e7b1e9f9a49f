//! Lists the threads of this process, and parses the files of each in `/proc/self/task`.

use std::fs;
use std::path::{Path, PathBuf};

use headspace_agent::model::ThreadTimes;
use headspace_agent::port::CollectError;

use crate::procfs::{self, number, schedstat};

/// The folder of all threads.
#[derive(Debug)]
pub(super) struct Tasks {
    folder: PathBuf,
    buffer: Vec<u8>,
}

/// The values that are used from `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status<'a> {
    pub(super) name: &'a [u8],
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
}

impl Tasks {
    pub(super) fn with_root(root: &Path) -> Self {
        Self {
            folder: procfs::below(root, "/proc/self/task"),
            buffer: Vec::new(),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The ids of all threads, in no particular order.
    pub(super) fn list(&self) -> Result<Vec<i32>, CollectError> {
        let tid = |entry: fs::DirEntry| {
            let tid = number(entry.file_name().as_encoded_bytes())?;
            i32::try_from(tid).ok()
        };
        let threads = fs::read_dir(&self.folder).map_err(|error| {
            CollectError::Transient(format!("the threads cannot be listed: {error}"))
        })?;
        Ok(threads.flatten().filter_map(tid).collect())
    }

    pub(super) fn name(&mut self, tid: i32) -> Option<&[u8]> {
        let comm = self.read(tid, "comm")?;
        // A name may contain a newline; the last one ends it.
        comm.strip_suffix(b"\n")
    }

    pub(super) fn times(&mut self, tid: i32) -> Option<ThreadTimes> {
        schedstat::parse(self.read(tid, "schedstat")?)
    }

    pub(super) fn status(&mut self, tid: i32) -> Option<Status<'_>> {
        status(self.read(tid, "status")?)
    }

    fn read(&mut self, tid: i32, file: &str) -> Option<&[u8]> {
        let path = self.folder.join(tid.to_string()).join(file);
        procfs::read(&path, &mut self.buffer).ok()
    }
}

pub(super) fn status(file: &[u8]) -> Option<Status<'_>> {
    let count = |key| procfs::value(file, key).and_then(number);
    Some(Status {
        name: procfs::value(file, "Name")?,
        voluntary: count("voluntary_ctxt_switches")?,
        involuntary: count("nonvoluntary_ctxt_switches")?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATUS: &str = "Name:\tpt_data_pin\nUmask:\t0022\nState:\tS (sleeping)\n\
        voluntary_ctxt_switches:\t91\nnonvoluntary_ctxt_switches:\t25\n";

    #[test]
    fn both_kinds_of_switches_are_read_and_the_name() {
        let expected = Status {
            name: b"pt_data_pin",
            voluntary: 91,
            involuntary: 25,
        };
        assert_eq!(status(STATUS.as_bytes()), Some(expected));
    }

    proptest! {
        #[test]
        fn a_truncated_file_gives_nothing(cut: prop::sample::Index) {
            prop_assert_eq!(status(&STATUS.as_bytes()[..cut.index(STATUS.len())]), None);
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = status(&bytes);
        }
    }
}
