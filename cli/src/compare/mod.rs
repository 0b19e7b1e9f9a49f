//! Runs `headspace compare`, which prints the differences between two sides of runs as text or JSON.

mod settings;
mod show;

use std::io;
use std::path::Path;

use headspace_agent::analysis::compare::{Measured, Side, compare as analyse};
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::comparison::{ComparisonRecord, Gate};
use headspace_agent::model::record::RunRecord;
use headspace_agent::wording::comparison::{comparison_record, not_judged, too_short_to_compare};
use headspace_exporters::run_folder::{ReadError, ReadEvent, Run};

use crate::args::CompareArgs;
use crate::find_runs::find;
use crate::skipped_lines::tell_skipped;
use crate::{Context, EXIT_OK, EXIT_SLOWER, EXIT_USAGE, output};

/// A run and its measured times.
struct Read {
    run: Run,
    measured: Measured,
}

impl Read {
    fn at(path: &Path) -> Result<Self, ReadError> {
        let mut measured = Measured::default();
        let mut series = TickSeries::default();
        let run = Run::read_with(path, &mut |seen| match seen {
            ReadEvent::Tick(tick) => series.add_read(tick),
            ReadEvent::Rank(rank) => {
                measured.add_rank(rank.last_summary(), &std::mem::take(&mut series));
            }
        })?;
        measured.run_id = run
            .ranks
            .iter()
            .find_map(|rank| Some(rank.summary.as_ref()?.run_id.clone()))
            .or_else(|| Some(run.folder.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_else(|| path.display().to_string());
        Ok(Self { run, measured })
    }
}

/// The `run` record of each run that has one.
fn run_records(runs: &[Read]) -> Vec<RunRecord> {
    let record = |read: &Read| read.run.ranks.iter().find_map(|rank| rank.run.clone());
    runs.iter().filter_map(record).collect()
}

/// Runs the command.
pub(crate) fn compare(args: &CompareArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let (a, b) = (side(&args.a, context)?, side(&args.b, context)?);
    let (Some(a), Some(b)) = (a, b) else {
        return Ok(EXIT_USAGE);
    };
    let of = |path: &Path, runs: &[Read]| Side {
        path: path.display().to_string(),
        runs: runs.iter().map(|read| read.measured.clone()).collect(),
    };
    let (side_a, side_b) = (of(&args.a, &a), of(&args.b, &b));
    let mut found = comparison_record(analyse(&side_a, &side_b, args.fail_if_slower));
    found.changed = settings::changed(&run_records(&a), &run_records(&b));
    let text = if args.json {
        output::json(&found)?
    } else {
        show::text(&found)
    };
    let code = exit_code(&found);
    let written = context.out.write_all(text.as_bytes());
    match written.and_then(|()| context.out.flush()) {
        // Whether B is slower does not depend on whether the output is read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => return context.fail(format!("cannot print: {error}"), EXIT_USAGE),
        Ok(()) => {}
    }
    if code == EXIT_USAGE {
        return context.fail(not_judged(&found), code);
    }
    Ok(code)
}

fn exit_code(found: &ComparisonRecord) -> i32 {
    match found.gate {
        Some(Gate::Failed) => EXIT_SLOWER,
        Some(Gate::Unknown) => EXIT_USAGE,
        Some(Gate::Passed | Gate::Open) | None => EXIT_OK,
    }
}

/// The runs at `path` that have steps to compare. `None` if there are none, which is then already
/// reported.
fn side(path: &Path, context: &mut Context<'_>) -> io::Result<Option<Vec<Read>>> {
    let mut runs = Vec::new();
    for run in find(path) {
        match run.and_then(|path| Ok(Read::at(&path)?)) {
            Ok(read) => {
                tell_skipped(&read.run, context)?;
                if read.measured.has_steps() {
                    runs.push(read);
                } else {
                    let reason = too_short_to_compare(&read.run.folder.display().to_string());
                    context.warn(reason)?;
                }
            }
            Err(error) => context.warn(error)?,
        }
    }
    Ok((!runs.is_empty()).then_some(runs))
}
