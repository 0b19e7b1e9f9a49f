//! Tests of both sides together, in one process and with real child processes.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use headspace_agent::recording::stage::slot::Outcome;
use headspace_agent::recording::stage::table::STAGES;
use headspace_agent::recording::stage::{Worker, WorkerState, Workers};

use super::layout::{PROOF, SIZE};
use super::*;

struct Trainer {
    marker: Marker,
    found: FoundWorkers,
    _folder: tempfile::TempDir,
}

fn trainer() -> Trainer {
    let folder = tempfile::tempdir().unwrap();
    let marker = Folders::below(&[folder.path()]).mark().unwrap();
    Trainer {
        found: FoundWorkers::below(marker.clone()),
        marker,
        _folder: folder,
    }
}

impl Trainer {
    fn worker(&self, label: Option<&str>) -> WorkerFile {
        WorkerFile::create(&self.marker, label, false).unwrap()
    }

    fn files(&self) -> usize {
        fs::read_dir(self.marker.folder()).unwrap().count()
    }

    /// Assigns this process's file to a child that has ended, as if the child had created it.
    fn hand_to(&self, Ended(identity): Ended) {
        self.hand_over(0, identity);
    }

    fn hand_over(&self, number: u32, identity: Identity) {
        let here = Identity::here().unwrap();
        let own = self.marker.folder().join(format!("{here}-{number}"));
        let file = OpenOptions::new().write(true).open(&own).unwrap();
        file.write_all_at(&identity.started.to_ne_bytes(), 16)
            .unwrap();
        file.write_all_at(&identity.pid.to_ne_bytes(), 24).unwrap();
        fs::rename(own, self.marker.folder().join(format!("{identity}-0"))).unwrap();
    }
}

/// A process that has ended.
struct Ended(Identity);

fn ended() -> Ended {
    let mut child = sleeper();
    let identity = identity_of(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    Ended(identity)
}

fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    command.arg("600").stdout(Stdio::null()).spawn().unwrap()
}

fn identity_of(child: &Child) -> Identity {
    let pid = child.id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started = stat.rsplit(')').next().unwrap().split(' ').nth(20).unwrap();
    Identity {
        pid,
        started: started.parse().unwrap(),
    }
}

fn states(workers: &[Worker]) -> Vec<(String, WorkerState)> {
    workers
        .iter()
        .map(|worker| (worker.label.clone(), worker.state))
        .collect()
}

#[test]
fn the_trainer_reads_the_counts_of_a_worker() {
    let mut trainer = trainer();
    let worker = trainer.worker(Some("worker 3"));
    let slots = worker.slots();
    let (_, decode) = slots.stage("decode").unwrap();
    slots.stage("resize").unwrap();
    slots.queue("decoded", 8).unwrap().observe(3, 1_000_000);

    decode.record(5_000, Outcome::default());
    let seen = trainer.found.find().remove(0);
    decode.record(5_000, Outcome::default());

    assert_eq!(
        (seen.label.as_str(), seen.pid),
        ("worker 3", std::process::id())
    );
    assert_eq!(seen.state, WorkerState::Running);
    assert!(!std::ptr::eq(seen.region, slots.region()));
    let names = seen
        .region
        .stages
        .iter()
        .map_while(|stage| stage.name.get());
    assert_eq!(names.collect::<Vec<_>>(), ["decode", "resize"]);
    assert_eq!(seen.region.stages[0].busy.load(Relaxed), 10_000);
    assert_eq!(seen.region.queues[0].capacity.load(Relaxed), 8);
}

#[test]
fn every_slot_of_a_file_counts() {
    let mut trainer = trainer();
    let slots = trainer.worker(None).slots();
    for number in 0..STAGES {
        let (_, slot) = slots.stage(&number.to_string()).unwrap();
        slot.record(u64::MAX, Outcome::default());
    }

    let seen = trainer.found.find().remove(0);
    assert_eq!(seen.label, format!("pid {}", seen.pid));
    let counted = seen
        .region
        .stages
        .iter()
        .map(|stage| stage.exited.load(Relaxed));
    assert_eq!(counted.sum::<u64>(), STAGES as u64);
}

