//! The page: a run in the browser. `report --html` writes it as one file, `serve` shows it during the
//! run, and a notebook shows its facts.
//!
//! ```text
//! records ─▶ state (a run so far) ─▶ data (parts and charts) ─▶ document (one file, or served)
//!             └ history (bounded)     ├ static_parts (HTML, no script)
//!                                     └ charts (numbers)
//! ```
//!
//! Everything up to the data is a pure function of the records. The charting library is uPlot (MIT),
//! bundled with its licence. The page loads nothing from the network.

mod charts;
mod data;
mod document;
mod duration_chart;
mod flame_graph;
mod history;
mod html;
mod shown_readings;
mod state;
mod static_parts;

#[cfg(test)]
#[path = "../../benches/hour.rs"]
mod hour;

pub use self::charts::{Chart, Line, Mark};
pub use self::data::{Page, Part, PartId, RankCharts, RankUpdate, Update};
pub(crate) use self::document::ASSETS;
pub(crate) use self::html::Text;
pub use self::state::PageState;

use headspace_agent::wording::verdict::Verdict;

/// The facts of a run for a notebook cell: self-contained, without script, everything escaped.
pub fn notebook(verdict: Verdict<'_>) -> String {
    let facts = static_parts::Facts {
        verdict,
        has_summary: true,
        main_rank: 0,
        ranks: None,
        summaries: Vec::new(),
        stacks: None,
        notices: Vec::new(),
        trouble: None,
        skipped: None,
    };
    static_parts::notebook(&facts)
}
