//! Reads the combined content of a run's files.
//!
//! Only what is needed of a finished run is kept: its `run` record, its last summary, its probes and
//! its notices. Ticks are checked and counted but not kept, so a folder of a gigabyte is read in
//! bounded memory. Callers that need the ticks receive them one by one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use headspace_agent::analysis::main_loop::main_probe;
use headspace_agent::analysis::tick_series::SeriesTick;
use headspace_agent::model::record::{
    NoticeRecord, ProbeRecord, RunRecord, RunState, StacksRecord, SummaryRecord,
};
use headspace_agent::model::{Record, RecordBody};

use super::names::{RankFile, files, parent, part_path};
use super::open_file::open_file;
use crate::encode::json_lines::Kind;
use crate::encode::reader::{Records, Tally};

/// Maximum number of notices kept per rank. Each notice is shown once, so a larger number indicates a
/// fault.
const MAX_NOTICES: usize = 256;

/// Maximum number of probes kept per rank: one per loop.
const MAX_PROBES: usize = 256;

/// Maximum number of times a run is listed again because a file was renamed meanwhile.
const MAX_LISTINGS: u32 = 8;

/// Why a run was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system returned an error.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The path that was read.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder contains no rank's file.
    #[error("`{}` is not a run folder: it contains no `rank0.jsonl`", path.display())]
    NoRanks {
        /// The folder.
        path: PathBuf,
    },
}

/// A run, as read from its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its folder.
    pub folder: PathBuf,
    /// Its ranks, in order. At least one.
    pub ranks: Vec<RankRun>,
}

/// The content of one rank's files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankRun {
    /// The rank, from the file's name.
    pub rank: u32,
    /// Its files, with the oldest records first.
    pub files: Vec<PathBuf>,
    /// The last `run` record.
    pub run: Option<RunRecord>,
    /// The last summary, with its time. Its body is a `summary`.
    pub summary: Option<Record>,
    /// The last record of stacks.
    pub stacks: Option<Box<StacksRecord>>,
    /// Its probes, at most 256.
    pub probes: Vec<ProbeRecord>,
    /// Its notices, at most 256.
    pub notices: Vec<NoticeRecord>,
    /// Counts of what was read, including skipped lines.
    pub tally: Tally,
}

/// An event during the reading of a run.
#[derive(Debug, Clone, Copy)]
pub enum ReadEvent<'a> {
    /// A tick of the rank that is being read, in order.
    Tick(&'a SeriesTick<'a>),
    /// A rank is complete. The ticks since the previous rank belong to it.
    Rank(&'a RankRun),
}

/// An optional callback for the events.
type Callback<'a> = Option<&'a mut dyn FnMut(ReadEvent<'_>)>;

impl Run {
    /// Reads a run's folder, or one file of it. For a rank's newest file, the rank's older parts are
    /// read too.
    ///
    /// # Errors
    ///
    /// Returns [`ReadError`] if the folder or a file cannot be read, or if the folder has no rank's file.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::read_path(path, None)
    }

    /// Reads a run as [`read`](Self::read) does, and passes its ticks to `on_event`. This takes about
    /// twice as long.
    ///
    /// # Errors
    ///
    /// Returns [`ReadError`] as [`read`](Self::read) does.
    pub fn read_with(
        path: &Path,
        on_event: &mut dyn FnMut(ReadEvent<'_>),
    ) -> Result<Self, ReadError> {
        Self::read_path(path, Some(on_event))
    }

    fn read_path(path: &Path, mut on_event: Callback<'_>) -> Result<Self, ReadError> {
        if path.is_dir() {
            Self::read_folder(path, &mut on_event)
        } else {
            Self::read_file(path, &mut on_event)
        }
    }

    fn read_folder(folder: &Path, on_event: &mut Callback<'_>) -> Result<Self, ReadError> {
        let all = list(folder)?;
        if all.is_empty() {
            return Err(ReadError::NoRanks {
                path: folder.to_path_buf(),
            });
        }
        let ranks = all
            .chunk_by(|a, b| a.rank == b.rank)
            .map(|files| RankRun::read_files(folder, files, on_event))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            folder: folder.to_path_buf(),
            ranks,
        })
    }

    fn read_file(path: &Path, on_event: &mut Callback<'_>) -> Result<Self, ReadError> {
        let folder = parent(path);
        let rank = match RankFile::parse(path) {
            Some(file) if file.is_active() => {
                RankRun::read_files(folder, &list_rank(folder, file.rank)?, on_event)?
            }
            file => {
                let mut rank = RankRun {
                    rank: file.map_or(0, |f| f.rank),
                    ..RankRun::default()
                };
                rank.add_file(path, open(path)?, on_event)?;
                rank.report_to(on_event);
                rank
            }
        };
        Ok(Self {
            folder: folder.to_path_buf(),
            ranks: vec![rank],
        })
    }

    /// Counts of what was read, over all ranks.
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for rank in &self.ranks {
            all += rank.tally;
        }
        all
    }
}

