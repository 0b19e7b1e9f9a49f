//! Lays out a comparison as text for a terminal of 80 columns. Its sentences are in `wording/comparison.rs`.

use headspace_agent::model::comparison::{Change, ComparisonRecord, JudgedBy, SideRecord};
use headspace_agent::model::record::Estimate;
use headspace_agent::wording::comparison::{side_description, verdict_sentences};
use headspace_agent::wording::units::{duration_ms, signed, signed_range};

use headspace_exporters::encode::terminal_text::{keep_end, paragraph, table};

/// Widest line.
const COLUMNS: usize = 80;

/// Widest name of a stage or a setting.
const NAME: usize = 22;

/// Widest value of a setting.
const VALUE: usize = 24;

/// Widest path of a side.
const PATH: usize = 36;

/// Calls per batch are shown if they differ by more than this share of A.
const LEAST_CHANGE_OF_CALLS: f64 = 0.01;

/// Placeholder for values that were not measured.
const NOTHING: &str = "-";

/// The whole text.
pub(super) fn text(found: &ComparisonRecord) -> String {
    let mut text = String::from("headspace compare\n\n");
    text += &table(&[describe("A", &found.a), describe("B", &found.b)], 3);
    text.push('\n');
    text += &table(&numbers(found), 1);
    if !found.changed.is_empty() {
        text.push('\n');
        text += &settings(found);
    }
    text.push('\n');
    for sentence in verdict_sentences(found) {
        text += &paragraph("", &sentence, COLUMNS);
    }
    for note in &found.notes {
        text += &paragraph("note: ", note, COLUMNS);
    }
    text
}

/// The description of a side: `A`, `headspace-runs/a` and `640 steps in steady state, 19.2 s`.
fn describe(letter: &str, side: &SideRecord) -> Vec<String> {
    let path = keep_end(&side.path, PATH);
    vec![letter.to_owned(), path, side_description(side)]
}

/// The rows of the table.
fn numbers(found: &ComparisonRecord) -> Vec<Vec<String>> {
    let head = ["", "A", "B", "change", "95 % interval"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    rows.push(in_percent("step", &found.step_ms));
    let by = found.judged_by;
    if matches!(by, JudgedBy::Sample | JudgedBy::UndisturbedSample) {
        rows.push(in_percent("time per sample", &found.sample_ms));
    }
    if matches!(by, JudgedBy::UndisturbedStep | JudgedBy::UndisturbedSample) {
        rows.push(in_percent("  without core waits", &found.undisturbed_ms));
    }
    let parts = [
        ("  waiting for data", &found.wait_ms),
        ("  compute", &found.compute_ms),
    ];
    for (name, change) in parts {
        if change.a.is_some() || change.b.is_some() {
            rows.push(in_ms(name, change));
        }
    }
    for (name, change) in [
        ("median", &found.step_p50_ms),
        ("p95", &found.step_p95_ms),
        ("p99", &found.step_p99_ms),
    ] {
        rows.push(in_percent(&format!("  {name}"), change));
    }
    if found.floor_ms.a.is_some() || found.floor_ms.b.is_some() {
        rows.push(in_percent("floor", &found.floor_ms));
    }
    if !found.stages.is_empty() {
        rows.push(vec!["a call of the stage".to_owned()]);
    }
    for stage in &found.stages {
        rows.push(in_percent(
            &format!("  {}", keep_end(&stage.name, NAME - 2)),
            &stage.call_ms,
        ));
        let calls = stage.calls_per_batch;
        let moved = calls
            .a
            .zip(calls.b)
            .is_some_and(|(a, b)| (b / a - 1.0).abs() > LEAST_CHANGE_OF_CALLS);
        if moved {
            let shift = calls.difference_pct;
            let change = [shift.map(|shift| pct(shift.value)), shift.map(pct_range)];
            let count = |count: f64| format!("{count:.2}");
            rows.push(row("    calls a batch", &calls, count, change));
        }
    }
    rows
}

/// A row: the name, both values, and the change with its interval.
fn row(
    name: &str,
    change: &Change,
    show: impl Fn(f64) -> String,
    [shift, interval]: [Option<String>; 2],
) -> Vec<String> {
    let cells = [change.a.map(&show), change.b.map(&show), shift, interval];
    let cells = cells.map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned()));
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// A row with durations, and their change in percent.
fn in_percent(name: &str, change: &Change) -> Vec<String> {
    let interval = change.difference_pct;
    let shift = interval
        .map(|pct| pct.value)
        .or_else(|| Some(100.0 * (change.b? / change.a.filter(|a| *a > 0.0)? - 1.0)));
    let mut row = row(
        name,
        change,
        duration_ms,
        [shift.map(pct), interval.map(pct_range)],
    );
    if interval.is_none() {
        row.pop();
    }
    row
}

/// A row with durations, and their change in milliseconds.
fn in_ms(name: &str, change: &Change) -> Vec<String> {
    let difference = change.difference;
    let shift = difference.map(|d| format!("{} ms", signed(d.value, decimals(d))));
    let interval = difference.map(|d| format!("{} ms", signed_range(d, decimals(d))));
    row(name, change, duration_ms, [shift, interval])
}

fn pct(value: f64) -> String {
    format!("{} %", signed(value, 1))
}

fn pct_range(interval: Estimate) -> String {
    format!("{} %", signed_range(interval, 1))
}

/// The number of decimals with which half the interval has one significant digit.
fn decimals(d: Estimate) -> usize {
    match d.high - d.low {
        width if width >= 2.0 => 1,
        width if width >= 0.2 => 2,
        _ => 3,
    }
}

fn settings(found: &ComparisonRecord) -> String {
    let mut rows = vec![vec!["changed".to_owned(), "A".to_owned(), "B".to_owned()]];
    for change in &found.changed {
        let value = |value: &Option<String>| keep_end(value.as_deref().unwrap_or(NOTHING), VALUE);
        rows.push(vec![
            format!("  {}", keep_end(&change.name, NAME)),
            value(&change.a),
            value(&change.b),
        ]);
    }
    table(&rows, 3)
}
