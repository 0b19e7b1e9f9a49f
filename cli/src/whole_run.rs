//! The rules about a run with all its ranks, shared by `report` and the page.

use headspace_agent::analysis::ranks::Ranks;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::record::RanksRecord;
use headspace_agent::model::{Record, RecordBody};
use headspace_agent::wording::ranks::ranks_record;
use headspace_exporters::run_folder::RankRun;

/// The rank that the verdict is about: the slowest one, or the first one that has a summary if none is slower.
pub(crate) fn main_rank<'a>(
    ranks: impl IntoIterator<Item = &'a RankRun>,
    combined: Option<&RanksRecord>,
) -> Option<&'a RankRun> {
    let slowest = combined.and_then(|combined| combined.slowest);
    let with_summary = ranks
        .into_iter()
        .filter(|rank| rank.last_summary().is_some());
    with_summary.min_by_key(|rank| Some(rank.rank) != slowest)
}

/// The number of this rank if it is the slowest one.
pub(crate) fn number_if_slowest(rank: &RankRun, combined: Option<&RanksRecord>) -> Option<u32> {
    combined?.slowest.filter(|slowest| *slowest == rank.rank)
}

/// Adds a rank to the combined results. `series` may be empty if there are no other ranks to compare with.
pub(crate) fn add_rank(ranks: &mut Ranks, rank: &RankRun, series: &TickSeries) {
    let world_size = rank.run.as_ref().map(|run| run.world_size);
    ranks.add(rank.rank, world_size, rank.last_summary(), series);
}

/// The combined results of all ranks. `None` if the run has one rank (`several` is false) and no rank is
/// missing.
pub(crate) fn combined_ranks(ranks: Ranks, several: bool) -> Option<RanksRecord> {
    let combined = ranks.finish().map(ranks_record);
    combined.filter(|ranks| several || ranks.missing_count > 0)
}

/// The last summary of the main rank with the combined results of all ranks, as `report --json` prints it.
/// `None` if the rank has no summary.
pub(crate) fn summary_of_run(main: &RankRun, ranks: Option<RanksRecord>) -> Option<Record> {
    let mut record = main.summary.clone()?;
    if let RecordBody::Summary(summary) = &mut record.body {
        summary.ranks = ranks.map(Box::new);
    }
    Some(record)
}