#[test]
fn a_worker_that_ends_without_a_mark_is_reported_once_as_lost_with_its_counts() {
    let mut trainer = trainer();
    let worker = trainer.worker(None);
    worker
        .slots()
        .stage("decode")
        .unwrap()
        .1
        .record(7, Outcome::default());
    trainer.hand_to(ended());

    let last = trainer.found.find().remove(0);

    assert_eq!(last.state, WorkerState::Lost);
    assert_eq!(last.region.stages[0].busy.load(Relaxed), 7);
    assert_eq!(trainer.files(), 0);
    assert_eq!(trainer.found.find().len(), 0);
    // A holder of the old reference reads zeros, and never unmapped memory.
    assert_eq!(last.region.stages[0].busy.load(Relaxed), 0);
}

#[test]
fn a_worker_that_marked_its_end_is_finished_once_it_has_ended() {
    let mut trainer = trainer();
    trainer.worker(None).finish();
    // Only the memory stays, so values that the worker counts meanwhile still arrive.
    assert_eq!(trainer.found.find()[0].state, WorkerState::Running);

    let gone = trainer.worker(None);
    gone.finish();
    trainer.hand_over(1, ended().0);

    assert_eq!(states(&trainer.found.find())[0].1, WorkerState::Finished);
}

#[test]
fn a_worker_killed_outside_a_stage_is_finished_and_within_a_stage_is_lost() {
    for (open, state) in [(false, WorkerState::Finished), (true, WorkerState::Lost)] {
        let mut trainer = trainer();
        let worker = WorkerFile::create(&trainer.marker, None, true).unwrap();
        let slots = worker.slots();
        let (_, decode) = slots.stage("decode").unwrap();
        if open {
            decode.enter(&headspace_agent::port::MonotonicClock::new(), true);
        }
        trainer.hand_to(ended());

        assert_eq!(trainer.found.find()[0].state, state);
    }
}

#[test]
fn a_kill_is_found_within_a_few_polls_for_any_number_of_workers() {
    let mut trainer = trainer();
    for _ in 0..100 {
        trainer.worker(None);
        trainer.hand_to(ended());
    }
    let mut child = sleeper();
    trainer.worker(None);
    trainer.hand_to(Ended(identity_of(&child)));

    // The pids of the hundred workers are unused, which is inexpensive to detect.
    let first = trainer.found.find();
    assert_eq!(
        first
            .iter()
            .filter(|w| w.state == WorkerState::Lost)
            .count(),
        100
    );
    assert_eq!(first.last().unwrap().state, WorkerState::Running);
    child.kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The child remains a zombie that waits for its parent: only its state shows that it has ended.
    while trainer.found.find()[0].state == WorkerState::Running {
        assert!(Instant::now() < deadline, "not reported as lost");
    }
    child.wait().unwrap();
}

