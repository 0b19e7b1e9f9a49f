//! The pipe against real readers.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use headspace_agent::model::record::{RunRecord, SummaryRecord};

use super::*;
use crate::encode::json_lines::Kind;
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
fn told(record: &Record) -> String {
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
        all.push(told(&json_lines::decode(line.as_bytes()).unwrap()));
    }
    all
}

fn fifo(folder: &Path) -> (PipeExporter, PathBuf) {
    let path = folder.join("records");
    let address = Address::of(path.to_str().unwrap(), 0);
    (PipeExporter::open(&address).unwrap(), path)
}

fn socket(folder: &Path) -> (PipeExporter, PathBuf) {
    let path = folder.join("records");
    let address = Address::of(&format!("unix:{}", path.display()), 0);
    (PipeExporter::open(&address).unwrap(), path)
}

#[test]
fn a_pipe_is_made_for_the_user_alone_and_nothing_is_written_while_nobody_reads() {
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
fn each_reader_of_a_pipe_begins_with_the_run_and_the_last_summary() {
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
fn two_readers_of_a_socket_each_have_a_stream_of_their_own() {
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
fn a_reader_that_stops_loses_whole_records_that_are_counted_and_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = socket(folder.path());
    pipe.export(&[run()]).unwrap();
    let mut stopped = UnixStream::connect(&path).unwrap();
    let quick = UnixStream::connect(&path).unwrap();
    wait_until("both read", || readers(&pipe) == 2);
    let read = std::thread::spawn(move || {
        Records::new(quick, Kind::ALL)
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
        matches!(notices[..], [Notice::ExportFailing { .. }]) && pipe.take_notices().is_empty()
    );

    // It goes on at the beginning of a line.
    let mut behind = Vec::new();
    let mut piece = vec![0; 1 << 16];
    wait_until("what waited is read", || {
        let count = stopped.read(&mut piece).unwrap();
        behind.extend_from_slice(&piece[..count]);
        pipe.shared.lock().readers.iter().all(|r| !r.waits())
    });
    pipe.export(&[summary(9)]).unwrap();
    drop(pipe);
    stopped.read_to_end(&mut behind).unwrap();

    let mut records = Records::new(&behind[..], Kind::ALL);
    let seen: Vec<_> = records.by_ref().map(|r| told(&r.unwrap())).collect();
    assert_eq!(records.tally().skipped.total(), 0);
    assert_eq!(seen.last().unwrap(), "summary 9");
    let got = seen.len() + read.join().unwrap();
    assert_eq!(got as u64 + lost, 2 * (sent + 2));
}

#[test]
fn a_reader_of_a_pipe_that_leaves_in_the_middle_of_a_full_one_takes_nothing_along() {
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
fn a_line_larger_than_a_pipe_arrives_whole() {
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
fn what_is_left_at_the_end_is_delivered_and_a_stopped_reader_is_not_waited_for() {
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
fn a_thread_that_hangs_is_not_waited_for_at_the_end() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let pipe = PipeExporter::start(move |_| {
        let _ = held.recv();
    })
    .unwrap();

    drop(pipe);

    assert!(release.send(()).is_ok(), "it hangs still");
}

#[test]
fn what_its_thread_costs_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _) = fifo(folder.path());
    wait_until("CPU time is counted", || !pipe.cpu_time().is_zero());
}

#[test]
fn a_named_pipe_that_others_may_write_to_is_refused_and_one_that_they_may_read_is_not() {
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
fn a_named_pipe_of_another_user_is_refused() {
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
fn what_is_in_the_way_is_named_and_a_dead_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    fs::write(&path, "mine").unwrap();
    for text in ["", "unix:"] {
        let address = Address::of(&format!("{text}{}", path.display()), 0);
        let error = PipeExporter::open(&address).err().unwrap().to_string();
        assert!(error.contains("is there and not a"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    fs::remove_file(&path).unwrap();

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (first, _) = socket(folder.path());
    let second = PipeExporter::open(&Address::Socket(path.clone()))
        .err()
        .unwrap();
    assert!(
        second.to_string().contains("another process listens"),
        "{second}"
    );
    drop(first);
}

#[test]
fn what_somebody_puts_in_the_place_of_a_pipe_is_not_written_to_and_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut pipe, path) = fifo(folder.path());
    let theirs = folder.path().join("theirs");
    fs::write(&theirs, "").unwrap();
    fs::rename(&theirs, &path).unwrap();
    let mut notices = Vec::new();
    wait_until("it is told of", || {
        pipe.export(&[run(), tick(1)]).unwrap();
        notices.extend(pipe.take_notices());
        !notices.is_empty()
    });
    let [Notice::ExportFailing { reason, .. }] = &notices[..] else {
        panic!("{notices:?}")
    };
    assert!(reason.contains("not a named pipe any more"), "{reason}");
    assert!(pipe.take_notices().is_empty());
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn a_pipe_that_somebody_removed_is_made_again() {
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
fn ranks_have_a_path_each() {
    assert_eq!(Address::of("/run/x", 0), Address::Fifo("/run/x".into()));
    assert_eq!(
        Address::of("unix:/run/x", 3),
        Address::Socket("/run/x.3".into())
    );
}
