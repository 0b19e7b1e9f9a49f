//! Examines a data set: its size against the memory that can hold it, and what follows for later epochs.

use std::io;

use headspace_agent::analysis::working_set::{LaterEpochs, WorkingSet};
use headspace_agent::wording::units::{bytes, percent};
use headspace_agent::wording::working_set::{later_epochs, rate};
use headspace_collectors::data_set::{DataSet, MIN_READ_BYTES, measure};
use headspace_collectors::host::{CacheMemory, cache_memory};
use serde::Serialize;

use super::layout::Column;
use crate::args::DoctorArgs;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, output};

/// A smaller share of holes is not named.
const MIN_NAMED_HOLES: f64 = 0.01;

/// The output of `--json`, whose format is stable.
#[derive(Debug, Serialize)]
struct Output {
    data: Examined,
}

/// A data set.
#[derive(Debug, Serialize)]
struct Examined {
    /// Number of distinct files.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Whether all files were found in time.
    complete: bool,
    /// Number of files and folders that could not be read.
    unreadable: u64,
    /// Share of their bytes that are holes of sparse files.
    hole_share: f64,
    /// Memory that can hold its pages, in bytes.
    memory_bytes: Option<u64>,
    /// Whether the limit of a control group is the reason that it is not more.
    limited_by_group: Option<bool>,
    /// Share of the data that is in the page cache.
    cached_share: Option<f64>,
    /// Bytes per second of one reader, from storage.
    cold_bytes_per_s: Option<f64>,
    /// The same from the page cache.
    warm_bytes_per_s: Option<f64>,
    /// What happens from the second epoch on.
    later_epochs: Option<LaterEpochs>,
}

/// Runs `doctor --data`.
pub(super) fn examine_data(args: &DoctorArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let data = measure(&args.data);
    if data.files == 0 {
        let paths: Vec<_> = args
            .data
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let message = format!("no file can be read at or below `{}`", paths.join("`, `"));
        return context.fail(message, EXIT_UNREADABLE);
    }
    let examined = Examined::new(&data, cache_memory("/"));
    let text = if args.json {
        output::json(&Output { data: examined })?
    } else {
        examined.to_text()
    };
    context.out.write_all(text.as_bytes())?;
    Ok(EXIT_OK)
}

impl Examined {
    fn new(data: &DataSet, memory: Option<CacheMemory>) -> Self {
        let set = memory.map(|memory| WorkingSet {
            files: data.files,
            bytes: data.bytes as f64,
            stored_share: 1.0 - data.hole_share,
            memory_bytes: memory.bytes as f64,
            cold_bytes_per_s: data.cold_bytes_per_s,
            warm_bytes_per_s: data.warm_bytes_per_s,
        });
        Self {
            files: data.files,
            bytes: data.bytes,
            complete: data.complete,
            unreadable: data.unreadable,
            hole_share: data.hole_share,
            memory_bytes: memory.map(|memory| memory.bytes),
            limited_by_group: memory.map(|memory| memory.limited_by_group),
            cached_share: data.cached_share,
            cold_bytes_per_s: data.cold_bytes_per_s,
            warm_bytes_per_s: data.warm_bytes_per_s,
            later_epochs: set.map(|set| set.later_epochs()),
        }
    }

    fn to_text(&self) -> String {
        let lines = [
            ("data set", Some(self.size())),
            ("memory", self.memory()),
            ("cached", self.cached_share.map(cached)),
            ("reads", Some(self.reads())),
            ("epochs", self.later_epochs.as_ref().map(later_epochs)),
        ];
        let column = Column::beside("data set".len());
        let mut text = String::new();
        for (name, words) in lines {
            if let Some(words) = words {
                column.write(&mut text, name, "", &words);
            }
        }
        text
    }

