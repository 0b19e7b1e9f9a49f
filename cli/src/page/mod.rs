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
pub use self::static_parts::notebook;