impl RankRun {
    /// Reads a rank from its listed files.
    fn read_files(
        folder: &Path,
        listed: &[RankFile],
        on_event: &mut Callback<'_>,
    ) -> Result<Self, ReadError> {
        let mut run = Self {
            rank: listed.first().map_or(0, |file| file.rank),
            ..Self::default()
        };
        for (path, file) in open_files(folder, run.rank, listed)? {
            let file = match file {
                Some(file) => file,
                None => open(&path)?,
            };
            run.add_file(&path, file, on_event)?;
        }
        run.report_to(on_event);
        Ok(run)
    }

    fn report_to(&self, on_event: &mut Callback<'_>) {
        if let Some(on_event) = on_event {
            on_event(ReadEvent::Rank(self));
        }
    }

    /// The last summary's body.
    pub fn last_summary(&self) -> Option<&SummaryRecord> {
        match &self.summary.as_ref()?.body {
            RecordBody::Summary(summary) => Some(summary),
            _ => None,
        }
    }

    /// The probe of the main loop: of the loop that the last summary names, or else of `main_loop`, the
    /// main loop of the tick series.
    pub fn main_probe(&self, main_loop: Option<&str>) -> Option<&ProbeRecord> {
        let named = self.last_summary().and_then(|s| s.loop_name.as_deref());
        main_probe(self.probes.iter(), named.or(main_loop))
    }

    /// Seconds from the last summary to the last record, if the run did not end normally. `None` if it
    /// did, or if there is no summary.
    pub fn unfinished_s(&self) -> Option<f64> {
        let summary = self.last_summary()?;
        let written = self.summary.as_ref()?.time_unix_nano;
        (summary.state == RunState::Running)
            .then(|| self.tally.last_unix_nano.saturating_sub(written) as f64 / 1e9)
    }

    /// Whether the run did not end so far, and the process that writes the records runs on this machine.
    pub fn is_running(&self) -> bool {
        let host = self.run.as_ref().and_then(|run| run.host.name.as_deref());
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let is_here = host.is_some_and(|host| here.as_deref().map(str::trim) == Some(host));
        let runs = |record: &Record| runs_since(record.pid, record.time_unix_nano);
        is_here && self.unfinished_s().is_some() && self.summary.as_ref().is_some_and(runs)
    }

    fn add_file(
        &mut self,
        path: &Path,
        file: File,
        on_event: &mut Callback<'_>,
    ) -> Result<(), ReadError> {
        let mut records = Records::new(file).without(&[Kind::Tick, Kind::Epoch]);
        loop {
            let next = match on_event {
                Some(on_event) => records.next_after(&mut |tick| on_event(ReadEvent::Tick(tick))),
                None => records.next(),
            };
            let Some(record) = next else { break };
            self.add_record(record.map_err(cannot_read(path))?);
        }
        self.tally += records.tally();
        self.files.push(path.to_path_buf());
        Ok(())
    }

    /// Adds the rank's next record, and keeps what is needed. Does not change the counts.
    pub fn add_record(&mut self, record: Record) {
        match record.body {
            RecordBody::Summary(_) => self.summary = Some(record),
            RecordBody::Stacks(stacks) => self.stacks = Some(stacks),
            RecordBody::Run(run) => self.run = Some(run),
            RecordBody::Probe(probe) if self.probes.len() < MAX_PROBES => self.probes.push(probe),
            RecordBody::Notice(notice) if self.notices.len() < MAX_NOTICES => {
                self.notices.push(notice);
            }
            _ => {}
        }
    }
}

fn list(folder: &Path) -> Result<Vec<RankFile>, ReadError> {
    files(folder).map_err(cannot_read(folder))
}

fn open(path: &Path) -> Result<File, ReadError> {
    open_file(path).map_err(cannot_read(path))
}

/// Names the path in a system's error.
pub(super) fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    |source| ReadError::Io {
        path: path.to_path_buf(),
        source,
    }
}

fn list_rank(folder: &Path, rank: u32) -> Result<Vec<RankFile>, ReadError> {
    let mut files = list(folder)?;
    files.retain(|file| file.rank == rank);
    Ok(files)
}

/// Opens a rank's newest file, and returns all its files.
///
/// While the run is active, the newest file may become a part between listing and opening. There is
/// then a part after the listed ones, and the files are listed again. (Always listing again would take
/// quadratic time for a folder of ten thousand ranks.)
fn open_files(
    folder: &Path,
    rank: u32,
    listed: &[RankFile],
) -> Result<Vec<(PathBuf, Option<File>)>, ReadError> {
    let mut listed = listed.to_vec();
    for listings in 0.. {
        let (active, parts): (Vec<_>, Vec<_>) = listed.iter().partition(|f| f.is_active());
        let next = parts.last().map_or(1, |last| last.part.saturating_add(1));
        let active = active
            .first()
            .map(|file| open(&file.path).map(|opened| (file.path.clone(), Some(opened))));
        let became_a_part = part_path(folder, rank, next).exists();
        if !became_a_part && !matches!(active, Some(Err(_))) || listings >= MAX_LISTINGS {
            let mut files: Vec<_> = parts.iter().map(|f| (f.path.clone(), None)).collect();
            files.extend(active.transpose()?);
            return Ok(files);
        }
        listed = list_rank(folder, rank)?;
    }
    Ok(Vec::new())
}

