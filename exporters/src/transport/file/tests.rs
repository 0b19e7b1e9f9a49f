//! Tests the file exporter on a real file system.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use headspace_agent::model::record::RunRecord;

use super::*;
use crate::encode::reader::Records;
use crate::encode::test_records;
use crate::run_folder::{Follower, Run, files, part_path};

fn tick(number: u64) -> Record {
    test_records::record(number, RecordBody::Tick(test_records::tick(number)))
}

fn run_record() -> Record {
    test_records::record(
        0,
        RecordBody::Run(RunRecord {
            mode: headspace_agent::model::Mode::Probe,
            ..Default::default()
        }),
    )
}

fn kinds(path: &Path) -> Vec<&'static str> {
    let mut records = Records::new(fs::File::open(path).unwrap());
    let kinds = records
        .by_ref()
        .map(|r| match r.unwrap().body {
            RecordBody::Run(_) => "run",
            RecordBody::Tick(_) => "tick",
            _ => "other",
        })
        .collect();
    assert_eq!(records.tally().skipped.total(), 0);
    kinds
}

/// Every tick's number of merged ticks, over all files of the folder.
fn merged(folder: &Path) -> Vec<u32> {
    files(folder)
        .unwrap()
        .into_iter()
        .flat_map(|f| Records::new(fs::File::open(f.path).unwrap()))
        .filter_map(|r| match r.unwrap().body {
            RecordBody::Tick(tick) => Some(tick.merged),
            _ => None,
        })
        .collect()
}

#[test]
fn records_are_appended_as_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = FileExporter::create(folder.path(), 3, FileLimits::default()).unwrap();

    exporter.export(&[run_record(), tick(0)]).unwrap();
    exporter.export(&[tick(1)]).unwrap();

    assert_eq!(exporter.path, folder.path().join("rank3.jsonl"));
    assert_eq!(kinds(&exporter.path), ["run", "tick", "tick"]);
}

#[test]
fn exporter_recreates_a_deleted_folder_and_begins_it_with_the_run_record() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("runs/one");
    let mut exporter = FileExporter::create(&folder, 0, FileLimits::default()).unwrap();
    exporter.export(&[run_record(), tick(0)]).unwrap();

    fs::remove_dir_all(base.path().join("runs")).unwrap();
    exporter.export(&[tick(1)]).unwrap();
    exporter.export(&[tick(2)]).unwrap();

    assert_eq!(kinds(&exporter.path), ["run", "tick", "tick"]);
}

#[test]
fn exporter_keeps_the_parts_if_only_the_active_file_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = FileExporter::create(folder.path(), 0, small()).unwrap();
    exporter.export(&[run_record()]).unwrap();
    while !part_path(folder.path(), 0, 1).exists() {
        exporter.export(&[tick(0)]).unwrap();
    }
    let before: u32 = merged(folder.path()).iter().sum();

    fs::remove_file(&exporter.path).unwrap();
    while !part_path(folder.path(), 0, 2).exists() {
        exporter.export(&[tick(1)]).unwrap();
    }

    assert!(merged(folder.path()).iter().sum::<u32>() > before);
    assert_eq!(kinds(&part_path(folder.path(), 0, 2))[0], "run");
}

#[test]
fn a_folder_that_cannot_be_recreated_closes_the_exporter() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("runs");
    let mut exporter = FileExporter::create(&folder, 0, FileLimits::default()).unwrap();
    exporter.export(&[tick(0)]).unwrap();

    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "a file is in the way").unwrap();

    let error = exporter.export(&[tick(1)]).unwrap_err();
    assert!(matches!(error, ExportError::Closed(_)), "{error}");
    assert!(error.to_string().contains("rank0.jsonl"), "{error}");
}

#[test]
fn exporter_still_writes_to_a_folder_that_was_moved() {
    let base = tempfile::tempdir().unwrap();
    let (before, after) = (base.path().join("before"), base.path().join("after"));
    let mut exporter = FileExporter::create(&before, 0, FileLimits::default()).unwrap();
    exporter.export(&[tick(0)]).unwrap();

    fs::rename(&before, &after).unwrap();
    exporter.export(&[tick(1)]).unwrap();

    assert_eq!(kinds(&after.join("rank0.jsonl")), ["tick", "tick"]);
}

