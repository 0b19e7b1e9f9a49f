//! Writes one run as a trace (`headspace report --perfetto`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use headspace_agent::wording::units::bytes;
use headspace_exporters::encode::json_lines::Kind;
use headspace_exporters::encode::perfetto::PerfettoTrace;
use headspace_exporters::encode::reader::Records;
use headspace_exporters::run_folder::Run;

use super::ranks::FoundRun;
use crate::args::ReportArgs;
use crate::find_runs::only;
use crate::skipped_lines::tell_skipped;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// Writes the trace of the requested run, or else of the newest.
pub(super) fn write(args: &ReportArgs, file: &Path, context: &mut Context<'_>) -> io::Result<i32> {
    let run = match only(&args.paths, &context.runs, &FoundRun::read) {
        Ok(Ok(found)) => found.run,
        Ok(Err(error)) => return context.fail(error, EXIT_UNREADABLE),
        Err(count) => {
            let message = format!(
                "`--perfetto` writes the trace of one run, and {count} were named: name one"
            );
            return context.fail(message, EXIT_USAGE);
        }
    };
    tell_skipped(&run, context)?;
    if run.tally().records == 0 {
        let message = format!("`{}` holds no record", run.folder.display());
        return context.fail(message, EXIT_UNREADABLE);
    }
    let place = file.display();
    match trace(&run, file) {
        Ok(size) => {
            writeln!(
                context.out,
                "{place} ({}): open it at https://ui.perfetto.dev",
                bytes(size as f64)
            )?;
            Ok(EXIT_OK)
        }
        Err(error) => {
            let message = format!("cannot write `{place}`: {error}");
            context.fail(message, EXIT_UNREADABLE)
        }
    }
}

/// Reads the run's records again and writes them one by one. Returns the trace's size in bytes.
fn trace(run: &Run, file: &Path) -> io::Result<usize> {
    let mut out = BufWriter::new(File::create(file)?);
    let mut trace = PerfettoTrace::default();
    let mut size = 0;
    for path in run.ranks.iter().flat_map(|rank| &rank.files) {
        for record in Records::new(File::open(path)?, Kind::ALL) {
            let bytes = trace.add_record(&record?);
            size += bytes.len();
            out.write_all(&bytes)?;
        }
    }
    let rest = trace.finish();
    out.write_all(&rest)?;
    out.flush()?;
    Ok(size + rest.len())
}
