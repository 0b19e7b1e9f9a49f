//! What a reader returns for slots that change between reads.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::*;
use crate::model::CallLevels;
use crate::recording::stage::slot::Outcome;
use crate::recording::stage::slot::WITHIN_SEVERAL;
use crate::recording::stage::{Slots, StageSlot, Writers};

const MS: u64 = 1_000_000;

fn slots() -> Slots {
    Slots::new(Region::private().unwrap())
}

fn notice_log() -> (NoticeLog, Arc<Mutex<Vec<String>>>) {
    let posted = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&posted);
    let notice_log = NoticeLog::new(Box::new(move |notice| {
        log.lock().unwrap().push(notice.to_string());
    }));
    (notice_log, posted)
}

fn read(reader: &mut StageReader) -> PipelineDelta {
    reader.read(Duration::ZERO, &notice_log().0)
}

fn call(slot: &StageSlot, took_ms: u64) {
    slot.record(took_ms * MS, Outcome::default());
}

/// Workers that are listed by the test.
#[derive(Clone, Default)]
struct Listed(Arc<Mutex<Vec<Worker>>>);

impl Listed {
    fn set(&self, workers: &[(&str, u32, &Slots, WorkerState)]) {
        *self.0.lock().unwrap() = workers
            .iter()
            .map(|(label, pid, slots, state)| Worker {
                label: (*label).to_owned(),
                pid: *pid,
                is_descendant: true,
                region: slots.region(),
                state: *state,
            })
            .collect();
    }
}

