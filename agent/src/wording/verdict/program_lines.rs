//! The sections about lines of the program: where to make the code faster, who holds the interpreter lock, and
//! which work a stage does.

use super::super::section::{Block, Column, Entry, Row, Section, SectionId, Table};
use super::super::units::{duration_ms, percent};
use super::Detail;
use crate::model::record::{
    COMPUTE, GilHolderRecord, LineKind, LineRecord, Resource, StageWorkRecord, SummaryRecord, Work,
};
use crate::model::stack::WaitFor;

const LINE: Column = Column::new("line", "File and number of the line");
const FUNCTION: Column = Column::new("function", "Function that contains the line");
const PLACE: Column = Column::new("in", "Stage whose calls contain the line, or compute");
const SHARE: Column = Column::new(
    "share",
    "Share of the time of the stage's calls, or of compute",
);
const DOES: Column = Column::new("does", "What its threads did most of that time");
const HALF: Column = Column::new(
    "step at half",
    "Predicted step if the line took half its time",
);
const GAIN: Column = Column::new("gain", "Predicted gain in the step");
const HELD: Column = Column::new(
    "holds GIL",
    "Share of the time in which it held the interpreter lock",
);

/// In brief: the best line, and where they explain the bottleneck, the holder of the interpreter lock and the
/// work of the stage. In full: tables of all lines and holders, and the work of all stages.
pub(super) fn sections(summary: &SummaryRecord, detail: Detail) -> Vec<Section> {
    let bottleneck = summary.bottleneck_stage.as_deref();
    let all = match detail {
        Detail::Brief => [
            best_line(summary),
            holder(summary),
            work(summary, |stage| Some(stage) == bottleneck),
        ],
        Detail::Full => [
            line_table(summary),
            holder_table(summary),
            work(summary, |_| true),
        ],
    };
    all.into_iter().flatten().collect()
}

/// The table of lines. `None` without any.
pub fn line_table(summary: &SummaryRecord) -> Option<Section> {
    let row = |line: &LineRecord| {
        Row::new(vec![
            place_in_file(&line.file, line.line),
            line.place().to_owned(),
            format!("{} %", percent(line.share_pct, 0)),
            duration_ms(line.predicted_step_ms),
            line_gain_pct(summary, line)
                .map_or_else(String::new, |pct| format!("−{} %", percent(pct, 0))),
            does(line.kind, line.waits_for).to_owned(),
            line.function.clone(),
        ])
    };
    table(
        SectionId::Lines,
        vec![LINE, PLACE, SHARE, HALF, GAIN, DOES, FUNCTION],
        summary.lines.iter().map(row).collect(),
    )
}

fn holder_table(summary: &SummaryRecord) -> Option<Section> {
    let row = |holder: &GilHolderRecord| {
        Row::new(vec![
            place_in_file(&holder.file, holder.line),
            holder.function.clone(),
            holder_place(holder).to_owned(),
            format!("{} %", percent(holder.share_pct, 0)),
        ])
    };
    table(
        SectionId::Gil,
        vec![LINE, FUNCTION, PLACE, HELD],
        summary.gil_holders.iter().map(row).collect(),
    )
}

fn table(id: SectionId, columns: Vec<Column>, rows: Vec<Row>) -> Option<Section> {
    let table = Table {
        columns,
        rows,
        more: 0,
    };
    (!table.rows.is_empty()).then(|| Section::new(id, Block::Table(table)))
}

/// The line with the largest gain.
fn best_line(summary: &SummaryRecord) -> Option<Section> {
    let line = summary.lines.first()?;
    let gain = line_gain_pct(summary, line)?;
    let waits = match line.kind {
        LineKind::Wait => format!(" ({})", does(line.kind, line.waits_for)),
        LineKind::Python | LineKind::Native => String::new(),
    };
    let text = format!(
        "`{}` {}: {} % of {}{waits}; {}",
        place_in_file(&line.file, line.line),
        line.function,
        percent(line.share_pct, 0),
        line.place(),
        line_gain_phrase(line, gain),
    );
    Some(Section::sentence(SectionId::Lines, text))
}

/// The step if the line took half its time: `twice as fast gives 61.0 ms (−18 %)`.
pub fn line_gain_phrase(line: &LineRecord, gain_pct: f64) -> String {
    let step = duration_ms(line.predicted_step_ms);
    format!("twice as fast gives {step} (−{} %)", percent(gain_pct, 0))
}

/// Gain of a line, in percent of the step.
pub fn line_gain_pct(summary: &SummaryRecord, line: &LineRecord) -> Option<f64> {
    let step_ms = summary.steady_step_mean_ms?;
    Some(100.0 * (1.0 - line.predicted_step_ms / step_ms))
}

/// The line that holds the interpreter lock most, if that lock is the bottleneck.
fn holder(summary: &SummaryRecord) -> Option<Section> {
    let found = summary.bottleneck.as_ref()?;
    let holder = summary.gil_holders.first()?;
    (found.resource() == Some(Resource::Gil)).then(|| {
        let text = format!(
            "`{}` {} ({}) holds the GIL {} % of the time",
            place_in_file(&holder.file, holder.line),
            holder.function,
            holder_place(holder),
            percent(holder.share_pct, 0),
        );
        Section::sentence(SectionId::Gil, text)
    })
}