#[test]
fn running_workers_have_different_labels() {
    let mut trainer = trainer();
    let mut child = sleeper();
    trainer.worker(Some("worker 0"));
    trainer.hand_to(Ended(identity_of(&child)));
    let own = trainer.worker(Some("worker 0"));

    let mut labels = states(&trainer.found.find());
    labels.sort_by(|a, b| a.0.cmp(&b.0));
    let running = WorkerState::Running;
    assert_eq!(
        labels,
        [
            ("worker 0".into(), running),
            ("worker 0 #2".into(), running)
        ]
    );
    assert!(own.is_wanted());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn incomplete_and_foreign_files_are_not_read() {
    type Damage = fn(&fs::File);
    let damages: [Damage; 6] = [
        |file| file.set_len(0).unwrap(),
        |file| file.set_len(SIZE as u64 - 1).unwrap(),
        |file| file.set_len(SIZE as u64 + 1).unwrap(),
        |file| file.write_all_at(b"x", 0).unwrap(),
        |file| file.write_all_at(b"x", 8).unwrap(),
        |file| file.write_all_at(b"xxxx", PROOF as u64 - 4).unwrap(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let mut trainer = trainer();
        trainer.worker(None);
        let path = fs::read_dir(trainer.marker.folder()).unwrap().next();
        let path = path.unwrap().unwrap().path();
        damage(&OpenOptions::new().write(true).open(&path).unwrap());

        assert_eq!(trainer.found.find().len(), 0, "{number}");
        assert_eq!(trainer.files(), 1, "{number}: its process lives");
        fs::rename(path, trainer.marker.folder().join("1-1-0")).unwrap();
        assert_eq!(trainer.found.find().len(), 0, "{number}");
        assert_eq!(trainer.files(), 0, "{number}: its process is gone");
    }
}

#[test]
fn foreign_files_are_left_alone_until_the_end() {
    let mut trainer = trainer();
    let here = Identity::here().unwrap();
    fs::write(trainer.marker.folder().join("notes"), "x").unwrap();
    fs::create_dir(trainer.marker.folder().join(format!("{here}-0"))).unwrap();
    std::os::unix::fs::symlink(
        "/dev/zero",
        trainer.marker.folder().join(format!("{here}-1")),
    )
    .unwrap();

    assert_eq!(trainer.found.find().len(), 0);
    assert_eq!(trainer.files(), 3);
    trainer.marker.remove();
    assert!(!trainer.marker.folder().exists());
}

#[test]
fn without_a_trainer_there_is_no_file_and_after_its_end_it_is_not_wanted() {
    let trainer = trainer();
    let worker = trainer.worker(None);
    let slots = worker.slots();
    let (_, decode) = slots.stage("decode").unwrap();
    assert!(worker.is_wanted());

    trainer.marker.remove();
    decode.record(7, Outcome::default());

    assert!(!worker.is_wanted());
    assert!(WorkerFile::create(&trainer.marker, None, false).is_err());
    // A stage registered now is stored elsewhere.
    let (_, late) = slots.stage("late").unwrap();
    late.record(7, Outcome::default());
    assert_eq!(slots.region().stages[0].busy.load(Relaxed), 7);
    assert_eq!(slots.region().stages[1].name.get(), None);
}

#[test]
fn a_process_that_replaced_its_program_has_one_more_file() {
    let mut trainer = trainer();
    trainer.worker(None);
    trainer.worker(None);

    assert_eq!(trainer.found.find().len(), 2);
    for _ in 2..16 {
        trainer.worker(None);
    }
    assert!(WorkerFile::create(&trainer.marker, None, false).is_err());
}

#[test]
fn thousands_of_workers_one_after_another_share_the_memory_of_a_few() {
    let mut trainer = trainer();
    let mut places = std::collections::HashSet::new();
    for _ in 0..50 {
        trainer.worker(None);
        trainer.hand_to(Ended(Identity { pid: 1, started: 1 }));
        let found = trainer.found.find();
        assert_eq!(found.len(), 1);
        places.insert(std::ptr::from_ref(found[0].region) as usize);
    }

    assert!(places.len() <= 2, "{} places", places.len());
}

#[test]
fn a_pool_recreated_between_two_polls_reuses_its_names() {
    let mut trainer = trainer();
    for (number, started) in [100, 100, 200, 200].into_iter().enumerate() {
        trainer.worker(Some("pool worker"));
        // Pids that no process has.
        let pid = 4_194_300 + u32::try_from(number).unwrap();
        trainer.hand_over(0, Identity { pid, started });
    }

    let mut labels: Vec<String> = trainer.found.find().into_iter().map(|w| w.label).collect();
    labels.sort_unstable();

    let twice = [
        "pool worker",
        "pool worker",
        "pool worker #2",
        "pool worker #2",
    ];
    assert_eq!(labels, twice);
}

#[test]
fn a_worker_that_was_busy_when_another_started_has_its_own_name() {
    let mut trainer = trainer();
    for (number, started) in [100, 150].into_iter().enumerate() {
        let worker = trainer.worker(Some("pool worker"));
        let (_, decode) = worker.slots().stage("decode").unwrap();
        decode.record(5_000_000_000, Outcome::default());
        let pid = 4_194_300 + u32::try_from(number).unwrap();
        trainer.hand_over(0, Identity { pid, started });
    }

    let mut labels: Vec<String> = trainer.found.find().into_iter().map(|w| w.label).collect();
    labels.sort_unstable();

    assert_eq!(labels, ["pool worker", "pool worker #2"]);
}
