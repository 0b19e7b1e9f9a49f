//! A run with its ranks read together: how it is read, and how that is told.

use std::path::{Path, PathBuf};

use headspace_agent::analysis::ranks::Ranks;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::analysis::verdict::units::{duration_ms, percent};
use headspace_agent::model::ranks::{RankCause, RanksRecord};
use headspace_exporters::encode::text::paragraph;
use headspace_exporters::run_folder::{RankRun, ReadError, Run, Seen, files};

/// Widest line, as in the verdict above.
const COLUMNS: usize = 100;

/// Ranks that are shown one by one.
pub(super) const SHOWN: usize = 16;

/// A run, and where it is.
#[derive(Debug)]
pub(super) struct FoundRun {
    /// The folder or the file that was given or found.
    pub(super) path: PathBuf,
    pub(super) run: Run,
    /// Its ranks together, where a folder was named and the run has several.
    pub(super) ranks: Option<RanksRecord>,
}

impl FoundRun {
    /// Reads a run's folder or one file of it. The ticks are looked at only where there are several
    /// ranks to compare.
    pub(super) fn read(path: &Path) -> Result<Self, ReadError> {
        if !path.is_dir() {
            return Ok(Self {
                path: path.to_path_buf(),
                run: Run::read_file(path)?,
                ranks: None,
            });
        }
        let listed = files(path).unwrap_or_default();
        let several = listed.windows(2).any(|pair| pair[0].rank != pair[1].rank);
        let mut ranks = Ranks::default();
        let mut series = TickSeries::default();
        let run = if several {
            Run::read_with(path, &mut |seen| match seen {
                Seen::Tick(tick) => series.add_read(tick),
                Seen::Rank(rank) => add(&mut ranks, rank, &std::mem::take(&mut series)),
            })?
        } else {
            let run = Run::read(path)?;
            for rank in &run.ranks {
                add(&mut ranks, rank, &series);
            }
            run
        };
        let ranks = ranks
            .finish()
            .filter(|ranks| several || ranks.missing_count > 0);
        Ok(Self {
            path: path.to_path_buf(),
            run,
            ranks,
        })
    }
}

fn add(ranks: &mut Ranks, rank: &RankRun, series: &TickSeries) {
    let world_size = rank.run.as_ref().map(|run| run.world_size);
    ranks.add(rank.rank, world_size, rank.last_summary(), series);
}

/// The ranks together, in a few lines.
pub(super) fn told(ranks: &RanksRecord) -> String {
    let lines = sentences(ranks).into_iter();
    lines.map(|(label, words)| line(label, &words)).collect()
}

/// The ranks together: what each sentence is about, and the sentence.
pub(crate) fn sentences(ranks: &RanksRecord) -> Vec<(&'static str, String)> {
    let mut facts = match ranks.world_size.filter(|world| *world > 1) {
        Some(world) => vec![format!("{} of {world} read", ranks.read)],
        None => vec![format!("{} read", ranks.read)],
    };
    if let Some(step) = ranks.step {
        facts.push(format!(
            "step of all {}, p95 {}",
            duration_ms(step.mean_ms),
            duration_ms(step.p95_ms)
        ));
        if let Some(wait) = ranks.wait {
            facts.push(format!(
                "waiting for data {} ({} %)",
                duration_ms(wait.mean_ms),
                percent(100.0 * wait.mean_ms / step.mean_ms, 0)
            ));
        }
    }
    let slowest = match (ranks.slowest, ranks.cause) {
        (Some(rank), RankCause::Data) => format!("Rank {rank}, because of its data. "),
        (Some(rank), RankCause::Compute) => format!("Rank {rank}, because of its compute. "),
        (Some(rank), _) => format!("Rank {rank}. "),
        (None, RankCause::Balanced) => "None. ".to_owned(),
        (None, _) => "Unknown. ".to_owned(),
    };
    let mut all = vec![
        ("ranks", facts.join("; ") + "."),
        ("slowest", slowest + &ranks.evidence),
    ];
    if ranks.missing_count > 0 {
        let what = listed(&ranks.missing, ranks.missing_count);
        all.push(("missing", format!("No summary of {what}.")));
    }
    if ranks.unfinished_count > 0 {
        let what = listed(&ranks.unfinished, ranks.unfinished_count);
        all.push((
            "ended",
            format!(
                "No end recorded of {what}: killed, or still running. They count as far as they were recorded."
            ),
        ));
    }
    if let Some((fewest, most)) = ranks.steps.filter(|(fewest, most)| fewest != most) {
        all.push((
            "steps",
            format!("From {fewest} to {most}: the ranks took different numbers."),
        ));
    }
    all
}

fn line(label: &str, words: &str) -> String {
    paragraph(&format!("{label:11}"), words, COLUMNS)
}

/// `rank 3`, `ranks 1, 2 and 5`, `ranks 1, 2, 3 and 997 more`.
fn listed(ranks: &[u32], count: u32) -> String {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    let more = (count as usize).saturating_sub(names.len());
    match (names.as_slice(), more) {
        ([one], 0) => format!("rank {one}"),
        ([rest @ .., last], 0) => format!("ranks {} and {last}", rest.join(", ")),
        (all, more) => format!("ranks {} and {more} more", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_people_do() {
        assert_eq!(listed(&[3], 1), "rank 3");
        assert_eq!(listed(&[1, 2, 5], 3), "ranks 1, 2 and 5");
        assert_eq!(listed(&[1, 2], 999), "ranks 1, 2 and 997 more");
    }

    #[test]
    fn what_the_ranks_say_together_fits_the_width_of_the_verdict() {
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

        let text = told(&ranks);

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
        assert!(text.contains("\nsteps      From 90 to 100"), "{text}");
    }
}
