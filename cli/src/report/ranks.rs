//! Reads a run with all its ranks, and formats their combined results.

use std::path::{Path, PathBuf};

use headspace_agent::analysis::ranks::Ranks;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::record::RanksRecord;
use headspace_exporters::run_folder::{ReadError, ReadEvent, Run, files};

use crate::whole_run::{add_rank, combined_ranks};

/// Maximum number of ranks shown individually.
pub(super) const SHOWN: usize = 16;

/// A run and its path.
#[derive(Debug)]
pub(super) struct FoundRun {
    /// The folder or file that was named or found.
    pub(super) path: PathBuf,
    pub(super) run: Run,
    /// The combined results of its ranks, if a folder was named and the run has several ranks.
    pub(super) ranks: Option<RanksRecord>,
}

impl FoundRun {
    /// Reads a run's folder or one file of it. The ticks are processed only if there are several ranks
    /// to compare.
    pub(super) fn read(path: &Path) -> Result<Self, ReadError> {
        let listed = files(path).unwrap_or_default();
        let several = listed.windows(2).any(|pair| pair[0].rank != pair[1].rank);
        let mut ranks = Ranks::default();
        let mut series = TickSeries::default();
        let run = if several {
            Run::read_with(path, &mut |seen| match seen {
                ReadEvent::Tick(tick) => series.add_read(tick),
                ReadEvent::Rank(rank) => add_rank(&mut ranks, rank, &std::mem::take(&mut series)),
            })?
        } else {
            let run = Run::read(path)?;
            for rank in &run.ranks {
                add_rank(&mut ranks, rank, &series);
            }
            run
        };
        let ranks = combined_ranks(ranks, several);
        Ok(Self {
            path: path.to_path_buf(),
            run,
            // One file shows one rank, so missing ranks are not reported.
            ranks: ranks.filter(|_| path.is_dir()),
        })
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::record::RankCause;
    use headspace_agent::wording::ranks::sections;
    use headspace_exporters::encode::verdict_text::text;

    use super::*;

    /// Widest line, as in the verdict.
    const COLUMNS: usize = 100;

    #[test]
    fn the_combined_results_of_the_ranks_fit_the_width_of_the_verdict() {
        let ranks = RanksRecord {
            read: 7,
            world_size: Some(8),
            missing: vec![2],
            missing_count: 1,
            steps: Some((90, 100)),
            slowest: Some(3),
            cause: RankCause::Data,
            evidence: "It waits. ".repeat(30),
            ..RanksRecord::default()
        };

        let text = text(&sections(&ranks));

        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
        assert!(
            text.starts_with("ranks      7 of 8 read.\nslowest    Rank 3, because of its data.")
        );
        assert!(
            text.contains("\nmissing    No summary of rank 2.\n"),
            "{text}"
        );
        assert!(
            text.contains("\nsteps      The ranks took between 90 and 100 steps."),
            "{text}"
        );
    }
}
