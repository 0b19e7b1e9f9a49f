//! Reports which lines of a run were skipped, and why.

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
    let text = format!("{total} line{} skipped:", if total == 1 { "" } else { "s" });
    let kinds = [
        (skipped.cut, "cut off"),
        (skipped.damaged, "damaged"),
        (skipped.foreign, "not records"),
        (skipped.other_schema, "of another version of the format"),
        (skipped.unknown_kind, "of a kind unknown to this version"),
    ];
    let found = kinds.into_iter().filter(|(count, _)| *count > 0);
    let found: Vec<String> = found
        .map(|(count, what)| format!(" {count} {what}"))
        .collect();
    text + &found.join(",")
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
