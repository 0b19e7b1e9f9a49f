//! Keeps a file for `node_exporter`'s textfile collector up to date: `headspace_<run>_rank<r>.prom`,
//! replaced as a whole.
//!
//! Use it on machines where no process may listen on a port. A reader sees the old or the new file,
//! never a partial one. The file is written at most once a second and when the run ends. It is not
//! removed, because a scraper would otherwise miss the verdict of a short run. If the folder cannot be
//! written, only the file is missing, and the next delivery tries again.
//!
//! A separate thread writes the file ([`background`](super::background)). The folder may be on a network file
//! system that hangs for minutes, and that must not delay the records in the run folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::background::{BackgroundExporter, Deliver, Failure, Pace, Shared};
use crate::encode::prometheus::{self, Form};
use crate::encode::snapshot::Snapshot;

/// Interval between two files. Collectors read every few seconds.
const PACE: Duration = Duration::from_secs(1);

/// How long creating the folder may take. Training then starts without waiting further.
const OPEN_PATIENCE: Duration = Duration::from_secs(2);

/// Writes into `folder`, which is created if it does not exist.
///
/// # Errors
///
/// Returns the system's error if the folder or the thread cannot be created.
pub fn open(folder: &Path) -> io::Result<BackgroundExporter<Snapshot>> {
    let (made, answer) = channel();
    let path = folder.to_path_buf();
    std::thread::Builder::new()
        .name("hs-textfile-dir".to_owned())
        .spawn(move || {
            let _ = made.send(fs::create_dir_all(&path));
        })?;
    // A folder that does not answer in time may answer later: each delivery tries again.
    answer.recv_timeout(OPEN_PATIENCE).unwrap_or(Ok(()))?;
    let file = File {
        folder: folder.to_path_buf(),
        written_unix_nano: 0,
    };
    let pace = Pace {
        interval: PACE,
        // A write cannot be interrupted; the wait for the last one has its own limit.
        timeout: PACE,
    };
    BackgroundExporter::start("textfile", Snapshot::default(), file, pace)
}

/// The file that is kept up to date.
#[derive(Debug)]
struct File {
    folder: PathBuf,
    /// The time of the last record that was written, in nanoseconds since 1970.
    written_unix_nano: u64,
}

impl Deliver<Snapshot> for File {
    /// Replaces the file if there is a newer record.
    fn deliver(&mut self, latest: &Shared<Snapshot>, _: Duration) -> Result<(), Failure> {
        let (at, name, text) = {
            let snapshot = latest.lock();
            let at = snapshot.at_unix_nano();
            if at == self.written_unix_nano {
                return Ok(());
            }
            let process = snapshot.process();
            let name = format!("headspace_{}_rank{}.prom", process.run_id, process.rank);
            (at, name, prometheus::encode([&*snapshot], Form::Text))
        };
        replace(&self.folder, &name, text.as_bytes()).map_err(|error| {
            let path = self.folder.join(&name);
            Failure::lasting(format!("cannot write `{}`: {error}", path.display()))
        })?;
        self.written_unix_nano = at;
        Ok(())
    }
}

/// The temporary path of a file before its rename. Collectors ignore this name.
fn beside(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.new"))
}

fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(folder, name);
    let write = || fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, folder.join(name)));
    match write() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            write()
        }
        Err(error) => {
            // Remove the partial file that a full disk may have left.
            let _ = fs::remove_file(&beside);
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use headspace_agent::model::{Record, RecordBody};
    use headspace_agent::notice::Notice;
    use headspace_agent::port::Exporter;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::encode::test_records;

    const FILE: &str = "headspace_2026-11-21T09-30-12-4711_rank0.prom";

    /// Longer than any test needs: it only ends a test that hangs.
    const DEADLINE: Duration = Duration::from_secs(30);

    fn tick(at_ms: u64) -> Record {
        let tick = test_records::tick(at_ms);
        test_records::record(at_ms * 1_000_000, RecordBody::Tick(tick))
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < end, "not in time: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn exporter_writes_the_file_at_the_first_records_and_replaces_it_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut exporter = open(&folder.path().join("made")).unwrap();
        let file = folder.path().join("made").join(FILE);
        exporter.export(&[tick(1_000)]).unwrap();
        until("a file", || file.exists());
        let first = fs::read_to_string(&file).unwrap();
        assert!(first.contains("process_cpu_time_seconds_total{"));

        exporter.export(&[tick(2_100)]).unwrap();
        exporter.close();
        exporter.finish();
        let last = fs::read_to_string(&file).unwrap();
        let mut snapshot = Snapshot::default();
        for record in [tick(1_000), tick(2_100)] {
            snapshot.add_record(&record);
        }
        assert_eq!(last, prometheus::encode([&snapshot], Form::Text));
        assert_ne!(last, first);

        let names: Vec<_> = fs::read_dir(file.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [FILE], "nothing else is left behind");
    }

    #[test]
    fn exporter_recreates_a_deleted_folder() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("metrics");
        let mut exporter = open(&below).unwrap();
        fs::remove_dir(&below).unwrap();
        exporter.export(&[tick(1_000)]).unwrap();
        until("a file", || below.join(FILE).exists());
        exporter.close();
        exporter.finish();
        assert!(exporter.take_notices().is_empty());
    }

    #[test]
    fn exporter_reports_an_unwritable_folder_once_and_its_recovery() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("metrics");
        let mut exporter = open(&below).unwrap();
        fs::remove_dir(&below).unwrap();
        fs::write(&below, "in the way").unwrap();

        exporter.export(&[tick(1_000)]).unwrap();
        until("two failures", || exporter.lost().exports >= 2);
        let notices = exporter.take_notices();
        assert!(
            matches!(&notices[..], [Notice::ExportFailing { .. }]),
            "{notices:?}"
        );

        fs::remove_file(&below).unwrap();
        let mut notices = Vec::new();
        until("a file", || {
            notices.extend(exporter.take_notices());
            !notices.is_empty()
        });
        assert!(
            matches!(&notices[..], [Notice::ExportResumed { lost: 2.., .. }]),
            "{notices:?}"
        );
    }

    #[test]
    fn a_folder_that_hangs_delays_neither_the_records_nor_the_end() {
        let folder = tempfile::tempdir().unwrap();
        // Opening a pipe without a reader blocks, like a file server that does not answer.
        let hanging = beside(folder.path(), FILE);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &hanging, FileType::Fifo, mode, 0).unwrap();
        let mut exporter = open(folder.path()).unwrap();
        let (done, passed) = channel();
        std::thread::spawn(move || {
            for at_ms in [1_000, 2_000, 3_000] {
                exporter.export(&[tick(at_ms)]).unwrap();
            }
            exporter.close();
            exporter.finish();
            let _ = done.send((exporter.lost().exports, exporter.take_notices()));
        });
        let passed = passed.recv_timeout(DEADLINE);
        // Unblock the thread, so that it can exit.
        let reader = fs::File::open(&hanging);
        let (lost, notices) = passed.expect("it waits for the folder");
        assert_eq!(lost, 1);
        assert!(matches!(
            &notices[..],
            [Notice::LastExportDropped { reason: None, .. }]
        ));
        drop(reader);
    }
}