    fn size(&self) -> String {
        let least = if self.complete { "" } else { "at least " };
        let unreadable = match self.unreadable {
            0 => String::new(),
            1 => "; 1 file or folder cannot be read".to_owned(),
            count => format!("; {count} files or folders cannot be read"),
        };
        let size = bytes(self.bytes as f64);
        let files = if self.files == 1 { "file" } else { "files" };
        let holes = if self.hole_share < MIN_NAMED_HOLES {
            String::new()
        } else {
            let share = percent(100.0 * self.hole_share, 0);
            format!("; {share} % of it is holes of sparse files, which need memory but no storage")
        };
        format!("{least}{} {files}, {size}{holes}{unreadable}", self.files)
    }

    fn memory(&self) -> Option<String> {
        let limited = if self.limited_by_group? {
            ", by the limit of the control group"
        } else {
            ""
        };
        let size = bytes(self.memory_bytes? as f64);
        Some(format!(
            "{size} can hold its pages now{limited}; the training program also needs a part of it"
        ))
    }

    /// The rates, and why one is missing.
    fn reads(&self) -> String {
        let storage = |cold| format!("{} from storage", rate(cold));
        let cache = |warm| format!("{} from the page cache", rate(warm));
        match (self.cold_bytes_per_s, self.warm_bytes_per_s) {
            (Some(cold), Some(warm)) => {
                format!("{}, {}, with one reader", storage(cold), cache(warm))
            }
            (Some(cold), None) => format!(
                "{}, with one reader; not measured from the page cache, because too little of the data is in it",
                storage(cold)
            ),
            (None, Some(warm)) => format!(
                "{}, with one reader; not measured from storage, because too little of the stored data is outside of the page cache",
                cache(warm)
            ),
            (None, None) if self.bytes < MIN_READ_BYTES => {
                "not measured, because the data set is smaller than 4 MiB".to_owned()
            }
            (None, None) if self.cached_share.is_none() => "not measured, because no sampled file can be opened, or \
                because the kernel does not say what is in the page cache (Linux 6.5 and later does)"
                .to_owned(),
            (None, None) => "not measured, because too few parts without holes are entirely in the page cache or entirely outside of it"
                .to_owned(),
        }
    }
}

fn cached(share: f64) -> String {
    format!("{} % of it is in the page cache", percent(100.0 * share, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// What is printed of one file of 40 GiB, in one line.
    fn text(data: &DataSet) -> String {
        let data = DataSet {
            files: 1,
            bytes: 40 * GIB,
            complete: true,
            ..data.clone()
        };
        let memory = CacheMemory {
            bytes: 10 * GIB,
            limited_by_group: false,
        };
        let text = Examined::new(&data, Some(memory)).to_text();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_large_file_has_no_share_by_files_but_the_time_of_a_pass() {
        let text = text(&DataSet {
            cached_share: Some(0.0),
            cold_bytes_per_s: Some(GIB as f64 / 4.0),
            ..DataSet::default()
        });

        assert!(
            text.contains(
                "256 MiB/s from storage, with one reader; not measured from the page cache"
            ),
            "{text}"
        );
        assert!(text.contains("at least 75 % of the reads"), "{text}");
        assert!(
            text.ends_with("about 160 s for an epoch from the start to the end."),
            "{text}"
        );
    }

    #[test]
    fn of_a_sparse_file_the_holes_are_named_and_not_read_from_storage() {
        let text = text(&DataSet {
            hole_share: 0.75,
            ..DataSet::default()
        });

        assert!(text.contains("40.0 GiB; 75 % of it is holes"), "{text}");
        assert!(
            text.contains("25 % of it still comes from storage"),
            "{text}"
        );
    }

    #[test]
    fn rates_that_are_not_measured_have_a_reason() {
        let unmeasured = text(&DataSet {
            cached_share: Some(0.3),
            ..DataSet::default()
        });
        let unknown = text(&DataSet::default());

        assert!(
            unmeasured.contains("not measured, because too few parts without holes"),
            "{unmeasured}"
        );
        assert!(unknown.contains("the kernel does not say"), "{unknown}");
        assert!(!unknown.contains("One reader"), "{unknown}");
    }
}
