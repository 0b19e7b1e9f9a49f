use std::collections::HashMap;

use headspace_agent::model::Distribution;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{
    EpochRecord, LineRecord, Phase, Phase::Live, Phase::Replay, ProbeRecord, QueueTick, Severity,
    StageTick, WindowRecord,
};
use proptest::prelude::*;
use prost::Message;

use super::super::{stacks, test_records};
use super::schema::{Data, EventType, Trace, TrackEvent};
use super::*;

const S: u64 = 1_000_000_000;

fn written(records: &[Record]) -> Trace {
    let mut trace = PerfettoTrace::default();
    let mut bytes: Vec<u8> = records.iter().flat_map(|r| trace.add_record(r)).collect();
    bytes.extend(trace.finish());
    Trace::decode(&bytes[..]).unwrap()
}

/// Events with their time and their track's path below the process.
fn events(whole: &Trace) -> Vec<(u64, String, TrackEvent)> {
    let mut names: HashMap<u64, String> = HashMap::new();
    let mut found = Vec::new();
    for packet in &whole.packet {
        match packet.data.as_ref().unwrap() {
            Data::TrackDescriptor(track) => {
                let own = match (&track.process, &track.name) {
                    (Some(process), _) => process.process_name.clone(),
                    (None, name) => name.clone().unwrap(),
                };
                let above = track
                    .parent_uuid
                    .map(|parent| format!("{}/", names[&parent]));
                names.insert(track.uuid, above.unwrap_or_default() + &own);
            }
            Data::TrackEvent(event) => {
                let track = names[&event.track_uuid].clone();
                found.push((packet.timestamp.unwrap(), track, event.clone()));
            }
            Data::ClockSnapshot(_) => {}
        }
    }
    found
}

/// Slices by track: when they began and ended, and what they are called.
fn slices(whole: &Trace) -> HashMap<String, Vec<(u64, u64, String)>> {
    let mut open: HashMap<String, Vec<(u64, String)>> = HashMap::new();
    let mut done: HashMap<String, Vec<_>> = HashMap::new();
    for (at, track, event) in events(whole) {
        let open = open.entry(track.clone()).or_default();
        if event.r#type() == EventType::SliceBegin {
            open.push((at, event.name.unwrap()));
        } else if event.r#type() == EventType::SliceEnd {
            let (from, name) = open.pop().unwrap();
            done.entry(track).or_default().push((from, at, name));
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    done
}

fn counts(whole: &Trace, track: &str) -> Vec<(u64, f64)> {
    let of_track = events(whole)
        .into_iter()
        .filter(|(_, name, _)| name == track);
    of_track
        .filter_map(|(at, _, event)| Some((at, event.double_counter_value?)))
        .collect()
}

fn durations(count: u64, ms: u64) -> DistributionRecord {
    let mut d = Distribution::default();
    for _ in 0..count {
        d.record(ms * 1_000_000);
    }
    DistributionRecord::from(&d)
}

fn steps(phase: Phase, first_step: u64, steps: u64, wait_ms: u64, compute_ms: u64) -> LoopTick {
    LoopTick {
        name: "train".into(),
        phase,
        first_step,
        steps,
        wait: durations(steps, wait_ms),
        compute: durations(steps, compute_ms),
        step: durations(steps, wait_ms + compute_ms),
        ..LoopTick::default()
    }
}

/// A tick of a second's interval that ends `at` seconds after the beginning, 100 s after 1970.
fn tick(at: u64, edit: impl FnOnce(&mut TickRecord)) -> Record {
    let mut tick = TickRecord {
        at_s: at as f64,
        interval_s: 1.0,
        ..TickRecord::default()
    };
    edit(&mut tick);
    test_records::record((100 + at) * S, RecordBody::Tick(tick))
}

#[test]
fn stacks_are_nested_slices_whose_lengths_are_totals() {
    let stacks = stacks::tests::example();
    let line = LineRecord {
        stage: Some("fetch".into()),
        file: stacks.frames[1].file.clone(),
        line: 7,
        predicted_step_ms: 12.5,
        ..LineRecord::default()
    };
    let summary = SummaryRecord {
        lines: vec![line],
        ..SummaryRecord::default()
    };
    let last = |body| test_records::record(102 * S, body);
    let whole = written(&[
        tick(1, |_| {}),
        last(RecordBody::Stacks(Box::default())),
        last(RecordBody::Stacks(Box::new(stacks))),
        last(RecordBody::Summary(Box::new(summary))),
    ]);

    let track = "rank 0/stacks of fetch (totals)";
    let slices = &slices(&whole)[track];
    let begin = 100 * S;
    let read = (begin, begin + 3 * S / 2, "read; all data.py:7".to_owned());
    let load = (begin, begin + 2 * S, "load data.py:5".to_owned());
    assert_eq!(slices, &[read, load]);
    let events = events(&whole);
    let gains = events.iter().filter(|(_, name, event)| {
        let has = |note: &schema::DebugAnnotation| note.name == "step at half, ms";
        name == track && event.debug_annotations.iter().any(has)
    });
    assert_eq!(gains.count(), 1, "only the line with a gain");
}

