//! Tests the pipe with real readers.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use headspace_agent::model::record::{RunRecord, SummaryRecord};

use super::*;
use crate::encode::reader::Records;
use crate::encode::test_records;

const PATIENCE: Duration = Duration::from_secs(30);

fn tick(number: u64) -> Record {
    test_records::record(number, RecordBody::Tick(test_records::tick(number)))
}

fn run() -> Record {
    test_records::record(0, RecordBody::Run(RunRecord::default()))
}

fn summary(steps: u64) -> Record {
    let body = SummaryRecord {
        steps,
        ..SummaryRecord::default()
    };
    test_records::record(0, RecordBody::Summary(Box::new(body)))
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn readers(pipe: &PipeExporter) -> usize {
    pipe.shared.lock().readers.len()
}

/// `run`, `summary 3`, `tick 7`.
fn label(record: &Record) -> String {
    match &record.body {
        RecordBody::Run(_) => "run".to_owned(),
        RecordBody::Summary(summary) => format!("summary {}", summary.steps),
        RecordBody::Tick(tick) => format!("tick {}", tick.tick),
        other => format!("{other:?}"),
    }
}

/// The next `count` lines of a stream, each of which must be a whole record.
fn lines(stream: &mut impl BufRead, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "cut: {line:?}");
        all.push(label(&json_lines::decode(line.as_bytes()).unwrap()));
    }
    all
}

fn fifo(folder: &Path) -> (PipeExporter, PathBuf) {
    let path = folder.join("records");
    let address = Address::parse(path.to_str().unwrap(), 0);
    (PipeExporter::open(&address).unwrap(), path)
}

fn socket(folder: &Path) -> (PipeExporter, PathBuf) {
    let path = folder.join("records");
    let address = Address::parse(&format!("unix:{}", path.display()), 0);
    (PipeExporter::open(&address).unwrap(), path)
}

#[test]
fn a_pipe_belongs_to_the_user_only_and_gets_no_lines_without_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.file_type().is_fifo() && meta.permissions().mode() & 0o777 == 0o600);

    pipe.export(&[run(), tick(0), summary(1)]).unwrap();
    pipe.export(&[tick(1), summary(2)]).unwrap();

    assert_eq!((readers(&pipe), pipe.lost()), (0, Lost::default()));
    assert!(pipe.take_notices().is_empty());
}

#[test]
fn each_reader_of_a_pipe_first_receives_the_run_and_the_last_summary() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    pipe.export(&[run(), tick(0), summary(1)]).unwrap();
    for round in 0..3 {
        // Opening waits until the other end is open too.
        let mut reader = BufReader::new(File::open(&path).unwrap());
        wait_until("it reads", || readers(&pipe) == 1);
        let steps = 1 + round;
        pipe.export(&[tick(round + 1), summary(steps + 1)]).unwrap();

        assert_eq!(
            lines(&mut reader, 4),
            [
                "run".to_owned(),
                format!("summary {steps}"),
                format!("tick {}", round + 1),
                format!("summary {}", steps + 1)
            ]
        );
        drop(reader);
        wait_until("it left", || readers(&pipe) == 0);
    }
    assert_eq!(pipe.lost(), Lost::default());
}

#[test]
fn each_reader_of_a_socket_has_its_own_stream() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = socket(folder.path());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    pipe.export(&[run(), summary(1)]).unwrap();
    let mut one = BufReader::new(UnixStream::connect(&path).unwrap());
    wait_until("one reads", || readers(&pipe) == 1);
    pipe.export(&[tick(0), summary(2)]).unwrap();
    let mut two = BufReader::new(UnixStream::connect(&path).unwrap());
    wait_until("two read", || readers(&pipe) == 2);
    pipe.export(&[tick(1)]).unwrap();

    assert_eq!(
        lines(&mut one, 5),
        ["run", "summary 1", "tick 0", "summary 2", "tick 1"]
    );
    assert_eq!(lines(&mut two, 3), ["run", "summary 2", "tick 1"]);
    drop(one);
    wait_until("one left", || readers(&pipe) == 1);
    pipe.export(&[tick(2)]).unwrap();
    assert_eq!(lines(&mut two, 1), ["tick 2"]);
    drop(pipe);
    assert_eq!(two.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(!path.exists());
}

#[test]
fn a_reader_that_stops_loses_whole_counted_records_and_delays_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = socket(folder.path());
    pipe.export(&[run()]).unwrap();
    let mut stopped = UnixStream::connect(&path).unwrap();
    let quick = UnixStream::connect(&path).unwrap();
    wait_until("both read", || readers(&pipe) == 2);
    let read = std::thread::spawn(move || {
        Records::new(quick)
            .map(Result::unwrap)
            .fold(0, |count, _| count + 1)
    });
    let mut sent = 0;
    while pipe.lost().lines < 100 {
        pipe.export(&[tick(sent)]).unwrap();
        sent += 1;
    }
    let lost = pipe.lost().lines;
    let notices = pipe.take_notices();
    assert!(
        matches!(notices[..], [Notice::ReaderTooSlow { .. }]) && pipe.take_notices().is_empty()
    );

    // It goes on at the beginning of a line.
    let mut behind = Vec::new();
    let mut piece = vec![0; 1 << 16];
    // A blocking read would hang if this reader has all its lines while the other one still waits.
    stopped.set_nonblocking(true).unwrap();
    wait_until("no reader has waiting lines", || {
        let count = stopped.read(&mut piece).unwrap_or(0);
        behind.extend_from_slice(&piece[..count]);
        pipe.shared.lock().readers.iter().all(|r| !r.waits())
    });
    stopped.set_nonblocking(false).unwrap();
    pipe.export(&[summary(9)]).unwrap();
    drop(pipe);
    stopped.read_to_end(&mut behind).unwrap();

    let mut records = Records::new(&behind[..]);
    let seen: Vec<_> = records.by_ref().map(|r| label(&r.unwrap())).collect();
    assert_eq!(records.tally().skipped.total(), 0);
    assert_eq!(seen.last().unwrap(), "summary 9");
    let got = seen.len() + read.join().unwrap();
    assert_eq!(got as u64 + lost, 2 * (sent + 2));
}

