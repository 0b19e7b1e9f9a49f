//! Runs `headspace report`, which prints the verdict of one run, a table of several runs, or JSON.

mod ranks;
mod table;
mod write_file;

use std::io;
use std::path::Path;

use headspace_agent::model::Record;
use headspace_agent::model::record::{RanksRecord, SummaryRecord};
use headspace_agent::wording::incomplete_runs::without_summary;
use headspace_agent::wording::ranks::sections;
use headspace_agent::wording::verdict::{Verdict, line_table};
use headspace_exporters::encode::verdict_text::{text as section_text, verdict_text};
use headspace_exporters::run_folder::{RankRun, Run};

use self::ranks::FoundRun;
use self::write_file::Format;
use crate::args::ReportArgs;
use crate::find_runs::{find, newest};
use crate::skipped_lines::tell_skipped;
use crate::whole_run::{main_rank, number_if_slowest, summary_of_run};
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, output};

/// A run with a summary to report.
struct Reported<'a> {
    found: &'a FoundRun,
    /// The rank that the verdict is about.
    main: &'a RankRun,
    record: &'a Record,
    summary: &'a SummaryRecord,
}

impl<'a> Reported<'a> {
    fn from_run(found: &'a FoundRun) -> Option<Self> {
        let main = main_rank(&found.run.ranks, found.ranks.as_ref())?;
        Some(Self {
            found,
            main,
            record: main.summary.as_ref()?,
            summary: main.last_summary()?,
        })
    }

    fn summary_of_run(&self) -> Option<Record> {
        summary_of_run(self.main, self.found.ranks.clone())
    }
}

/// Runs the command.
pub(crate) fn report(args: &ReportArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let files = [
        (Format::Html, &args.html),
        (Format::Perfetto, &args.perfetto),
        (Format::Speedscope, &args.speedscope),
        (Format::Collapsed, &args.collapsed),
    ];
    for (format, file) in files {
        if let Some(file) = file {
            return write_file::write(args, format, file, context);
        }
    }
    let mut code = EXIT_OK;
    let mut runs = Vec::new();
    let found: Vec<_> = match args.paths.as_slice() {
        [] => vec![vec![newest(&context.runs)]],
        paths => paths.iter().map(|path| find(path)).collect(),
    };
    // The number of requested runs determines the shape of the JSON, not the number of readable ones.
    let requested = found.iter().map(Vec::len).sum();
    for found in found {
        // A folder of runs needs one readable run; a run that was named must be readable.
        let mut answered = false;
        for run in found {
            match run.and_then(|path| Ok(FoundRun::read(&path)?)) {
                Ok(run) => {
                    tell_skipped(&run.run, context)?;
                    if Reported::from_run(&run).is_some() {
                        answered = true;
                        runs.push(run);
                    } else {
                        let tally = run.run.tally();
                        let path = run.path.display().to_string();
                        let why = without_summary(&path, tally.records, tally.skipped.total());
                        context.warn(why)?;
                    }
                }
                Err(error) => context.warn(error)?,
            }
        }
        if !answered {
            code = EXIT_UNREADABLE;
        }
    }
    let reported: Vec<Reported<'_>> = runs.iter().filter_map(Reported::from_run).collect();
    let text = if args.json {
        json(&reported, requested)?
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

/// The verdict, the table of lines, and what all ranks show together.
fn verdict(one: &Reported<'_>) -> String {
    let mut text = verdict_of_main_rank(one);
    if let Some(lines) = line_table(one.summary) {
        text.push('\n');
        text.push_str(&section_text(&[lines]));
    }
    if let Some(together) = &one.found.ranks {
        text.push_str(&text_of_ranks(&one.found.run, together));
    }
    text
}

/// The verdict of the slowest rank, or of the first one if none is slower.
fn verdict_of_main_rank(one: &Reported<'_>) -> String {
    let place = one.found.path.display().to_string();
    verdict_text(&Verdict {
        run: one.main.run.as_ref(),
        // The ticks are not needed: a summary names the main loop, unless the run had no loop.
        probe: one.main.main_probe(None),
        location: Some(&place),
        slowest_rank: number_if_slowest(one.main, one.found.ranks.as_ref()),
        unfinished_s: one.main.unfinished_s(),
        is_running: one.main.is_running(),
        ..Verdict::new(one.summary)
    })
}

/// The combined results of all ranks, and one line for each.
fn text_of_ranks(run: &Run, together: &RanksRecord) -> String {
    let combined = section_text(&sections(together));
    let table = table::ranks(&run.ranks, together);
    format!("\n{combined}\n{table}")
}

/// The verdict on a run of several ranks, without the table of lines. `None` if fewer than two ranks have a summary.
pub(crate) fn verdict_on_ranks(folder: &Path) -> Option<String> {
    let found = FoundRun::read(folder).ok()?;
    let together = found.ranks.as_ref().filter(|all| all.each.len() > 1)?;
    let verdict = verdict_of_main_rank(&Reported::from_run(&found)?);
    Some(verdict + &text_of_ranks(&found.run, together))
}

/// The summaries as JSON: an object if one run was requested, or else a list. The list may have one
/// element or none if some runs could not be read.
fn json(reported: &[Reported<'_>], requested: usize) -> io::Result<String> {
    let records: Vec<Record> = reported
        .iter()
        .filter_map(Reported::summary_of_run)
        .collect();
    let text = match records.as_slice() {
        _ if requested > 1 => output::json(&records)?,
        [one] => output::json(one)?,
        _ => String::new(),
    };
    Ok(text)
}