fn holder_place(holder: &GilHolderRecord) -> &str {
    match &holder.stage {
        Some(stage) => stage,
        None if holder.in_loop => COMPUTE,
        None => "another thread",
    }
}

/// The kinds of work of the stages whose name `is_shown` accepts.
fn work(summary: &SummaryRecord, is_shown: impl Fn(&str) -> bool) -> Option<Section> {
    let records: Vec<&StageWorkRecord> = (summary.stage_work.iter())
        .filter(|record| is_shown(&record.stage))
        .collect();
    let entries = records.chunk_by(|a, b| a.stage == b.stage).map(|parts| {
        let parts_text: Vec<String> = (parts.iter())
            .map(|part| format!("{} {} %", work_name(part.work), percent(part.share_pct, 0)))
            .collect();
        Entry::new(&*parts[0].stage, parts_text.join(", "))
    });
    let entries: Vec<Entry> = entries.collect();
    (!entries.is_empty()).then(|| Section::new(SectionId::Work, Block::Entries(entries)))
}

fn work_name(work: Work) -> &'static str {
    match work {
        Work::Reading => "reading",
        Work::Decoding => "decoding",
        Work::Transforming => "transforming",
        Work::Collating => "collating",
        Work::HandingOver => "transfer",
        Work::Other => "other",
    }
}

/// What threads do in a line, in a few words.
pub fn does(kind: LineKind, waits_for: Option<WaitFor>) -> &'static str {
    match (kind, waits_for) {
        (LineKind::Python, _) => "runs Python",
        (LineKind::Native, _) => "runs native code",
        (LineKind::Wait, Some(WaitFor::Core)) => "waits for a core",
        (LineKind::Wait, Some(WaitFor::InterpreterLock)) => "waits for the GIL",
        (LineKind::Wait, Some(WaitFor::SharedLock)) => "waits for a shared lock",
        (LineKind::Wait, Some(WaitFor::ThreadLock)) => "waits for a lock that several threads use",
        (LineKind::Wait, Some(WaitFor::Lock)) => "waits for a lock",
        (LineKind::Wait, Some(WaitFor::File)) => "waits for a file",
        (LineKind::Wait, Some(WaitFor::Connection)) => "waits for a pipe or socket",
        (LineKind::Wait, Some(WaitFor::Timer)) => "sleeps",
        (LineKind::Wait, Some(WaitFor::Process)) => "waits for a process",
        (LineKind::Wait, Some(WaitFor::Other) | None) => "waits",
    }
}

/// Name of the file and number of the line.
pub fn place_in_file(file: &str, line: u32) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("{name}:{line}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{BottleneckKind, BottleneckRecord};

    fn line() -> LineRecord {
        LineRecord {
            stage: Some("fetch".to_owned()),
            file: "/home/me/transforms.py".to_owned(),
            line: 41,
            function: "resize".to_owned(),
            share_pct: 38.2,
            predicted_step_ms: 61.0,
            ..LineRecord::default()
        }
    }

    fn summary(lines: Vec<LineRecord>) -> SummaryRecord {
        SummaryRecord {
            steady_step_mean_ms: Some(74.0),
            lines,
            ..SummaryRecord::default()
        }
    }

    fn sentence(section: &Section) -> &str {
        match &section.blocks[..] {
            [Block::Sentence(text)] => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_best_line_says_its_share_and_its_gain() {
        let sections = sections(&summary(vec![line()]), Detail::Brief);
        assert_eq!(
            sentence(&sections[0]),
            "`transforms.py:41` resize: 38 % of fetch; twice as fast gives 61.0 ms (−18 %)"
        );
    }

    #[test]
    fn a_waiting_line_of_the_loop_says_for_what_it_waits() {
        let waiting = LineRecord {
            stage: None,
            kind: LineKind::Wait,
            waits_for: Some(WaitFor::File),
            ..line()
        };
        let sections = sections(&summary(vec![waiting]), Detail::Brief);
        assert!(sentence(&sections[0]).contains("38 % of compute (waits for a file);"));
    }

    #[test]
    fn the_holder_of_the_interpreter_lock_is_named_where_that_lock_binds() {
        let mut summary = summary(Vec::new());
        summary.gil_holders = vec![GilHolderRecord {
            stage: Some("parse".to_owned()),
            file: "data.py".to_owned(),
            line: 7,
            function: "load".to_owned(),
            share_pct: 81.0,
            in_loop: false,
        }];
        assert!(sections(&summary, Detail::Brief).is_empty());
        summary.bottleneck = Some(BottleneckRecord {
            kind: BottleneckKind::Resource,
            name: Some("gil".to_owned()),
            ..BottleneckRecord::default()
        });
        let sections = sections(&summary, Detail::Brief);
        assert_eq!(
            sentence(&sections[0]),
            "`data.py:7` load (parse) holds the GIL 81 % of the time"
        );
    }
}