#[test]
fn exporter_reopens_a_closed_descriptor_and_does_not_write_to_its_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = FileExporter::create(folder.path(), 0, FileLimits::default()).unwrap();
    exporter.export(&[tick(0)]).unwrap();
    let number = exporter.file.file.as_raw_fd();

    // SAFETY: the descriptor is open, and the exporter is the one user of it besides: that it is
    // closed behind the exporter's back is what this test is about.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    let theirs = folder.path().join("checkpoint");
    let file = fs::File::create(&theirs).unwrap();
    exporter.export(&[tick(1)]).unwrap();

    assert_eq!(kinds(&exporter.path), ["tick", "tick"]);
    assert_eq!(fs::read(&theirs).unwrap(), b"");
    assert!(
        file.metadata().is_ok(),
        "descriptor {} was closed",
        file.as_raw_fd()
    );
}

#[test]
fn a_full_disk_loses_records_but_does_not_close_the_exporter() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = FileExporter::create(folder.path(), 0, FileLimits::default()).unwrap();
    let full = fs::OpenOptions::new()
        .read(true)
        .append(true)
        .open("/dev/full")
        .unwrap();
    exporter.file = AppendFile::from_file(full).unwrap();

    for number in 0..2 {
        let error = exporter.export(&[tick(number)]).unwrap_err();
        assert!(matches!(error, ExportError::Transient(_)), "{error}");
    }
}

#[test]
fn create_fails_if_the_folder_cannot_be_opened() {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("file"), "").unwrap();

    let error = FileExporter::create(&base.path().join("file/run"), 0, FileLimits::default());
    assert!(error.is_err_and(|e| e.to_string().contains("file/run/rank0.jsonl")));
}

/// Limits under which a part is made after some 30 ticks.
fn small() -> FileLimits {
    FileLimits {
        rotate_bytes: 64 << 10,
        total_bytes: 64 << 20,
        merge: 10,
    }
}

#[test]
fn rotation_and_merging_never_lose_or_duplicate_a_tick() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = FileExporter::create(folder.path(), 0, small()).unwrap();
    exporter.export(&[run_record()]).unwrap();

    for number in 0..200 {
        exporter.export(&[tick(number)]).unwrap();
        // What a kill here would leave.
        let ticks: u64 = merged(folder.path()).iter().map(|m| u64::from(*m)).sum();
        assert_eq!(ticks, number + 1);
    }

    assert!(files(folder.path()).unwrap().len() >= 5);
    assert!(merged(folder.path()).contains(&10));
    let run = Run::read(folder.path()).unwrap();
    assert_eq!(
        run.ranks[0].run.as_ref().unwrap().mode,
        headspace_agent::model::Mode::Probe
    );
}

#[test]
fn follower_returns_every_tick_once_during_rotation_and_merging() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = FileExporter::create(folder.path(), 0, small()).unwrap();
    exporter.export(&[tick(0)]).unwrap();
    let mut follower = Follower::open(folder.path()).unwrap();
    let mut seen = Vec::new();
    let mut look = || {
        for (_, record) in follower.poll().unwrap().records {
            if let RecordBody::Tick(tick) = record.body {
                seen.push(tick.tick);
            }
        }
    };

    for number in 1..200 {
        exporter.export(&[tick(number)]).unwrap();
        if number % 3 == 0 {
            look();
        }
    }
    look();

    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    assert!(files(folder.path()).unwrap().len() >= 5);
}

#[test]
fn a_kill_between_renaming_and_opening_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut exporter = FileExporter::create(folder, 0, FileLimits::default()).unwrap();
    exporter.export(&[tick(0)]).unwrap();
    drop(exporter);
    fs::rename(rank_path(folder, 0), part_path(folder, 0, 1)).unwrap();
    fs::write(folder.join("rank0.001.jsonl.tmp"), "{\"schema\":\"head").unwrap();

    assert_eq!(Run::read(folder).unwrap().tally().records, 1);
    let mut exporter = FileExporter::create(folder, 0, FileLimits::default()).unwrap();
    exporter.export(&[tick(1)]).unwrap();

    assert_eq!(Run::read(folder).unwrap().tally().records, 2);
}

