//! Examines a data set: its size against the memory that can hold it, and what follows for later epochs.

use std::io;

use headspace_agent::analysis::working_set::{LaterEpochs, WorkingSet};
use headspace_agent::wording::units::{bytes, percent};
use headspace_agent::wording::working_set::{later_epochs, rate};
use headspace_collectors::data_set::{DataSet, measure};
use headspace_collectors::host::{CacheMemory, cache_memory};
use serde::Serialize;

use super::layout::Column;
use crate::args::DoctorArgs;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE};

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
        serde_json::to_string_pretty(&Output { data: examined })? + "\n"
    } else {
        examined.to_text()
    };
    context.out.write_all(text.as_bytes())?;
    Ok(EXIT_OK)
}

impl Examined {
    fn new(data: &DataSet, memory: Option<CacheMemory>) -> Self {
        let set = memory.map(|memory| WorkingSet {
            bytes: data.bytes as f64,
            memory_bytes: memory.bytes as f64,
            cold_bytes_per_s: data.cold_bytes_per_s,
            warm_bytes_per_s: data.warm_bytes_per_s,
        });
        Self {
            files: data.files,
            bytes: data.bytes,
            complete: data.complete,
            unreadable: data.unreadable,
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
            ("reads", self.reads()),
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
        format!("{least}{} {files}, {size}{unreadable}", self.files)
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

    fn reads(&self) -> Option<String> {
        let cold = (self.cold_bytes_per_s).map(|cold| format!("{} from storage", rate(cold)));
        let warm =
            (self.warm_bytes_per_s).map(|warm| format!("{} from the page cache", rate(warm)));
        let both: Vec<String> = cold.into_iter().chain(warm).collect();
        (!both.is_empty()).then(|| format!("{}, with one reader", both.join(", ")))
    }
}

fn cached(share: f64) -> String {
    format!("{} % of it is in the page cache", percent(100.0 * share, 0))
}
