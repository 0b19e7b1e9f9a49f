//! The data files that loading had open when its stacks were sampled.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::analysis::thresholds::stacks::{MAX_FILES, MAX_RECENT_LINES};
use crate::model::bounded::push_bounded;
use crate::model::record::DataFileRecord;

/// The data files of all readings.
#[derive(Debug, Clone, Default)]
pub(super) struct DataFiles {
    /// The last readings, in order.
    recent: VecDeque<OpenFiles>,
    /// When each file was open for the first time, in nanoseconds of the run's clock, in order.
    first: Vec<(Arc<str>, u64)>,
}

/// The data files that a process had open while it loaded data.
#[derive(Debug, Clone)]
pub struct OpenFiles {
    /// Nanoseconds of the run's clock.
    pub at_ns: u64,
    /// Their paths, each once.
    pub files: Vec<Arc<str>>,
}

impl DataFiles {
    /// Adds the files of a reading.
    pub(super) fn add(&mut self, at_ns: u64, files: Vec<Arc<str>>) {
        for file in &files {
            if self.first.len() < MAX_FILES && self.first.iter().all(|(known, _)| known != file) {
                self.first.push((Arc::clone(file), at_ns));
            }
        }
        push_bounded(
            &mut self.recent,
            OpenFiles { at_ns, files },
            MAX_RECENT_LINES,
        );
    }

    /// The last readings, in order.
    pub(super) fn recent(&self) -> impl Iterator<Item = &OpenFiles> {
        self.recent.iter()
    }

    /// The files, in the order in which they were first open.
    pub(super) fn records(&self) -> Vec<DataFileRecord> {
        let record = |(path, first_ns): &(Arc<str>, u64)| DataFileRecord {
            path: path.to_string(),
            first_s: *first_ns as f64 / 1e9,
        };
        self.first.iter().map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_from_the_first_reading_that_has_it_open() {
        let mut files = DataFiles::default();
        for second in 0..2_000 {
            let shard = format!("/data/{}", second / 10);
            files.add(
                second * 1_000_000_000,
                vec!["/data/index".into(), shard.into()],
            );
        }

        let records = files.records();
        let first: Vec<_> = (records.iter().take(3))
            .map(|file| (&*file.path, file.first_s))
            .collect();
        assert_eq!(
            first,
            [("/data/index", 0.0), ("/data/0", 0.0), ("/data/1", 10.0)]
        );
        assert_eq!(records.len(), MAX_FILES);
        assert_eq!(files.recent().count(), MAX_RECENT_LINES);
    }
}
