//! `report --html`: one run as one file.

use std::fs;
use std::io;
use std::path::Path;

use headspace_agent::wording::units::bytes;

use crate::args::ReportArgs;
use crate::find_runs::only;
use crate::page::PageState;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// Writes the page of the run that was named, or else of the newest.
pub(super) fn write(args: &ReportArgs, file: &Path, context: &mut Context<'_>) -> io::Result<i32> {
    let run = match only(&args.paths, &context.runs, &PageState::read) {
        Ok(run) => run,
        Err(count) => {
            writeln!(
                context.err,
                "headspace: `--html` writes the page of one run, and {count} were named: name one"
            )?;
            return Ok(EXIT_USAGE);
        }
    };
    let page = match run {
        Ok(run) if run.is_empty() => {
            writeln!(
                context.err,
                "headspace: `{}` holds no record",
                run.place().display()
            )?;
            return Ok(EXIT_UNREADABLE);
        }
        Ok(run) => run.page().file(),
        Err(error) => {
            writeln!(context.err, "headspace: {error}")?;
            return Ok(EXIT_UNREADABLE);
        }
    };
    if let Err(error) = fs::write(file, &page) {
        let place = file.display();
        writeln!(context.err, "headspace: cannot write `{place}`: {error}")?;
        return Ok(EXIT_UNREADABLE);
    }
    writeln!(
        context.out,
        "{} ({})",
        file.display(),
        bytes(page.len() as f64)
    )?;
    Ok(EXIT_OK)
}