impl Workers for Listed {
    fn find(&mut self) -> Vec<Worker> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn a_read_returns_the_activity_since_the_last_read() {
    let slots = slots();
    let (_, decode) = slots.stage("decode").unwrap();
    call(decode, 5);
    let mut reader = StageReader::new(Some(slots.region()), None);

    call(decode, 10);
    call(decode, 20);
    let first = read(&mut reader).stages.remove(0);
    decode.record(
        30 * MS,
        Outcome {
            failed: true,
            items_in: 4,
            bytes: 100,
            nested: 7 * MS,
            ..Outcome::default()
        },
    );
    let second = read(&mut reader).stages.remove(0);
    let third = read(&mut reader).stages.remove(0);

    assert_eq!((first.time.count(), first.time.sum_nanos()), (2, 30 * MS));
    assert_eq!((first.items_in, first.items_out, first.failures), (2, 2, 0));
    assert_eq!(first.bytes, None);
    assert_eq!((second.time.count(), second.time.sum_nanos()), (1, 30 * MS));
    assert_eq!(
        (second.items_in, second.items_out, second.failures),
        (4, 0, 1)
    );
    assert_eq!((second.bytes, second.nested_ns), (Some(100), 7 * MS));
    assert_eq!(
        (third.time.count(), third.items_in, third.bytes),
        (0, 0, Some(0))
    );
}

#[test]
fn a_stage_is_called_within_another_or_in_several() {
    let slots = slots();
    let (load_number, load) = slots.stage("load").unwrap();
    let (_, decode) = slots.stage("decode").unwrap();
    let (_, resize) = slots.stage("resize").unwrap();
    let load_number = u32::try_from(load_number).unwrap();
    // The enclosing stage of an earlier run does not count.
    load.within.store(load_number + 3, Relaxed);
    let mut reader = StageReader::new(Some(slots.region()), None);
    decode.within.store(load_number + 1, Relaxed);
    resize.within.store(WITHIN_SEVERAL, Relaxed);
    for slot in [load, decode, resize] {
        call(slot, 1);
    }

    let within: Vec<_> = read(&mut reader)
        .stages
        .into_iter()
        .map(|s| s.within)
        .collect();

    assert_eq!(within, [None, Some("load".to_owned()), None]);
}

#[test]
fn the_peak_includes_calls_that_began_before_the_tick() {
    let clock = crate::port::MonotonicClock::new();
    let slots = slots();
    let (_, decode) = slots.stage("decode").unwrap();
    let mut reader = StageReader::new(Some(slots.region()), None);
    let peak = |reader: &mut StageReader| read(reader).stages.first().map(|s| s.peak);
    assert_eq!(peak(&mut reader), None);

    let calls: Vec<_> = (0..3).map(|_| decode.enter(&clock, false)).collect();
    let begun = peak(&mut reader);
    let going_on = peak(&mut reader);
    for call in calls {
        decode.exit(&clock, call, Outcome::default());
    }
    let ended = peak(&mut reader);
    let at_rest = peak(&mut reader);

    assert_eq!([begun, going_on, ended, at_rest], [3, 3, 3, 0].map(Some));
}

#[test]
fn buckets_that_wrap_and_bounds_that_widen_lose_no_call() {
    let slots = slots();
    let (_, decode) = slots.stage("decode").unwrap();
    call(decode, 10);
    let used = decode
        .buckets
        .iter()
        .position(|b| b.load(Relaxed) > 0)
        .unwrap();
    decode.buckets[used].store(u32::MAX - 1, Relaxed);
    for total in [&decode.entered, &decode.exited] {
        total.store(2 * (1 << 32) + u64::from(u32::MAX - 1), Relaxed);
    }
    let mut reader = StageReader::new(Some(slots.region()), None);

    for took_ms in [10, 10, 10, 1, 1000] {
        call(decode, took_ms);
    }
    let time = read(&mut reader).stages.remove(0).time;
    call(decode, 100);
    let later = read(&mut reader).stages.remove(0).time;

    assert_eq!((time.count(), time.sum_nanos()), (5, 1031 * MS));
    assert!((time.quantile_ms(0.5).unwrap() / 10.0 - 1.0).abs() < 0.01);
    assert!((time.max_ms().unwrap() / 1000.0 - 1.0).abs() < 0.01);
    assert_eq!((later.count(), later.sum_nanos()), (1, 100 * MS));
}

#[test]
fn items_that_are_reported_apart_from_calls_count_without_a_call() {
    let slots = slots();
    let (_, collate) = slots.stage("collate").unwrap();
    let mut reader = StageReader::new(Some(slots.region()), None);

    call(collate, 10);
    collate.extra_out.fetch_sub(1, Relaxed);
    let called = read(&mut reader).stages.remove(0);
    collate.extra_out.fetch_add(1, Relaxed);
    let sample = read(&mut reader).stages.remove(0);

    assert_eq!((called.time.count(), called.items_out), (1, 0));
    assert_eq!(
        (sample.time.count(), sample.items_in, sample.items_out),
        (0, 0, 1)
    );
}

#[test]
fn a_call_without_an_item_that_is_read_in_two_parts_has_none() {
    let slots = slots();
    let (_, collate) = slots.stage("collate").unwrap();
    let mut reader = StageReader::new(Some(slots.region()), None);

    call(collate, 10);
    let called = read(&mut reader).stages.remove(0);
    collate.extra_out.fetch_sub(1, Relaxed);
    let less = read(&mut reader).stages.remove(0);
    call(collate, 10);
    let next = read(&mut reader).stages.remove(0);

    let given = [called, less, next].map(|sample| sample.items_out);
    assert_eq!(given, [1, 0, 0], "two calls, one of them without an item");
}

#[test]
fn a_call_that_is_read_in_two_parts_counts_once() {
    let slots = slots();
    let (_, decode) = slots.stage("decode").unwrap();
    let mut reader = StageReader::new(Some(slots.region()), None);
    call(decode, 10);
    call(decode, 10);
    // The second call's bucket is there, its time and its end are not yet.
    decode.busy.fetch_sub(10 * MS, Relaxed);
    decode.exited.fetch_sub(1, Relaxed);

    let first = read(&mut reader).stages.remove(0).time;
    decode.busy.fetch_add(10 * MS, Relaxed);
    decode.exited.fetch_add(1, Relaxed);
    let second = read(&mut reader).stages.remove(0).time;

    assert_eq!(first.count(), 2);
    assert!((first.sum_nanos() as f64 / (20 * MS) as f64 - 1.0).abs() < 0.01);
    assert_eq!((second.count(), second.sum_nanos()), (0, 0));
}

#[test]
fn the_calls_at_once_are_those_since_the_last_read() {
    let slots = slots();
    let (_, decode) = slots.stage("decode").unwrap();
    let mut reader = StageReader::new(Some(slots.region()), None);
    let mut levels_after = |level: u64, took_ms: u64| {
        call(decode, took_ms);
        decode.record_level(Writers::One, level, took_ms * MS);
        read(&mut reader).stages.remove(0).levels
    };

    levels_after(1, 10);
    let second = levels_after(2, 20);
    let impossible = levels_after(1, u64::from(u32::MAX));

    let found: Vec<_> = second
        .iter()
        .map(|(at, of)| (at, of.calls, of.sum_ns))
        .collect();
    assert_eq!(found, [(1, 0, 0), (2, 1, 20 * MS)]);
    assert_eq!(impossible, CallLevels::default());
}

#[test]
fn a_slot_with_impossible_values_is_read_no_more() {
    type Damage = fn(&StageSlot);
    let damages: [Damage; 6] = [
        |slot| slot.exited.store(u64::MAX / 2, Relaxed),
        |slot| slot.busy.store(u64::MAX - 5, Relaxed),
        |slot| slot.extra_in.store(i64::MIN, Relaxed),
        |slot| slot.peak.store(u32::MAX, Relaxed),
        |slot| {
            slot.bounds[0].store(u32::MAX, Relaxed);
            slot.bounds[1].store(u32::MAX, Relaxed);
            slot.buckets[7].store(u32::MAX, Relaxed);
        },
        |slot| slot.entered.store(u64::MAX / 4, Relaxed),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let slots = slots();
        let (_, decode) = slots.stage("decode").unwrap();
        let (_, resize) = slots.stage("resize").unwrap();
        decode.within.store(u32::MAX - 7, Relaxed);
        let mut reader = StageReader::new(Some(slots.region()), None);
        for slot in [decode, resize] {
            call(slot, 1);
        }
        damage(decode);

        let sample: Vec<_> = read(&mut reader)
            .stages
            .into_iter()
            .map(|s| s.name)
            .collect();
        call(decode, 1);
        let later: Vec<_> = read(&mut reader)
            .stages
            .into_iter()
            .map(|s| s.name)
            .collect();

        assert_eq!(
            (sample, later),
            (vec!["resize".to_owned()], vec!["resize".to_owned()]),
            "{number}"
        );
    }
}

#[test]
fn a_queue_has_its_empty_and_full_time() {
    let slots = slots();
    let queue = slots.queue("decoded", 4).unwrap();
    queue.last.store(1, Relaxed);
    let mut reader = StageReader::new(Some(slots.region()), None);
    for (depth, weight_ms) in [(0, 30), (4, 10), (1, 60)] {
        queue.observe(depth, weight_ms * MS);
    }

    let sample = read(&mut reader).queues.remove(0);
    let after = read(&mut reader).queues.remove(0);

    assert_eq!(
        (sample.samples, sample.capacity, sample.last),
        (3, Some(4), true)
    );
    assert_eq!(
        (sample.empty(), sample.full(), sample.depth()),
        (Some(0.3), Some(0.1), Some(1.0))
    );
    assert_eq!((sample.deepest, after.deepest), (4, 0));
    assert_eq!((after.samples, after.empty()), (0, None));
}

#[test]
fn an_ended_worker_is_read_once_more_and_a_lost_worker_has_one_notice() {
    let (own, ends, dies) = (slots(), slots(), slots());
    let (notice_log, posted) = notice_log();
    let listed = Listed::default();
    let mut reader = StageReader::new(Some(own.region()), Some(Box::new(listed.clone())));
    let running = WorkerState::Running;
    listed.set(&[
        ("worker 0", 10, &ends, running),
        ("worker 1", 11, &dies, running),
    ]);
    for slots in [&own, &ends, &dies] {
        call(slots.stage("decode").unwrap().1, 10);
    }
    let of = |delta: &PipelineDelta| -> Vec<_> {
        let sample = delta
            .stages
            .iter()
            .map(|s| (s.worker.clone(), s.time.count()));
        sample.collect()
    };
    let worker = |n| Some(format!("worker {n}"));

    let first = reader.read(Duration::ZERO, &notice_log);
    call(ends.stage("decode").unwrap().1, 10);
    call(dies.stage("decode").unwrap().1, 10);
    listed.set(&[
        ("worker 0", 10, &ends, WorkerState::Finished),
        ("worker 1", 11, &dies, WorkerState::Lost),
    ]);
    let second = reader.read(Duration::ZERO, &notice_log);
    listed.set(&[]);
    let third = reader.read(Duration::ZERO, &notice_log);
    reader.report_lost_workers(Duration::ZERO, false, &notice_log);
    assert!(posted.lock().unwrap().is_empty());
    reader.report_lost_workers(Duration::ZERO, true, &notice_log);

    assert_eq!(of(&first), [(None, 1), (worker(0), 1), (worker(1), 1)]);
    assert_eq!(of(&second), [(None, 0), (worker(0), 1), (worker(1), 1)]);
    assert_eq!(of(&third), [(None, 0)]);
    let posted = posted.lock().unwrap();
    assert_eq!(posted.len(), 1);
    assert!(
        posted[0].starts_with("`worker 1` (process 11) exited unexpectedly"),
        "{}",
        posted[0]
    );
}

#[test]
fn a_replacement_worker_adds_to_the_same_label() {
    let (before, after) = (slots(), slots());
    let listed = Listed::default();
    let mut reader = StageReader::new(None, Some(Box::new(listed.clone())));
    for slots in [&before, &after] {
        call(slots.stage("decode").unwrap().1, 10);
        slots.queue("out", 2).unwrap().observe(1, MS);
    }
    listed.set(&[
        ("worker 0", 10, &before, WorkerState::Finished),
        ("worker 0", 12, &after, WorkerState::Running),
    ]);

    let delta = read(&mut reader);

    assert_eq!((delta.stages.len(), delta.queues.len()), (1, 1));
    assert_eq!(
        (delta.stages[0].time.count(), delta.queues[0].samples),
        (2, 2)
    );
}

#[test]
fn a_worker_finder_that_panics_is_retired_with_one_notice() {
    struct Broken;
    impl Workers for Broken {
        fn find(&mut self) -> Vec<Worker> {
            panic!("no")
        }
    }
    let own = slots();
    let (notice_log, posted) = notice_log();
    let listed = Listed::default();
    let mut reader = StageReader::new(Some(own.region()), Some(Box::new(listed)));
    reader.finder = Some(Box::new(Broken));
    call(own.stage("decode").unwrap().1, 10);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));

    let counts = [0, 1].map(|_| reader.read(Duration::ZERO, &notice_log).stages.len());
    std::panic::set_hook(hook);

    assert_eq!(counts, [1, 1]);
    assert_eq!(posted.lock().unwrap().len(), 1);
}
