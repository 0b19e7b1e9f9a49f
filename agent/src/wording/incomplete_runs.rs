//! Texts about runs whose records lack their end, their summary, or their stacks.

/// Why the end of a run is not recorded.
pub const KILLED_OR_RUNNING: &str = "killed, or still running";

/// Footnote of a table for the runs whose end is not recorded.
pub fn unfinished_footnote() -> String {
    format!("no end recorded: {KILLED_OR_RUNNING}; the numbers are of its last summary")
}

/// Footnote of a table for the runs that an exception ended, each with the exception's name. Only the first
/// `most` runs are named.
pub fn crashes_footnote(crashes: &[(String, String)], most: usize) -> String {
    let named = crashes.iter().take(most);
    let mut named: Vec<String> = named
        .map(|(run, exception)| format!("{run} by {exception}"))
        .collect();
    if crashes.len() > most {
        named.push(format!("{} more", crashes.len() - most));
    }
    format!("ended by an uncaught exception: {}", named.join(", "))
}

/// Why there is no verdict of the run at `path`, which has `records` records and `skipped` other lines.
pub fn without_summary(path: &str, records: u64, skipped: u64) -> String {
    match records {
        0 if skipped == 0 => format!(
            "`{path}` holds no record: the run was killed before its first records were written, \
             or is just starting"
        ),
        0 => format!("`{path}`: no record in it. Is it the output of another program?"),
        count => {
            let causes = match skipped {
                0 => "or it has just begun",
                _ => "it has just begun, or its summary is among the skipped lines",
            };
            format!(
                "`{path}` has no summary: its process ended before the first one was written, {causes} ({} read)",
                super::units::records(count)
            )
        }
    }
}

/// Why the run at `path` has no stacks.
pub fn without_stacks(path: &str) -> String {
    format!(
        "`{path}` has no sampled stacks: they need a Python program that runs for some seconds, and a \
         `HEADSPACE_STACKS` that is not 0 (`headspace doctor` checks the source `stacks`)"
    )
}
