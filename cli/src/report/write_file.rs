//! Writes one run to a file: as a web page, as a trace, or its sampled stacks (`headspace report --html` and
//! others).

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use headspace_agent::wording::incomplete_runs::without_stacks;
use headspace_agent::wording::units::bytes;
use headspace_exporters::encode::perfetto::PerfettoTrace;
use headspace_exporters::encode::reader::Records;
use headspace_exporters::encode::stacks::RankStacks;
use headspace_exporters::encode::stacks::collapsed::collapsed;
use headspace_exporters::encode::stacks::speedscope::speedscope;
use headspace_exporters::run_folder::{Run, open_file};

use crate::args::ReportArgs;
use crate::find_runs::only;
use crate::page::PageState;
use crate::skipped_lines::tell_skipped;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// A format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Perfetto,
    Speedscope,
    Collapsed,
}

/// What to print: that the file was written, or why not.
type Written = Result<String, String>;

/// Writes the requested run, or else the newest.
pub(super) fn write(
    args: &ReportArgs,
    format: Format,
    file: &Path,
    context: &mut Context<'_>,
) -> io::Result<i32> {
    let option = match format {
        Format::Html => "--html",
        Format::Perfetto => "--perfetto",
        Format::Speedscope => "--speedscope",
        Format::Collapsed => "--collapsed",
    };
    let path = match only(&args.paths, &context.runs) {
        Ok(Ok(path)) => path,
        Ok(Err(error)) => return context.fail(error, EXIT_UNREADABLE),
        Err(count) => {
            let message = format!(
                "`{option}` needs exactly one run, but {count} were found (give one run folder)"
            );
            return context.fail(message, EXIT_USAGE);
        }
    };
    let written = if format == Format::Html {
        html(&path, file)
    } else {
        match Run::read(&path) {
            Ok(run) => {
                tell_skipped(&run, context)?;
                match format {
                    Format::Perfetto => perfetto(&run, file),
                    _ => stacks(&run, format, file),
                }
            }
            Err(error) => Err(error.to_string()),
        }
    };
    match written {
        Ok(line) => context.print_line(line).map(|()| EXIT_OK),
        Err(message) => context.fail(message, EXIT_UNREADABLE),
    }
}

fn html(path: &Path, file: &Path) -> Written {
    let run = PageState::read(path).map_err(|error| error.to_string())?;
    if run.is_empty() {
        return Err(no_record(run.place()));
    }
    let page = run.page().file();
    fs::write(file, &page).map_err(|error| cannot_write(file, error))?;
    Ok(format!("{} ({})", file.display(), bytes(page.len() as f64)))
}

fn perfetto(run: &Run, file: &Path) -> Written {
    if run.tally().records == 0 {
        return Err(no_record(&run.folder));
    }
    let size = trace(run, file).map_err(|error| cannot_write(file, error))?;
    let (place, size) = (file.display(), bytes(size as f64));
    Ok(format!(
        "{place} ({size}): open it at https://ui.perfetto.dev"
    ))
}

fn stacks(run: &Run, format: Format, file: &Path) -> Written {
    let has_several = run.ranks.len() > 1;
    let ranks = run.ranks.iter().filter_map(|rank| {
        Some(RankStacks {
            rank: has_several.then_some(rank.rank),
            stacks: rank.stacks.as_ref()?,
        })
    });
    let ranks: Vec<RankStacks<'_>> = ranks.collect();
    if ranks.is_empty() {
        return Err(without_stacks(&run.folder.display().to_string()));
    }
    let name = run.folder.file_name().unwrap_or_default().to_string_lossy();
    let (text, hint) = match format {
        Format::Speedscope => (
            speedscope(&name, &ranks).map_err(|error| cannot_write(file, error))?,
            ": open it at https://speedscope.app",
        ),
        _ => (collapsed(&ranks), ""),
    };
    fs::write(file, text).map_err(|error| cannot_write(file, error))?;
    Ok(format!("{}{hint}", file.display()))
}

fn no_record(run: &Path) -> String {
    format!("`{}` holds no record", run.display())
}

fn cannot_write(file: &Path, error: impl Display) -> String {
    format!("cannot write `{}`: {error}", file.display())
}

/// Reads the run's records again and writes them one by one. Returns the trace's size in bytes.
fn trace(run: &Run, file: &Path) -> io::Result<usize> {
    let mut out = BufWriter::new(File::create(file)?);
    let mut trace = PerfettoTrace::default();
    let mut size = 0;
    for path in run.ranks.iter().flat_map(|rank| &rank.files) {
        for record in Records::new(open_file(path)?) {
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
