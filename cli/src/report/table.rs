//! Formats tables as plain text: several runs, and the ranks of one run.

use std::fmt::Write as _;

use headspace_agent::model::Mode;
use headspace_agent::model::record::{RanksRecord, SummaryRecord};
use headspace_agent::wording::incomplete_runs::{crashes_footnote, unfinished_footnote};
use headspace_agent::wording::ranks::{COLUMNS, cells};
use headspace_agent::wording::section::more_in_records;
use headspace_agent::wording::units::{duration_ms, percent};
use headspace_agent::wording::verdict::headspace_text;
use headspace_exporters::encode::terminal_text::{keep_end, table};
use headspace_exporters::run_folder::RankRun;

use super::Reported;
use super::ranks::SHOWN;

/// Widest name of a run. A longer name is cut at the front, because its end is the distinctive part.
const MAX_NAME: usize = 32;

/// Placeholder for values that were not measured.
const NOTHING: &str = "-";

/// Mark of a run whose end was not recorded, and of one that an exception ended.
const UNFINISHED: &str = " *";
const CRASHED: &str = " !";

/// The marks of a table, explained below it.
#[derive(Default)]
struct Marks {
    unfinished: bool,
    /// The runs that an exception ended, and the name of the exception.
    crashed: Vec<(String, String)>,
}

impl Marks {
    /// The mark of a line.
    fn mark(&mut self, name: &str, rank: &RankRun, summary: &SummaryRecord) -> &'static str {
        if rank.unfinished_s().is_some() {
            self.unfinished = true;
            return UNFINISHED;
        }
        match &summary.ended_by {
            Some(end) if end.is_crash() => {
                self.crashed.push((name.to_owned(), end.name.clone()));
                CRASHED
            }
            _ => "",
        }
    }

    fn footnotes(&self) -> String {
        let mut text = String::new();
        if self.unfinished {
            let _ = writeln!(text, "* {}", unfinished_footnote());
        }
        if !self.crashed.is_empty() {
            let _ = writeln!(text, "! {}", crashes_footnote(&self.crashed, MOST_CRASHES));
        }
        text
    }
}

/// Maximum number of runs ended by an exception that are listed.
const MOST_CRASHES: usize = 4;

/// Index of the column for the wait for other ranks, which is omitted if it is empty.
const OTHERS: usize = 5;

/// The table of runs, one line each.
pub(super) fn runs(several: &[Reported<'_>]) -> String {
    let names = "run,mode,steps,step,waiting,floor,headspace,samples/s";
    let mut rows = vec![names.split(',').map(ToOwned::to_owned).collect()];
    let mut marks = Marks::default();
    for one in several {
        let s = one.summary;
        let name = keep_end(&name(one), MAX_NAME);
        let mark = marks.mark(&name, one.main, s);
        rows.push(vec![
            name + mark,
            s.mode.map_or("", Mode::as_str).to_owned(),
            s.steps.to_string(),
            some(s.steady_step_mean_ms, duration_ms),
            some(s.wait_pct, |pct| format!("{} %", percent(pct, 0))),
            some(s.floor_step_ms, duration_ms),
            headspace_text(s).unwrap_or_else(|| NOTHING.to_owned()),
            some(s.throughput_samples_per_s, |rate| format!("{rate:.1}")),
        ]);
    }
    table(&rows, 2) + &marks.footnotes()
}

/// The table of ranks, one line each: the first 16 and the slowest one.
pub(super) fn ranks(ranks: &[RankRun], together: &RanksRecord) -> String {
    let mut rows = vec![COLUMNS.map(|column| column.name.to_owned()).to_vec()];
    let mut marks = Marks::default();
    let shown = |(at, rank): &(usize, &RankRun)| *at < SHOWN || Some(rank.rank) == together.slowest;
    for (_, rank) in ranks.iter().enumerate().filter(shown) {
        let place = together.each.binary_search_by_key(&rank.rank, |r| r.rank);
        let numbers = place.ok().and_then(|at| together.each.get(at));
        let Some((numbers, summary)) = numbers.zip(rank.last_summary()) else {
            rows.push(vec![rank.rank.to_string(), "no summary".to_owned()]);
            continue;
        };
        let mut row = cells(numbers, Some(summary));
        for cell in row.iter_mut().filter(|cell| cell.is_empty()) {
            NOTHING.clone_into(cell);
        }
        row[0] += marks.mark(&format!("rank {}", rank.rank), rank, summary);
        rows.push(row);
    }
    let more = ranks.len() + 1 - rows.len();
    if together.each.iter().all(|rank| rank.others_ms.is_none()) {
        for row in rows.iter_mut().filter(|row| row.len() > OTHERS) {
            row.remove(OTHERS);
        }
    }
    let mut text = table(&rows, 1);
    if more > 0 {
        let _ = writeln!(text, "{}", more_in_records(more));
    }
    text + &marks.footnotes()
}

fn some(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), show)
}

/// The name of the run's folder.
fn name(one: &Reported<'_>) -> String {
    match one.found.run.folder.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => one.record.run_id.clone(),
    }
}
