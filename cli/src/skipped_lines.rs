//! Reports which lines of a run were skipped, and why.

use std::fmt::Write as _;
use std::io;

use headspace_exporters::encode::reader::Skipped;
use headspace_exporters::run_folder::Run;

use crate::Context;

/// Prints one line on stderr for each rank with skipped lines.
pub(crate) fn tell_skipped(run: &Run, context: &mut Context<'_>) -> io::Result<()> {
    for rank in &run.ranks {
        let skipped = rank.tally.skipped;
        if skipped.total() > 0 {
            let place = rank.files.last().unwrap_or(&run.folder).display();
            writeln!(context.err, "headspace: `{place}`: {}", describe(skipped))?;
        }
    }
    Ok(())
}

pub(crate) fn describe(skipped: Skipped) -> String {
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
    fn skipped_lines_are_counted_by_reason() {
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
