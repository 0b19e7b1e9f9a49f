//! `headspace report`: one run as its verdict, several as a table, or either as JSON.

mod find;
mod table;

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use headspace_agent::analysis::verdict::Verdict;
use headspace_agent::model::Record;
use headspace_agent::model::record::SummaryRecord;
use headspace_exporters::encode::reader::Skipped;
use headspace_exporters::run_folder::{RankRun, Run};

use self::find::{FoundRun, find, newest};
use crate::args::ReportArgs;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE};

/// A run with a summary to report.
struct Reported<'a> {
    /// The folder or the file that was given or found.
    path: &'a Path,
    run: &'a Run,
    /// The first rank that has a summary.
    main: &'a RankRun,
    record: &'a Record,
    summary: &'a SummaryRecord,
}

impl<'a> Reported<'a> {
    fn of(found: &'a FoundRun) -> Option<Self> {
        let FoundRun { path, run } = found;
        let main = run
            .ranks
            .iter()
            .find(|rank| rank.last_summary().is_some())?;
        Some(Self {
            path,
            run,
            main,
            record: main.summary.as_ref()?,
            summary: main.last_summary()?,
        })
    }
}

/// Runs the command.
pub(crate) fn report(args: &ReportArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let mut code = EXIT_OK;
    let mut runs = Vec::new();
    let found: Vec<_> = if args.paths.is_empty() {
        vec![newest(&context.runs)]
    } else {
        args.paths.iter().map(|path| find(path)).collect()
    };
    // What is asked for decides the shape of the JSON, not what of it can be read.
    let asked = found.iter().map(Vec::len).sum();
    for found in found {
        // A folder of runs is answered when one of them is; a run that is named must be.
        let mut answered = false;
        for run in found {
            match run {
                Ok(run) => {
                    tell_skipped(&run.run, context)?;
                    if Reported::of(&run).is_some() {
                        answered = true;
                        runs.push(run);
                    } else {
                        writeln!(context.err, "headspace: {}", without_summary(&run))?;
                    }
                }
                Err(error) => writeln!(context.err, "headspace: {error}")?,
            }
        }
        if !answered {
            code = EXIT_UNREADABLE;
        }
    }
    let reported: Vec<Reported<'_>> = runs.iter().filter_map(Reported::of).collect();
    let text = if args.json {
        json(&reported, asked)?
    } else {
        text(&reported)
    };
    context.out.write_all(text.as_bytes())?;
    Ok(code)
}

fn text(reported: &[Reported<'_>]) -> String {
    match reported {
        [] => String::new(),
        [one] => verdict(one),
        several => table::runs(several),
    }
}

/// The verdict of the run's first rank, and a line for each rank where there are several.
fn verdict(one: &Reported<'_>) -> String {
    let place = one.path.display().to_string();
    let verdict = Verdict {
        run: one.main.run.as_ref(),
        probe: one.main.main_probe(),
        location: Some(&place),
        unfinished_s: one.main.unfinished_s(),
        ..Verdict::new(one.summary)
    };
    let mut text = verdict.to_string();
    if one.run.ranks.len() > 1 {
        text.push('\n');
        text.push_str(&table::ranks(&one.run.ranks));
    }
    text
}

/// The summaries as programs read them: an object where one run was asked for, else a list, also
/// when only one of the runs could be read, or none.
fn json(reported: &[Reported<'_>], asked: usize) -> io::Result<String> {
    let text = if asked > 1 {
        serde_json::to_string_pretty(&reported.iter().map(|one| one.record).collect::<Vec<_>>())?
    } else if let [one] = reported {
        serde_json::to_string_pretty(one.record)?
    } else {
        return Ok(String::new());
    };
    Ok(text + "\n")
}

fn without_summary(found: &FoundRun) -> String {
    let path = found.path.display();
    let tally = found.run.tally();
    match tally.records {
        0 if tally.skipped.total() == 0 => format!(
            "`{path}` holds no record: the run was killed before its first records were written, \
             or is just starting"
        ),
        0 => format!("`{path}`: no record in it. Is it the output of another program?"),
        records => format!(
            "`{path}` has no summary: its process ended before the first one was written, or it \
             has just begun ({records} record{} read)",
            if records == 1 { "" } else { "s" }
        ),
    }
}

/// Says which lines were passed over, and why.
fn tell_skipped(run: &Run, context: &mut Context<'_>) -> io::Result<()> {
    for rank in &run.ranks {
        let skipped = rank.tally.skipped;
        if skipped.total() > 0 {
            let place = rank.files.last().unwrap_or(&run.folder).display();
            writeln!(context.err, "headspace: `{place}`: {}", describe(skipped))?;
        }
    }
    Ok(())
}

fn describe(skipped: Skipped) -> String {
    let total = skipped.total();
    let mut text = format!("{total} line{} skipped:", if total == 1 { "" } else { "s" });
    let kinds = [
        (skipped.cut, "cut off"),
        (skipped.damaged, "damaged"),
        (skipped.foreign, "not records"),
        (skipped.other_schema, "of another version of the format"),
        (skipped.unknown_kind, "of a kind unknown to this version"),
    ];
    for (i, (count, what)) in kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .enumerate()
    {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(text, "{comma} {count} {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_lines_are_counted_by_what_is_wrong_with_them() {
        let skipped = Skipped {
            cut: 1,
            foreign: 2,
            ..Skipped::default()
        };

        assert_eq!(
            describe(skipped),
            "3 lines skipped: 1 cut off, 2 not records"
        );
    }
}