#[test]
fn ticks_are_slices_of_their_phase_and_loop_phases_divide_a_tick_by_duration() {
    let whole = written(&[
        tick(1, |t| t.loops = vec![steps(Live, 0, 10, 20, 10)]),
        tick(2, |t| {
            t.loops = vec![steps(Replay, 20, 20, 0, 10), steps(Live, 10, 10, 50, 10)];
        }),
    ]);
    let found = &slices(&whole)["rank 0/loop train/steps"];
    let expected = [
        (100 * S, 101 * S, "10 steps"),
        (101 * S, 101 * S + S / 4 * 3, "10 steps"),
        (100 * S, 101 * S + S / 4 * 3, "live"),
        (101 * S + S / 4 * 3, 102 * S, "20 steps"),
        (101 * S + S / 4 * 3, 102 * S, "replay"),
    ];
    let expected = expected.map(|(from, to, name)| (from, to, name.to_owned()));
    assert_eq!(found[..], expected);
    // Means are drawn over the tick that they are of.
    assert_eq!(
        counts(&whole, "rank 0/loop train/wait"),
        [(100 * S, 20.0), (101 * S, 500.0 / 30.0)]
    );
}

#[test]
fn epochs_begin_with_their_first_tick_and_end_with_their_record() {
    let epoch = RecordBody::Epoch(EpochRecord {
        loop_name: "train".into(),
        steps: 30,
        ..EpochRecord::default()
    });
    let second = LoopTick {
        epoch: 1,
        ..steps(Live, 30, 5, 1, 1)
    };
    let whole = written(&[
        tick(1, |t| t.loops = vec![steps(Live, 0, 15, 1, 1)]),
        tick(2, |t| t.loops = vec![steps(Live, 15, 15, 1, 1)]),
        test_records::record(102 * S + 5, epoch),
        tick(3, |t| t.loops = vec![second]),
    ]);
    let found = &slices(&whole)["rank 0/loop train/epochs"];
    assert_eq!(found[0], (100 * S, 102 * S + 5, "epoch 0".to_owned()));
    assert_eq!(found[1], (102 * S + 5, 103 * S, "epoch 1".to_owned()));
}

#[test]
fn probe_windows_are_placed_by_their_steps() {
    let window = |phase, cycle, steps| WindowRecord {
        phase,
        cycle,
        steps,
        ..WindowRecord::default()
    };
    let probe = RecordBody::Probe(ProbeRecord {
        loop_name: "train".into(),
        windows: vec![
            window(Live, 0, 9),
            window(Replay, 0, 19),
            // Two of its 20 batches lead into it and into the next epoch.
            window(Live, 1, 18),
            window(Replay, 1, 9),
            window(Live, 2, 9),
        ],
        ..ProbeRecord::default()
    });
    let whole = written(&[
        tick(1, |t| t.loops = vec![steps(Live, 0, 20, 1, 1)]),
        tick(2, |t| t.loops = vec![steps(Replay, 20, 20, 0, 1)]),
        tick(3, |t| t.loops = vec![steps(Live, 40, 20, 1, 1)]),
        tick(4, |t| t.loops = vec![steps(Replay, 60, 10, 0, 1)]),
        tick(5, |t| t.loops = vec![steps(Live, 70, 20, 1, 1)]),
        test_records::record(105 * S, probe.clone()),
    ]);
    let found = &slices(&whole)["rank 0/loop train/probe windows"];
    let live = (100 * S + S / 2, 101 * S, "live window 0".to_owned());
    assert_eq!(found[0], live);
    assert_eq!(found[1], (101 * S, 102 * S, "replay window 0".to_owned()));
    assert_eq!(found[2], (102 * S, 103 * S, "live window 1".to_owned()));
    assert_eq!(found[3], (103 * S, 104 * S, "replay window 1".to_owned()));
    let after = (104 * S, 104 * S + S / 2, "live window 2".to_owned());
    assert_eq!(found[4], after);

    let whole = written(&[
        tick(1, |t| t.loops = vec![steps(Live, 0, 20, 1, 1)]),
        tick(2, |t| {
            t.loops = vec![steps(Replay, 20, 30, 0, 1), steps(Live, 50, 20, 1, 1)];
        }),
        tick(3, |t| t.loops = vec![steps(Live, 70, 20, 1, 1)]),
        test_records::record(103 * S, probe),
    ]);
    let found = &slices(&whole)["rank 0/loop train/probe windows"];
    assert_eq!(found.len(), 5, "both replays are in the second tick");
    assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0));
}

