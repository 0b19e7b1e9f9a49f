//! Writes one run as a web page in one file (`headspace report --html`).

use std::fs;
use std::io;
use std::path::Path;

use headspace_agent::wording::units::bytes;

use crate::args::ReportArgs;
use crate::find_runs::only;
use crate::page::PageState;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// Writes the page of the requested run, or else of the newest.
pub(super) fn write(args: &ReportArgs, file: &Path, context: &mut Context<'_>) -> io::Result<i32> {
    let run = match only(&args.paths, &context.runs, &PageState::read) {
        Ok(Ok(run)) => run,
        Ok(Err(error)) => return context.fail(error, EXIT_UNREADABLE),
        Err(count) => {
            let message =
                format!("`--html` writes the page of one run, and {count} were named: name one");
            return context.fail(message, EXIT_USAGE);
        }
    };
    if run.is_empty() {
        let message = format!("`{}` holds no record", run.place().display());
        return context.fail(message, EXIT_UNREADABLE);
    }
    let page = run.page().file();
    let place = file.display();
    if let Err(error) = fs::write(file, &page) {
        let message = format!("cannot write `{place}`: {error}");
        return context.fail(message, EXIT_UNREADABLE);
    }
    writeln!(context.out, "{place} ({})", bytes(page.len() as f64))?;
    Ok(EXIT_OK)
}
