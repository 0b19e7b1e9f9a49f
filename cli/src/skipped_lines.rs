//! Reports which lines of a run were skipped, and why.

use std::io;

use headspace_exporters::encode::json_lines::LineError;
use headspace_exporters::encode::reader::Skipped;
use headspace_exporters::run_folder::Run;

use crate::Context;

/// Prints one line on stderr for each rank with skipped lines.
pub(crate) fn tell_skipped(run: &Run, context: &mut Context<'_>) -> io::Result<()> {
    for rank in &run.ranks {
        let skipped = rank.tally.skipped;
        if skipped.total() > 0 {
            let place = rank.files.last().unwrap_or(&run.folder).display();
            context.warn(format_args!("`{place}`: {}", describe(skipped)))?;
        }
    }
    Ok(())
}

pub(crate) fn describe(skipped: Skipped) -> String {
    let total = skipped.total();
    let text = format!("{total} line{} skipped:", if total == 1 { "" } else { "s" });
    let kinds = [
        (LineError::Cut, "cut off"),
        (LineError::Damaged, "damaged"),
        (LineError::Foreign, "not records"),
        (LineError::OtherSchema, "of another version of the format"),
        (LineError::UnknownKind, "of a kind unknown to this version"),
    ];
    let kinds = kinds
        .iter()
        .filter(|(reason, _)| skipped.count(*reason) > 0);
    let counts = kinds.map(|(reason, what)| format!(" {} {what}", skipped.count(*reason)));
    text + &counts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_lines_are_counted_by_reason() {
        let mut skipped = Skipped::default();
        for reason in [LineError::Cut, LineError::Foreign, LineError::Foreign] {
            skipped.add(reason);
        }

        assert_eq!(
            describe(skipped),
            "3 lines skipped: 1 cut off, 2 not records"
        );
    }
}