/// Whether the process runs now, and began before that time. A process that has ended and waits for its parent does not run,
/// and another one may have got its ID later.
fn runs_since(pid: u32, unix_nanos: u64) -> bool {
    /// Unit of the start time, on all machines (`USER_HZ`).
    const TICKS_PER_S: u64 = 100;

    let began = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program may contain spaces and parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let runs = fields.next()? != "Z";
        let ticks: u64 = fields.nth(18)?.parse().ok()?;
        let machine = std::fs::read_to_string("/proc/stat").ok()?;
        let boot = machine.lines().find_map(|line| line.strip_prefix("btime "));
        let seconds = boot?.trim().parse::<u64>().ok()? + ticks / TICKS_PER_S;
        runs.then_some(seconds)
    };
    began().is_some_and(|seconds| seconds <= unix_nanos / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use headspace_agent::model::record::Severity;

    use super::super::{part_path, rank_path};
    use super::*;
    use crate::encode::json_lines::LineError;
    use crate::encode::test_records;

    fn summary(time: u64, steps: u64, state: RunState) -> String {
        let body = SummaryRecord {
            steps,
            state,
            ..SummaryRecord::default()
        };
        test_records::line(&test_records::record(
            time,
            RecordBody::Summary(Box::new(body)),
        ))
    }

    fn tick(time: u64) -> String {
        test_records::line(&test_records::record(
            time,
            RecordBody::Tick(test_records::tick(1)),
        ))
    }

    fn notice(text: &str) -> String {
        let body = NoticeRecord {
            code: "test".to_owned(),
            severity: Severity::Info,
            text: text.to_owned(),
        };
        test_records::line(&test_records::record(1, RecordBody::Notice(body)))
    }

    #[test]
    fn parts_are_read_in_order_and_the_last_summary_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(
            rank_path(folder, 0),
            summary(50, 3, RunState::Finished) + &tick(60),
        )
        .unwrap();
        fs::write(
            part_path(folder, 0, 2),
            notice("two") + &summary(40, 2, RunState::Running),
        )
        .unwrap();
        fs::write(
            part_path(folder, 0, 1),
            notice("one") + &summary(99, 1, RunState::Running),
        )
        .unwrap();
        fs::write(
            part_path(folder, 0, 1).with_extension("jsonl.tmp"),
            notice("half"),
        )
        .unwrap();

        let run = Run::read(folder).unwrap();

        let rank = &run.ranks[0];
        assert_eq!(rank.last_summary().unwrap().steps, 3);
        assert_eq!(
            rank.notices
                .iter()
                .map(|n| n.text.as_str())
                .collect::<Vec<_>>(),
            ["one", "two"]
        );
        assert_eq!((rank.tally.records, rank.files.len()), (6, 3));
        assert_eq!(rank.unfinished_s(), None);
    }

    #[test]
    fn a_killed_run_reports_the_age_of_its_last_summary() {
        let folder = tempfile::tempdir().unwrap();
        let text = summary(1_000_000_000, 3, RunState::Running) + &tick(3_500_000_000) + "{\"sch";
        fs::write(rank_path(folder.path(), 2), text).unwrap();

        let run = Run::read(folder.path()).unwrap();

        assert_eq!(run.ranks[0].rank, 2);
        assert_eq!(run.ranks[0].unfinished_s(), Some(2.5));
        assert!(!run.ranks[0].is_running());
        assert_eq!(run.tally().skipped.count(LineError::Cut), 1);
    }

    #[test]
    fn a_process_runs_since_it_began() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = u64::try_from(now.unwrap().as_nanos()).unwrap();

        assert!(runs_since(std::process::id(), now));
        assert!(
            !runs_since(std::process::id(), 1_000_000_000),
            "it began later"
        );
        assert!(!runs_since(u32::MAX, now));
    }

    #[test]
    fn reading_the_newest_file_reads_its_parts_but_reading_a_part_reads_only_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(rank_path(folder, 0), notice("new")).unwrap();
        fs::write(part_path(folder, 0, 1), notice("old")).unwrap();
        fs::write(rank_path(folder, 1), notice("other")).unwrap();

        let newest = Run::read(&rank_path(folder, 0)).unwrap();
        let part = Run::read(&part_path(folder, 0, 1)).unwrap();

        assert_eq!(newest.ranks[0].notices.len(), 2);
        assert_eq!(part.ranks[0].notices.len(), 1);
    }

    #[test]
    fn the_error_names_a_folder_without_ranks() {
        let folder = tempfile::tempdir().unwrap();

        let error = Run::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("contains no `rank0.jsonl`"), "{error}");
        assert!(Run::read(&folder.path().join("missing")).is_err());
    }
}
