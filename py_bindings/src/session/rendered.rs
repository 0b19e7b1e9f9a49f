//! The numbers and the verdict of a run as text, for Python.

use std::path::Path;

use headspace_agent::analysis::main_loop::main_probe;
use headspace_agent::model::record::{ProbeRecord, RunRecord, SummaryRecord};
use headspace_agent::wording::verdict::Verdict;
use headspace_exporters::encode::verdict_text::verdict_text;

/// The run's numbers as JSON, its verdict as text, and as HTML.
pub(crate) type Rendered = (String, String, String);

/// Renders the numbers and the verdict of this process.
pub(crate) fn render(
    run: &RunRecord,
    summary: &SummaryRecord,
    probes: &[ProbeRecord],
    folder: &Path,
) -> serde_json::Result<Rendered> {
    let json = serde_json::to_string(summary)?;
    let location = folder.display().to_string();
    let verdict = Verdict {
        run: Some(run),
        probe: main_probe(probes.iter(), summary.loop_name.as_deref()),
        location: Some(&location),
        ..Verdict::new(summary)
    };
    let text = verdict_text(&verdict).trim_end().to_owned();
    Ok((json, text, headspace::page::notebook(verdict)))
}
