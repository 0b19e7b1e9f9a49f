//! Texts of the web page's graphics: flame graphs, charts, and the bar of a step.

use super::units::{duration_ms, duration_s, percent};
use super::verdict::{line_gain_pct, line_gain_phrase, place_in_file};
use crate::model::record::{FrameRecord, LineRecord, SummaryRecord};

/// Shown for a run without steps.
pub const NO_STEPS: &str = "No step was taken.";

/// Title of the list of sources that are off.
pub const SOURCES_OFF: &str = "Sources that are off, and why";

/// Title of the chart of what takes CPU time from the program.
pub const CPU_CAUSES: &str = "What delays work on the CPU";

/// Shown instead of the charts if the browser runs no script.
pub const CHARTS_NEED_SCRIPTS: &str = "The charts need JavaScript.";

/// Name of the line of the cores that the run uses.
pub const CORES_OF_RUN: &str = "this run, its workers included";

/// Explains widths and colours of flame graphs.
pub fn flame_graph_legend(largest_gain_pct: f64) -> String {
    format!(
        "Width: share of the samples. Colour: gain in the step if the line took half its time, up to \
         {} %. Grey: no gain.",
        percent(largest_gain_pct, 0)
    )
}

/// The outermost calls of a flame graph that are drawn as one.
pub fn library_calls(count: usize) -> String {
    let calls = if count == 1 { "call" } else { "calls" };
    format!("{count} outer {calls} in libraries")
}

/// A call of a flame graph, in rows: its line, its share of the samples, what its threads do, and the gain of
/// the line that colours it.
pub fn call_rows(
    frame: &FrameRecord,
    (share, seconds): (f64, f64),
    does: Option<&str>,
    gain: Option<(&SummaryRecord, &LineRecord)>,
) -> Vec<String> {
    let mut rows = vec![
        format!("{}:{} {}", frame.file, frame.line, frame.function),
        format!(
            "{} % of the samples, {}",
            percent(100.0 * share, 1),
            duration_s(seconds)
        ),
    ];
    rows.extend(does.map(ToOwned::to_owned));
    rows.extend(gain.and_then(|(summary, line)| {
        let place = place_in_file(&line.file, line.line);
        let gain_pct = line_gain_pct(summary, line)?;
        Some(format!("{place} {}", line_gain_phrase(line, gain_pct)))
    }));
    rows
}

/// The bar of a step in words: `Step 30.0 ms: compute 10.0 ms, waiting for data 20.0 ms; floor 10.0 ms`.
pub fn step_bar(step_ms: f64, compute_ms: f64, wait_ms: f64, floor_ms: Option<f64>) -> String {
    let floor = floor_ms.map(|ms| format!("; {}", floor_mark(ms)));
    format!(
        "Step {}: compute {}, waiting for data {}{}",
        duration_ms(step_ms),
        duration_ms(compute_ms),
        duration_ms(wait_ms),
        floor.unwrap_or_default()
    )
}

/// The floor in a chart.
pub fn floor_mark(floor_ms: f64) -> String {
    format!("floor {}", duration_ms(floor_ms))
}