#[test]
fn a_part_stays_unchanged_if_there_is_no_room_to_merge_it() {
    let folder = tempfile::tempdir().unwrap();
    // A folder in the place of the temporary file stands for a disk that refuses it.
    fs::create_dir(folder.path().join("rank0.001.jsonl.tmp")).unwrap();
    let mut exporter = FileExporter::create(folder.path(), 0, small()).unwrap();

    for number in 0..40 {
        exporter.export(&[tick(number)]).unwrap();
    }

    assert_eq!(merged(folder.path()), [1; 40]);
    assert_eq!(files(folder.path()).unwrap().len(), 2);
}

#[test]
fn a_stopped_exporter_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let limits = FileLimits {
        rotate_bytes: 3 << 20,
        ..small()
    };
    let mut exporter = FileExporter::create(folder.path(), 0, limits).unwrap();
    let temporary = folder.path().join("rank0.001.jsonl.tmp");
    let batch: Vec<Record> = (0..50).map(tick).collect();
    while !temporary.exists() {
        exporter.export(&batch).unwrap();
    }

    drop(exporter);

    assert!(!temporary.exists());
}

/// A week of one tick a second, 1 : 256 in ticks and in every limit, stays within its share of a
/// gibibyte; ticks of two phases, twice what an ordinary tick holds.
#[test]
fn a_week_of_ticks_stays_within_a_gibibyte() {
    const SCALE: u64 = 256;
    let folder = tempfile::tempdir().unwrap();
    let full = FileLimits::default();
    let limits = FileLimits {
        rotate_bytes: full.rotate_bytes / SCALE,
        total_bytes: full.total_bytes / SCALE,
        ..full
    };
    let mut exporter = FileExporter::create(folder.path(), 0, limits).unwrap();

    for number in 0..7 * 86_400 / SCALE {
        exporter.export(&[tick(number)]).unwrap();
    }

    let bytes = Run::read(folder.path()).unwrap().tally().bytes;
    assert!(
        bytes <= (1 << 30) / SCALE,
        "{} MiB for a week",
        (bytes * SCALE) >> 20
    );
}

#[test]
fn above_the_total_size_the_oldest_parts_are_merged_again_without_losing_ticks() {
    let folder = tempfile::tempdir().unwrap();
    let limits = FileLimits {
        rotate_bytes: 64 << 10,
        total_bytes: 40 << 10,
        merge: 4,
    };
    let mut exporter = FileExporter::create(folder.path(), 0, limits).unwrap();

    for number in 0..1000 {
        exporter.export(&[tick(number)]).unwrap();
    }

    let merged = merged(folder.path());
    assert_eq!(merged.iter().sum::<u32>(), 1000);
    assert!(
        merged.is_sorted_by(|a, b| a >= b || *a < 4 || *b < 4),
        "{merged:?}"
    );
    assert!(merged[0] > 16, "{merged:?}");
    let bytes = Run::read(folder.path()).unwrap().tally().bytes;
    let most = limits.total_bytes + 2 * limits.rotate_bytes;
    assert!(bytes <= most, "{bytes} of {most}");
}

#[test]
fn records_are_not_written_through_a_link_or_into_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let precious = folder.path().join("precious");
    fs::write(&precious, "kept").unwrap();
    std::os::unix::fs::symlink(&precious, rank_path(folder.path(), 0)).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        rank_path(folder.path(), 1),
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    fs::create_dir(rank_path(folder.path(), 2)).unwrap();

    let error = |rank| {
        let error = FileExporter::create(folder.path(), rank, FileLimits::default());
        error.err().unwrap().to_string()
    };

    assert!(error(0).contains("it is a symbolic link"), "{}", error(0));
    assert!(error(1).contains("it is no regular file"), "{}", error(1));
    assert!(error(2).contains("rank2.jsonl"), "{}", error(2));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
}
