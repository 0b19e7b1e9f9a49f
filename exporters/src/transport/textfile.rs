//! A file for `node_exporter`'s textfile collector: `headspace_<run>_rank<r>.prom`, replaced as a whole.
//!
//! For machines on which nothing may listen. A reader sees the file before or after, never half of
//! it. It is written once a second at most and when the run ends, and stays: the verdict of a short
//! run would otherwise be gone before anybody looked. A folder that cannot be written costs nothing
//! but the file, and is tried again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headspace_agent::model::Record;
use headspace_agent::notice::Notice;
use headspace_agent::port::{ExportError, Exporter};

use crate::encode::prometheus::{self, Form};
use crate::encode::snapshot::Snapshot;

/// Shortest time between two files, in nanoseconds. Collectors look every few seconds.
const PACE_NANOS: u64 = 1_000_000_000;

/// Keeps one file up to date.
pub struct TextfileExporter {
    folder: PathBuf,
    snapshot: Snapshot,
    /// The time of the last record that was written, in nanoseconds since 1970.
    written_unix_nano: u64,
    /// Files given up since the last that was written, and all of them.
    failed: u64,
    lost: u64,
    notices: Vec<Notice>,
}

impl TextfileExporter {
    /// Writes into `folder`, which is made where it is missing.
    ///
    /// # Errors
    ///
    /// What the system said when the folder could not be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_path_buf(),
            snapshot: Snapshot::default(),
            written_unix_nano: 0,
            failed: 0,
            lost: 0,
            notices: Vec::new(),
        })
    }

    /// Puts the file in place, if there is something new.
    fn write(&mut self) {
        let at = self.snapshot.at_unix_nano();
        if at == self.written_unix_nano {
            return;
        }
        self.written_unix_nano = at;
        let who = self.snapshot.who();
        let name = format!("headspace_{}_rank{}.prom", who.run_id, who.rank);
        let text = prometheus::encode([&self.snapshot], Form::Text);
        match replace(&self.folder, &name, text.as_bytes()) {
            Ok(()) => {
                if self.failed > 0 {
                    self.notices.push(Notice::ExportResumed {
                        exporter: self.name(),
                        lost: self.failed,
                    });
                }
                self.failed = 0;
            }
            Err(error) => {
                if self.failed == 0 {
                    let path = self.folder.join(name);
                    self.notices.push(Notice::ExportFailing {
                        exporter: self.name(),
                        reason: format!("cannot write `{}`: {error}", path.display()),
                    });
                }
                self.failed += 1;
                self.lost += 1;
            }
        }
    }
}

impl Exporter for TextfileExporter {
    fn name(&self) -> &'static str {
        "textfile"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        for record in records {
            self.snapshot.take(record);
        }
        // A clock that was set back does not silence it.
        if self
            .snapshot
            .at_unix_nano()
            .abs_diff(self.written_unix_nano)
            >= PACE_NANOS
        {
            self.write();
        }
        Ok(())
    }

    fn tell(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn close(&mut self) {
        self.write();
    }
}

/// Writes beside the file, under a name that collectors pass over, and renames.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = folder.join(format!(".{name}.new"));
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, folder.join(name)));
    match written {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            fs::write(&beside, bytes)?;
            fs::rename(&beside, folder.join(name))
        }
        Err(error) => {
            // What a full disk left of it.
            let _ = fs::remove_file(&beside);
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::RecordBody;

    use super::*;
    use crate::encode::samples;

    const FILE: &str = "headspace_2026-11-21T09-30-12-4711_rank0.prom";

    fn tick(at_ms: u64) -> Record {
        let tick = samples::tick(at_ms);
        samples::record(at_ms * 1_000_000, RecordBody::Tick(tick))
    }

    #[test]
    fn a_file_is_replaced_once_a_second_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut exporter = TextfileExporter::open(&folder.path().join("made")).unwrap();
        let file = folder.path().join("made").join(FILE);
        exporter.export(&[tick(1_000)]).unwrap();
        let first = fs::read_to_string(&file).unwrap();
        assert!(first.contains("process_cpu_time_seconds_total{"));

        exporter.export(&[tick(1_500)]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), first);
        exporter.export(&[tick(2_000)]).unwrap();
        let second = fs::read_to_string(&file).unwrap();
        assert_ne!(second, first);
        exporter.export(&[tick(2_100)]).unwrap();
        exporter.close();
        assert_ne!(fs::read_to_string(&file).unwrap(), second);

        let names: Vec<_> = fs::read_dir(file.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [FILE], "nothing else is left behind");
    }

    #[test]
    fn a_folder_that_is_gone_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("metrics");
        let mut exporter = TextfileExporter::open(&below).unwrap();
        fs::remove_dir(&below).unwrap();
        exporter.export(&[tick(1_000)]).unwrap();
        assert!(below.join(FILE).exists());
        assert!(exporter.tell().is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_of_once_and_when_it_can_be_again() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("metrics");
        let mut exporter = TextfileExporter::open(&below).unwrap();
        fs::remove_dir(&below).unwrap();
        fs::write(&below, "in the way").unwrap();

        exporter.export(&[tick(1_000)]).unwrap();
        exporter.export(&[tick(2_000)]).unwrap();
        let told = exporter.tell();
        assert!(
            matches!(&told[..], [Notice::ExportFailing { .. }]),
            "{told:?}"
        );
        assert_eq!(exporter.lost(), 2);

        fs::remove_file(&below).unwrap();
        exporter.export(&[tick(3_000)]).unwrap();
        let told = exporter.tell();
        assert!(
            matches!(&told[..], [Notice::ExportResumed { lost: 2, .. }]),
            "{told:?}"
        );
    }
}
