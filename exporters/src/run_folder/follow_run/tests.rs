//! Tests of `Follower` on a real file system, with the real writer.

use std::io::Write;

use headspace_agent::model::RecordBody;

use super::super::{part_path, rank_path};
use super::*;
use crate::encode::json_lines::LineError;
use crate::encode::test_records;

fn line(number: u64) -> String {
    test_records::line(&test_records::record(
        number,
        RecordBody::Tick(test_records::tick(number)),
    ))
}

fn append(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// The ranks and tick numbers that a poll returns.
fn ticks(follower: &mut Follower) -> Vec<(u32, u64)> {
    let polled = follower.poll().unwrap();
    polled
        .records
        .iter()
        .map(|(rank, record)| match &record.body {
            RecordBody::Tick(tick) => (*rank, tick.tick),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn each_poll_returns_the_complete_lines_appended_since_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = rank_path(folder.path(), 0);
    append(&path, &line(0));
    let mut follower = Follower::open(folder.path()).unwrap();

    assert_eq!(ticks(&mut follower), [(0, 0)]);
    assert_eq!(ticks(&mut follower), []);
    let next = line(1);
    append(&path, &next[..40]);
    assert_eq!(ticks(&mut follower), []);
    append(&path, &next[40..]);
    append(&path, &line(2));
    assert_eq!(ticks(&mut follower), [(0, 1), (0, 2)]);
    assert_eq!(follower.tally().skipped.total(), 0);
}

#[test]
fn a_device_in_place_of_a_file_is_named_and_a_file_that_replaces_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = rank_path(folder.path(), 0);
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let mut follower = Follower::open(folder.path()).unwrap();

    let error = follower.poll().unwrap_err().to_string();
    let named = format!("cannot read `{}`: it is not a regular file", path.display());
    assert_eq!(error, named);

    fs::remove_file(&path).unwrap();
    append(&path, &line(0));
    assert_eq!(ticks(&mut follower), [(0, 0)]);
}

#[test]
fn follower_does_not_return_a_line_that_the_writer_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = rank_path(folder.path(), 0);
    append(&path, &line(0));
    let whole = fs::metadata(&path).unwrap().len();
    append(&path, &line(1)[..60]);
    let mut follower = Follower::open(folder.path()).unwrap();
    assert_eq!(ticks(&mut follower), [(0, 0)]);

    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(whole)
        .unwrap();
    append(&path, &line(2));

    assert_eq!(ticks(&mut follower), [(0, 2)]);
    assert_eq!(follower.tally().skipped.total(), 0);
}

#[test]
fn follower_reads_files_that_become_parts_between_polls_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = rank_path(folder, 0);
    append(&part_path(folder, 0, 1), &line(0));
    append(&path, &line(1));
    let mut follower = Follower::open(folder).unwrap();
    assert_eq!(ticks(&mut follower), [(0, 0), (0, 1)]);

    append(&path, &line(2));
    fs::rename(&path, part_path(folder, 0, 2)).unwrap();
    append(&path, &line(3));
    fs::rename(&path, part_path(folder, 0, 3)).unwrap();
    // Merging replaces a part by another file.
    fs::remove_file(part_path(folder, 0, 2)).unwrap();
    append(&part_path(folder, 0, 2), &line(99));
    assert_eq!(ticks(&mut follower), [(0, 2), (0, 3)]);
    append(&path, &line(4));
    assert_eq!(ticks(&mut follower), [(0, 4)]);
    assert_eq!(ticks(&mut follower), []);
}

#[cfg(unix)]
#[test]
fn follower_treats_a_link_to_a_run_as_a_run_of_the_base() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("links");
    fs::create_dir(&base).unwrap();
    let mut follower = Follower::in_base(&base);
    for (number, name) in ["2026-11-21T09-30-12-1", "2026-11-21T09-40-00-2"]
        .into_iter()
        .enumerate()
    {
        let run = folder.path().join(name);
        fs::create_dir(&run).unwrap();
        append(&rank_path(&run, 0), &line(number as u64));
        std::os::unix::fs::symlink(&run, base.join(name)).unwrap();
        let polled = follower.poll().unwrap();
        assert!(polled.another_run, "{name}");
        assert_eq!(polled.records.len(), 1);
    }
}

#[test]
fn follower_finds_ranks_that_appear_later() {
    let folder = tempfile::tempdir().unwrap();
    append(&rank_path(folder.path(), 0), &line(0));
    let mut follower = Follower::open(folder.path()).unwrap();
    assert_eq!(ticks(&mut follower), [(0, 0)]);

    append(&rank_path(folder.path(), 1), &line(7));
    append(&rank_path(folder.path(), 0), &line(1));

    assert_eq!(ticks(&mut follower), [(0, 1), (1, 7)]);
}

#[test]
fn follower_waits_for_a_missing_base_and_switches_to_a_later_run() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path().join("runs");
    let mut follower = Follower::in_base(&base);
    assert!(follower.poll().unwrap().records.is_empty() && follower.run().is_none());

    let run = |name: &str, number| {
        let folder = base.join(name);
        fs::create_dir_all(&folder).unwrap();
        append(&rank_path(&folder, 0), &line(number));
    };
    run("2026-11-21T09-30-12-1", 5);
    let polled = follower.poll().unwrap();
    assert!(polled.another_run && polled.records.len() == 1);

    // The run's folder exists first without its file.
    fs::create_dir(base.join("2026-11-21T09-40-00-2")).unwrap();
    assert!(!follower.poll().unwrap().another_run);
    run("2026-11-21T09-40-00-2", 6);
    let polled = follower.poll().unwrap();
    assert!(polled.another_run && polled.records.len() == 1);
    assert_eq!(follower.run().unwrap(), base.join("2026-11-21T09-40-00-2"));

    // The previous run still writes, but the follower does not switch back to it.
    run("2026-11-21T09-30-12-1", 7);
    assert_eq!(ticks(&mut follower), []);
}

#[test]
fn follower_reads_a_recreated_folder_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    append(&part_path(&run, 0, 1), &line(0));
    append(&rank_path(&run, 0), &line(1));
    let mut follower = Follower::open(&run).unwrap();
    assert_eq!(ticks(&mut follower), [(0, 0), (0, 1)]);

    fs::remove_dir_all(&run).unwrap();
    assert_eq!(ticks(&mut follower), []);
    fs::create_dir(&run).unwrap();
    append(&rank_path(&run, 0), &line(8));
    assert_eq!(ticks(&mut follower), [(0, 8)]);
}

#[test]
fn several_polls_return_a_long_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = rank_path(folder.path(), 0);
    let many = POLL_BYTES / line(1000).len() * 2;
    let text: String = (1000..1000 + many as u64).map(line).collect();
    append(&path, &text);
    let mut follower = Follower::open(folder.path()).unwrap();

    let (mut polls, mut count) = (0, 0);
    loop {
        let polled = follower.poll().unwrap();
        count += polled.records.len();
        polls += 1;
        if !polled.more {
            break;
        }
    }

    assert_eq!(count, many);
    assert!(polls >= 2);
}

#[test]
fn follower_reads_a_copy_of_a_file_under_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.txt");
    append(&path, &format!("noise\n{}", line(3)));
    let mut follower = Follower::open(&path).unwrap();

    assert_eq!(ticks(&mut follower), [(0, 3)]);
    assert_eq!(follower.tally().skipped.count(LineError::Foreign), 1);
    assert!(Follower::open(&folder.path().join("none")).is_err());
}
