//! Aligned columns of plain text: several runs side by side, and the ranks of one.

use headspace_agent::analysis::verdict::units::{duration_ms, percent};
use headspace_agent::model::record::SummaryRecord;
use headspace_exporters::run_folder::RankRun;

use super::Reported;

/// Widest name of a run. Of a longer one the end is shown, which tells runs apart.
const MAX_NAME: usize = 32;

/// What stands where nothing was measured.
const NOTHING: &str = "-";

/// What marks a run that did not end in order.
const UNFINISHED: &str = " *";

const FOOTNOTE: &str =
    "* did not end in order: killed, or still running; numbers of its last summary\n";

/// One line a run.
pub(super) fn runs(several: &[Reported<'_>]) -> String {
    let head = [
        "run",
        "mode",
        "steps",
        "step",
        "waiting",
        "floor",
        "headspace",
        "samples/s",
    ];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    let mut unfinished = false;
    for one in several {
        let s = one.summary;
        let killed = one.main.unfinished_s().is_some();
        unfinished |= killed;
        rows.push(vec![
            shorten(&name(one)) + if killed { UNFINISHED } else { "" },
            s.mode.clone(),
            s.steps.to_string(),
            some(s.steady_step_mean_ms, duration_ms),
            some(s.wait_pct, |pct| format!("{} %", percent(pct, 0))),
            some(s.floor_step_ms, duration_ms),
            headspace(s),
            some(s.throughput_samples_per_s, |rate| format!("{rate:.1}")),
        ]);
    }
    let footnote = if unfinished { FOOTNOTE } else { "" };
    aligned(&rows, 2) + footnote
}

/// One line a rank.
pub(super) fn ranks(ranks: &[RankRun]) -> String {
    let head = ["rank", "steps", "step", "waiting", "floor", "headspace"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    let mut unfinished = false;
    for rank in ranks {
        let Some(s) = rank.last_summary() else {
            rows.push(vec![rank.rank.to_string(), "no summary".to_owned()]);
            continue;
        };
        let killed = rank.unfinished_s().is_some();
        unfinished |= killed;
        rows.push(vec![
            rank.rank.to_string() + if killed { UNFINISHED } else { "" },
            s.steps.to_string(),
            some(s.steady_step_mean_ms, duration_ms),
            some(s.wait_pct, |pct| format!("{} %", percent(pct, 0))),
            some(s.floor_step_ms, duration_ms),
            headspace(s),
        ]);
    }
    let footnote = if unfinished { FOOTNOTE } else { "" };
    aligned(&rows, 1) + footnote
}

/// Measured by a probe, or bounded, or neither.
fn headspace(s: &SummaryRecord) -> String {
    match (
        s.headspace_pct,
        s.headspace_ci_pct,
        s.headspace_upper_bound_pct,
    ) {
        (Some(pct), Some((low, high)), _) => {
            format!(
                "{} % ± {}",
                percent(pct, 1),
                percent((high - pct).max(pct - low), 1)
            )
        }
        (Some(pct), None, _) => format!("{} %", percent(pct, 1)),
        (None, _, Some(bound)) => format!("≤ {} %", percent(bound, 1)),
        (None, _, None) => NOTHING.to_owned(),
    }
}

fn some(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), show)
}

/// The name of the run's folder.
fn name(one: &Reported<'_>) -> String {
    match one.run.folder.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => one.record.run_id.clone(),
    }
}

fn shorten(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let length = name.chars().count();
    if length <= MAX_NAME {
        return name;
    }
    format!(
        "…{}",
        name.chars().skip(length + 1 - MAX_NAME).collect::<String>()
    )
}

/// Columns two spaces apart, the first `left` of them to the left and the others to the right.
fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width.saturating_sub(cell.chars().count()));
            if i > 0 {
                line.push_str("  ");
            }
            let (before, after) = if i < left {
                ("", room.as_str())
            } else {
                (room.as_str(), "")
            };
            line.push_str(before);
            line.push_str(cell);
            line.push_str(after);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_also_where_characters_are_more_than_one_byte() {
        let rows = [["run", "headspace"], ["a", "≤ 67.0 %"], ["longer", "-"]]
            .map(|row| row.map(ToOwned::to_owned).to_vec());

        assert_eq!(
            aligned(&rows, 1),
            "run     headspace\na        ≤ 67.0 %\nlonger          -\n"
        );
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = shorten(&format!("{}end", "x".repeat(100)));

        assert_eq!(name.chars().count(), MAX_NAME);
        assert!(name.starts_with('…') && name.ends_with("xend"));
    }

    #[test]
    fn an_upper_bound_is_marked_as_one() {
        let bound = SummaryRecord {
            headspace_upper_bound_pct: Some(67.0),
            ..SummaryRecord::default()
        };

        assert_eq!(headspace(&bound), "≤ 67.0 %");
        assert_eq!(headspace(&SummaryRecord::default()), "-");
    }
}
