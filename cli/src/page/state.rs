//! Stores the state of a run so far, from its records, and makes the page from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headspace_agent::analysis::ranks::Ranks;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::record::{ProbeRecord, RanksRecord, SummaryRecord};
use headspace_agent::model::{Record, RecordBody};
use headspace_agent::wording::verdict::Verdict;
use headspace_exporters::run_folder::{Follower, RankRun, ReadError};

use super::charts::Drawn;
use super::data::{Page, RankCharts};
use super::history::History;
use super::static_parts::Facts;
use crate::skipped_lines::describe;
use crate::whole_run::{add_rank, combined_ranks, main_rank, number_if_slowest, summary_of_run};

/// Maximum number of ranks with charts: the first ones. The table has more.
const MOST_DRAWN: usize = 16;

/// Points per rank if there are few ranks.
const MOST_POINTS: usize = 480;

/// A run so far. The records of each rank must be added in order.
#[derive(Debug, Default)]
pub struct PageState {
    /// The run's folder, or the file that the user named.
    place: PathBuf,
    ranks: BTreeMap<u32, Rank>,
    /// Why no more records can be read at the moment.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Rank {
    run: RankRun,
    series: TickSeries,
    history: Option<History>,
    began_unix_nano: u64,
}

impl Rank {
    fn main_probe(&self) -> Option<&ProbeRecord> {
        self.run.main_probe(self.series.main_loop())
    }
}

impl PageState {
    /// A run without records yet.
    pub fn new(place: &Path) -> Self {
        Self {
            place: place.to_path_buf(),
            ..Self::default()
        }
    }

    /// Reads the run at `path`, which is its folder or one of its files.
    ///
    /// # Errors
    ///
    /// Returns [`ReadError`] if it cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let mut follower = Follower::open(path)?;
        let mut state = Self::new(path);
        loop {
            let polled = follower.poll()?;
            if let Some(run) = follower.run() {
                state.place = run.to_path_buf();
            }
            for (rank, record) in polled.records {
                state.add_record(rank, record);
            }
            if !polled.more {
                // The records do not contain the counts of skipped lines.
                if let Some(first) = state.ranks.values_mut().next() {
                    first.run.tally.skipped = follower.tally().skipped;
                }
                return Ok(state);
            }
        }
    }

    /// Adds the next record of a rank.
    pub fn add_record(&mut self, number: u32, record: Record) {
        let drawn = self.ranks.len() < MOST_DRAWN;
        let rank = self.ranks.entry(number).or_insert_with(|| Rank {
            run: RankRun {
                rank: number,
                ..RankRun::default()
            },
            series: TickSeries::default(),
            history: drawn.then(|| History::new(MOST_POINTS)),
            began_unix_nano: record.time_unix_nano,
        });
        let last = &mut rank.run.tally.last_unix_nano;
        *last = record.time_unix_nano.max(*last);
        rank.series.add_record(&record.body);
        if let RecordBody::Tick(tick) = &record.body {
            if let Some(history) = &mut rank.history {
                history.add_tick(tick);
            }
        } else {
            rank.run.add_record(record);
        }
    }

    /// Sets or clears the reason why no more records can be read. Returns whether it changed.
    pub(crate) fn set_trouble(&mut self, trouble: Option<String>) -> bool {
        let is_new = self.trouble != trouble;
        self.trouble = trouble;
        is_new
    }

    /// Whether no record was added.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The path of the run.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The rank that the verdict is about, or else the first rank.
    fn main(&self, combined: Option<&RanksRecord>) -> Option<&Rank> {
        match main_rank(self.ranks.values().map(|rank| &rank.run), combined) {
            Some(main) => self.ranks.get(&main.rank),
            None => self.ranks.values().next(),
        }
    }

    /// The combined results of all ranks, if there are several.
    pub fn together(&self) -> Option<RanksRecord> {
        let several = self.ranks.len() > 1;
        let mut ranks = Ranks::default();
        let nothing = TickSeries::default();
        for rank in self.ranks.values() {
            let series = if several { &rank.series } else { &nothing };
            add_rank(&mut ranks, &rank.run, series);
        }
        combined_ranks(ranks, several)
    }

    /// The last summary of the rank that the verdict is about, with the combined results of all ranks. This is
    /// what `report --json` prints.
    pub fn summary(&self) -> Option<Record> {
        let together = self.together();
        let main = self.main(together.as_ref())?;
        summary_of_run(&main.run, together)
    }

    /// The current page.
    pub fn page(&self) -> Page {
        let together = self.together();
        let main = self.main(together.as_ref());
        let place = self.place.display().to_string();
        let nothing = SummaryRecord::default();
        let rank_run = main.map(|rank| &rank.run);
        let summary = rank_run.and_then(RankRun::last_summary);
        let verdict = Verdict {
            run: rank_run.and_then(|run| run.run.as_ref()),
            probe: main.and_then(Rank::main_probe),
            location: Some(&place),
            slowest_rank: rank_run.and_then(|run| number_if_slowest(run, together.as_ref())),
            unfinished_s: rank_run.and_then(RankRun::unfinished_s),
            is_running: rank_run.is_some_and(RankRun::is_running),
            ..Verdict::new(summary.unwrap_or(&nothing))
        };
        let runs = || self.ranks.values().map(|rank| &rank.run);
        let notices = runs().flat_map(|run| run.notices.iter().map(|notice| (run.rank, notice)));
        let facts = Facts {
            verdict,
            has_summary: summary.is_some(),
            main_rank: rank_run.map_or(0, |run| run.rank),
            ranks: together.as_ref(),
            summaries: runs()
                .filter_map(|run| Some((run.rank, run.last_summary()?)))
                .collect(),
            stacks: rank_run.and_then(|run| run.stacks.as_deref()),
            notices: notices.collect(),
            trouble: self.trouble.as_deref(),
            skipped: runs()
                .map(|run| run.tally.skipped)
                .find(|skipped| skipped.total() > 0)
                .map(describe),
        };
        Page {
            title: facts.title(),
            parts: facts.parts(),
            ranks: self.charts(),
        }
    }

    fn charts(&self) -> Vec<RankCharts> {
        let began = self.ranks.values().map(|rank| rank.began_unix_nano);
        let first = began.min().unwrap_or(0);
        let of = |(number, rank): (&u32, &Rank)| {
            let history = rank.history.as_ref()?;
            let drawn = Drawn {
                history,
                summary: rank.run.last_summary(),
                run: rank.run.run.as_ref(),
                loop_name: rank.series.main_loop().unwrap_or_default(),
            };
            // Ranks may begin at different times.
            let later_s = rank.began_unix_nano.saturating_sub(first) as f64 / 1e9;
            Some(RankCharts::from_history(*number, later_s, &drawn))
        };
        self.ranks.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests;
