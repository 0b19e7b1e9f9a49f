//! The verdict that rank 0 prints when it ends: on all ranks that write into its folder.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use headspace_exporters::run_folder::{RankFile, files, has_ended};

use crate::report::verdict_on_ranks;

/// The files of a run in bytes, up to which they are read when rank 0 ends. This takes less than a second.
const MAX_BYTES: u64 = 64 << 20;

/// The time between two looks at the ranks that have not ended.
const PAUSE: Duration = Duration::from_millis(20);

/// The verdict on all ranks, after they have ended, or at `deadline`. `None` if rank 0 is alone in its folder, if its own
/// last record is missing, and if the files are too large to be read when a program ends.
pub fn verdict_at_end(folder: &Path, deadline: Instant) -> Option<String> {
    let listed = files(folder).ok()?;
    let ranks: Vec<&RankFile> = listed.iter().filter(|file| file.is_active()).collect();
    let sizes = listed.iter().filter_map(|file| file.path.metadata().ok());
    if ranks.len() < 2 || sizes.map(|file| file.len()).sum::<u64>() > MAX_BYTES {
        return None;
    }
    let mut running = ranks;
    loop {
        running.retain(|file| !has_ended(&file.path));
        let left = deadline.saturating_duration_since(Instant::now());
        if running.is_empty() || left.is_zero() {
            break;
        }
        sleep(PAUSE.min(left));
    }
    if running.iter().any(|file| file.rank == 0) {
        return None;
    }
    let text = verdict_on_ranks(folder)?;
    Some(text.trim_end().to_owned())
}
