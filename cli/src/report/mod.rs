//! `headspace report`: one run as its verdict, several as a table, or either as JSON.

mod find;
mod table;

use std::fmt::Write as _;
use std::io;

use headspace_agent::analysis::verdict::Verdict;
use headspace_agent::model::Record;
use headspace_agent::model::record::SummaryRecord;
use headspace_exporters::encode::reader::Skipped;
use headspace_exporters::run_folder::{RankRun, Run};

use self::find::{find, newest};
use crate::args::ReportArgs;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE};

/// A run with a summary to report.
struct Reported<'a> {
    run: &'a Run,
    /// The first rank that has a summary.
    main: &'a RankRun,
    record: &'a Record,
    summary: &'a SummaryRecord,
}

impl<'a> Reported<'a> {
    fn of(run: &'a Run) -> Option<Self> {
        let main = run
            .ranks
            .iter()
            .find(|rank| rank.last_summary().is_some())?;
        Some(Self {
            run,
            main,
            record: main.summary.as_ref()?,
            summary: main.last_summary()?,
        })
    }

    /// The run's folder as it was given or found.
    fn place(&self) -> String {
        self.run.folder.display().to_string()
    }
}

/// Runs the command.
pub(crate) fn report(args: &ReportArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let mut code = EXIT_OK;
    let mut runs = Vec::new();
    let found = if args.paths.is_empty() {
        vec![newest(&context.runs)]
    } else {
        args.paths.iter().map(|path| find(path)).collect()
    };
    for found in found {
        // A folder of runs is answered when one of them is; a run that is named must be.
        let mut answered = false;
        for run in found {
            match run {
                Ok(run) => {
                    tell_skipped(&run, context)?;
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
        json(&reported)?
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
    let place = one.place();
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

/// The summaries as programs read them.
fn json(reported: &[Reported<'_>]) -> io::Result<String> {
    let text = match reported {
        [] => return Ok(String::new()),
        [one] => serde_json::to_string_pretty(one.record)?,
        several => {
            serde_json::to_string_pretty(&several.iter().map(|one| one.record).collect::<Vec<_>>())?
        }
    };
    Ok(text + "\n")
}

fn without_summary(run: &Run) -> String {
    let folder = run.folder.display();
    let tally = run.tally();
    if tally.records == 0 {
        return format!("`{folder}`: no record in it. Is it the output of another program?");
    }
    format!(
        "`{folder}` has no summary: its process ended before the first one was written, or it has \
         just begun ({} records read)",
        tally.records
    )
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
