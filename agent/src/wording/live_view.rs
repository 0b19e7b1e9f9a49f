//! Texts of the live view in a terminal.

use super::units::duration_s;

/// Shown before the first step.
pub const NO_STEP: &str = "No step yet: waiting for the first batches.";

/// Shown while a run without stages and queues goes on.
pub const NO_STAGES: &str =
    "No stage or queue is declared: `headspace.stage` and `headspace.queue` show the pipeline.";

/// How a run begins.
pub const HOW_RUNS_BEGIN: &str =
    "It begins with the first batch of a script under `headspace run` or `wrap`.";

/// Shown until a run begins.
pub fn waiting_for_run(place: &str) -> String {
    format!("Waiting for a run in `{place}`.")
}

/// No record has come from a process for this long.
pub fn silent(seconds: f64) -> String {
    format!("silent for {}", duration_s(seconds.round()))
}

/// Ranks of which there are no records.
pub fn ranks_without_records(missing: usize, world_size: usize) -> String {
    format!("{missing} of {world_size} ranks have written no records here.")
}