#[test]
fn a_reader_that_leaves_a_full_pipe_costs_the_next_reader_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    pipe.export(&[run()]).unwrap();
    let mut first = File::open(&path).unwrap();
    wait_until("it reads", || readers(&pipe) == 1);
    for number in 0..200 {
        pipe.export(&[tick(number)]).unwrap();
    }
    first.read_exact(&mut [0; 100]).unwrap();
    drop(first);
    wait_until("it left", || readers(&pipe) == 0);

    let mut second = BufReader::new(File::open(&path).unwrap());
    wait_until("another reads", || readers(&pipe) == 1);
    pipe.export(&[tick(200)]).unwrap();

    assert_eq!(lines(&mut second, 2), ["run", "tick 200"]);
}

#[test]
fn a_line_larger_than_the_pipe_buffer_arrives_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    let large = RunRecord {
        argv: vec!["x".repeat(1 << 20)],
        ..RunRecord::default()
    };
    pipe.export(&[test_records::record(0, RecordBody::Run(large))])
        .unwrap();
    let mut reader = BufReader::new(File::open(&path).unwrap());

    assert_eq!(lines(&mut reader, 1), ["run"]);
}

#[test]
fn finish_delivers_the_remaining_lines_but_does_not_wait_for_a_stopped_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    pipe.export(&[run()]).unwrap();
    let stopped = File::open(&path).unwrap();
    wait_until("it reads", || readers(&pipe) == 1);
    for number in 0..200 {
        pipe.export(&[tick(number)]).unwrap();
    }
    let began = Instant::now();
    drop(pipe);
    assert!(began.elapsed() < PATIENCE);
    drop(stopped);
    assert!(path.exists(), "the pipe stays for the next run");
}

#[test]
fn finish_does_not_wait_for_a_thread_that_hangs() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let pipe = PipeExporter::start(move |_| {
        let _ = held.recv();
    })
    .unwrap();

    drop(pipe);

    assert!(release.send(()).is_ok(), "it hangs still");
}

#[test]
fn the_cpu_time_of_the_thread_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _) = fifo(folder.path());
    wait_until("CPU time is counted", || !pipe.cpu_time().is_zero());
}

#[test]
fn open_refuses_a_named_pipe_that_others_may_write_but_not_one_that_they_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let (first, path) = fifo(folder.path());
    drop(first);
    let address = Address::Fifo(path.clone());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = PipeExporter::open(&address).err().unwrap().to_string();
    assert!(error.contains("others may write to (mode 666)"), "{error}");

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(PipeExporter::open(&address).is_ok());
}

#[test]
fn open_refuses_a_named_pipe_of_another_user() {
    let folder = tempfile::tempdir().unwrap();
    let (first, path) = fifo(folder.path());
    drop(first);
    if std::os::unix::fs::chown(&path, Some(1), None).is_err() {
        // Only root can give a file away.
        let error = endpoint::foreign(rustix::process::geteuid().as_raw() + 1, 0o600);
        assert!(error.unwrap().0.contains("belongs to another user"));
        return;
    }
    let error = PipeExporter::open(&Address::Fifo(path)).err().unwrap();
    let error = error.to_string();
    assert!(error.contains("belongs to another user (uid 1)"), "{error}");
}

#[test]
fn open_names_a_file_in_the_way_and_replaces_a_dead_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    fs::write(&path, "mine").unwrap();
    for text in ["", "unix:"] {
        let address = Address::parse(&format!("{text}{}", path.display()), 0);
        let error = PipeExporter::open(&address).err().unwrap().to_string();
        assert!(error.contains("exists and is not a"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    fs::remove_file(&path).unwrap();

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (first, _) = socket(folder.path());
    let second = PipeExporter::open(&Address::Socket(path.clone()))
        .err()
        .unwrap();
    assert!(
        second.to_string().contains("another process uses"),
        "{second}"
    );
    drop(first);
}

#[test]
fn a_file_that_replaced_the_pipe_is_not_written_and_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    let theirs = folder.path().join("theirs");
    fs::write(&theirs, "").unwrap();
    fs::rename(&theirs, &path).unwrap();
    let mut notices = Vec::new();
    wait_until("a notice reports it", || {
        pipe.export(&[run(), tick(1)]).unwrap();
        notices.extend(pipe.take_notices());
        !notices.is_empty()
    });
    let [Notice::ExportFailing { reason, .. }] = &notices[..] else {
        panic!("{notices:?}")
    };
    assert!(reason.contains("which is not a named pipe"), "{reason}");
    assert!(pipe.take_notices().is_empty());
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn exporter_recreates_a_removed_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    pipe.export(&[run()]).unwrap();
    fs::remove_file(&path).unwrap();
    wait_until("it is there again", || path.exists());
    let mut reader = BufReader::new(
        OpenOptions::new()
            .read(true)
            .custom_flags(0)
            .open(&path)
            .unwrap(),
    );
    assert_eq!(lines(&mut reader, 1), ["run"]);
}

#[test]
fn each_rank_has_its_own_path() {
    assert_eq!(Address::parse("/run/x", 0), Address::Fifo("/run/x".into()));
    assert_eq!(
        Address::parse("unix:/run/x", 3),
        Address::Socket("/run/x.3".into())
    );
}