#[test]
fn levels_begin_at_their_reading_and_totals_are_increases_per_second() {
    let read = |at: u64, cpu: f64| {
        tick(at, |t| {
            t.readings = BTreeMap::from([
                (
                    "process".into(),
                    BTreeMap::from([
                        ("process.cpu.time{cpu.mode=user}".into(), cpu),
                        ("of.another.version".into(), 1.0),
                    ]),
                ),
                (
                    "gpu:0".into(),
                    BTreeMap::from([("headspace.gpu.sm.utilization{source=gpm}".into(), 0.5)]),
                ),
            ]);
        })
    };
    let whole = written(&[read(1, 3.0), read(3, 7.0)]);
    assert_eq!(
        counts(
            &whole,
            "rank 0/gpu:0/headspace.gpu.sm.utilization{source=gpm}"
        ),
        [(101 * S, 50.0), (103 * S, 50.0)]
    );
    assert_eq!(
        counts(&whole, "rank 0/process/process.cpu.time{cpu.mode=user}"),
        [(101 * S, 2.0)]
    );
    assert!(
        !events(&whole)
            .iter()
            .any(|(_, track, _)| track.contains("another"))
    );
}

#[test]
fn the_busy_counter_of_a_stage_covers_the_time_since_its_last_report() {
    let stage = StageTick {
        name: "decode".into(),
        worker: Some("worker 0".into()),
        time: durations(40, 100),
        ..StageTick::default()
    };
    let queue = QueueTick {
        name: "decoded".into(),
        depth: 2.5,
        sampled_ms: 1000.0,
        ..QueueTick::default()
    };
    let with = |t: &mut TickRecord| t.stages = vec![stage.clone()];
    let whole = written(&[
        tick(1, with),
        tick(2, |t| t.queues = vec![queue.clone()]),
        tick(3, with),
    ]);
    assert_eq!(
        counts(&whole, "rank 0/stages/decode (worker 0) busy"),
        [(100 * S, 4.0), (101 * S, 2.0)]
    );
    assert_eq!(
        counts(&whole, "rank 0/queues/decoded depth"),
        [(101 * S, 2.5)]
    );
}

#[test]
fn notices_before_the_first_tick_are_drawn_at_the_start_of_the_run() {
    let notice = RecordBody::Notice(NoticeRecord {
        code: "source_off".into(),
        severity: Severity::Warning,
        text: "`perf` is off".into(),
    });
    let whole = written(&[
        test_records::record(100 * S + 7, RecordBody::Run(RunRecord::default())),
        test_records::record(100 * S + 9, notice),
        tick(1, |_| ()),
    ]);
    let found = events(&whole);
    let (at, track, event) = &found[0];
    assert_eq!((*at, track.as_str()), (100 * S + 9, "rank 0/notices"));
    assert_eq!(event.name.as_deref(), Some("source_off"));
}

#[test]
fn ranks_with_the_same_process_id_are_separate_processes() {
    let other = Record {
        rank: 1,
        ..tick(1, |_| ())
    };
    let whole = written(&[tick(1, |_| ()), other]);
    let pids: Vec<i32> = whole
        .packet
        .iter()
        .filter_map(|packet| match packet.data.as_ref()? {
            Data::TrackDescriptor(track) => Some(track.process.as_ref()?.pid),
            _ => None,
        })
        .collect();
    assert_eq!(pids.len(), 2);
    assert_ne!(pids[0], pids[1]);
    assert!(slices(&whole).contains_key("rank 1/run"));
}

proptest! {
    #[test]
    fn all_slices_of_a_trace_of_any_records_end(
        records in prop::collection::vec(test_records::any_record(), 0..12),
    ) {
        slices(&written(&records));
    }
}
