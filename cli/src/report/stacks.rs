//! Writes the sampled stacks of one run (`headspace report --speedscope`, `--collapsed`).

use std::io;
use std::path::Path;

use headspace_agent::wording::incomplete_runs::without_stacks;
use headspace_exporters::encode::stacks::RankStacks;
use headspace_exporters::encode::stacks::collapsed::collapsed;
use headspace_exporters::encode::stacks::speedscope::speedscope;
use headspace_exporters::run_folder::Run;

use super::ranks::FoundRun;
use crate::args::ReportArgs;
use crate::find_runs::only;
use crate::skipped_lines::tell_skipped;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// A format of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Speedscope,
    Collapsed,
}

impl Format {
    fn option(self) -> &'static str {
        match self {
            Self::Speedscope => "--speedscope",
            Self::Collapsed => "--collapsed",
        }
    }
}

/// Writes the stacks of the requested run, or else of the newest.
pub(super) fn write(
    args: &ReportArgs,
    format: Format,
    file: &Path,
    context: &mut Context<'_>,
) -> io::Result<i32> {
    let run = match only(&args.paths, &context.runs, &FoundRun::read) {
        Ok(Ok(found)) => found.run,
        Ok(Err(error)) => return context.fail(error, EXIT_UNREADABLE),
        Err(count) => {
            let option = format.option();
            let message = format!(
                "`{option}` writes the stacks of one run, and {count} were named: name one"
            );
            return context.fail(message, EXIT_USAGE);
        }
    };
    tell_skipped(&run, context)?;
    let ranks = ranks(&run);
    if ranks.is_empty() {
        let message = without_stacks(&run.folder.display().to_string());
        return context.fail(message, EXIT_UNREADABLE);
    }
    let name = run.folder.file_name().unwrap_or_default().to_string_lossy();
    let text = match format {
        Format::Speedscope => speedscope(&name, &ranks)?,
        Format::Collapsed => collapsed(&ranks),
    };
    let place = file.display();
    if let Err(error) = std::fs::write(file, text) {
        let message = format!("cannot write `{place}`: {error}");
        return context.fail(message, EXIT_UNREADABLE);
    }
    match format {
        Format::Speedscope => writeln!(context.out, "{place}: open it at https://speedscope.app")?,
        Format::Collapsed => writeln!(context.out, "{place}")?,
    }
    Ok(EXIT_OK)
}

/// The stacks of each rank that has some.
fn ranks(run: &Run) -> Vec<RankStacks<'_>> {
    let has_several = run.ranks.len() > 1;
    let ranks = run.ranks.iter().filter_map(|rank| {
        Some(RankStacks {
            rank: has_several.then_some(rank.rank),
            stacks: rank.stacks.as_ref()?,
        })
    });
    ranks.collect()
}
