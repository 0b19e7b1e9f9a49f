//! Durations of runs whose steps are known exactly.

use super::*;
use crate::analysis::probe_result::ProbeResult;
use crate::analysis::resources::RankCounts;
use crate::analysis::summary::{RunFacts, summarise};
use crate::model::record::{EndRecord, FloorRecord, GpuRecord, LoaderRecord};
use crate::model::step_history::NumberedStep;
use crate::model::{CacheFacts, LoopTotals, StepSample};

const STEP_MS: u64 = 30;
const BATCHES: u64 = 100;

/// A loop of steps of 30 ms, in epochs of 100 batches, 2 s apart. It was watched for `steps` batches.
fn watched(steps: u64) -> LoopFacts {
    let mut totals = LoopTotals {
        steps,
        epochs: steps.div_ceil(BATCHES),
        first_begin_s: Some(0.0),
        ttfb_s: Some(1.0),
        ..LoopTotals::default()
    };
    let mut now_ms = 1_000;
    for step in 1..steps {
        if step % BATCHES == 0 {
            totals.boundaries.add(2.0);
            now_ms += 2_000;
            continue;
        }
        now_ms += STEP_MS;
        let sample = StepSample {
            compute_ns: 20_000_000,
            wait_ns: 10_000_000,
        };
        totals.live.push(sample);
        totals.history.push(NumberedStep {
            step,
            step_in_epoch: step % BATCHES,
            to_ns: now_ms * 1_000_000,
            sample,
        });
    }
    totals.last_receive_s = Some(now_ms as f64 / 1e3);
    LoopFacts {
        totals,
        loader: LoaderRecord {
            batches: Some(BATCHES),
            ..LoaderRecord::default()
        },
        ..LoopFacts::default()
    }
}

fn for_epochs(epochs: u64, mut facts: LoopFacts) -> LoopFacts {
    facts.loader.epochs = Some(epochs);
    facts
}

/// With a probe that measured a floor of 21 ms, exactly.
fn probed(mut facts: LoopFacts) -> LoopFacts {
    let exactly = |value| Estimate::around(value, 0.0);
    facts.mode = Mode::Probe;
    facts.probe = Some(ProbeResult {
        windows: Vec::new(),
        floor: Ok(FloorRecord {
            live_ms: exactly(30.0),
            floor_ms: exactly(21.0),
            headspace_pct: exactly(30.0),
            exposed_wait_ms: 9.0,
            contention_ms: 0.0,
        }),
        warnings: Vec::new(),
        cache: CacheFacts::default(),
    });
    facts
}

fn run_time_of(facts: &LoopFacts, state: RunState) -> Option<RunTimeRecord> {
    run_time_of_run(facts, state, None)
}

fn run_time_of_run(
    facts: &LoopFacts,
    state: RunState,
    ended_by: Option<EndRecord>,
) -> Option<RunTimeRecord> {
    let run = RunFacts {
        state,
        ended_by,
        elapsed_s: facts.totals.last_receive_s.unwrap_or(0.0),
        ..RunFacts::default()
    };
    summarise(&run, std::slice::from_ref(facts)).record.run_time
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
}

#[test]
fn an_epoch_has_its_steps_and_what_is_between_two_epochs() {
    let time = run_time_of(&watched(250), RunState::Running).unwrap();

    let epoch = time.epoch.unwrap();
    assert_eq!(epoch.steps, BATCHES);
    // 99 steps within it, and one boundary.
    assert_near(epoch.duration_s.value, 99.0 * 0.03 + 2.0);
    assert_eq!(time.run, None, "its number of epochs is unknown");
    assert_eq!(time.remaining, None);
}

#[test]
fn what_remains_and_what_has_passed_are_the_whole_run() {
    let complete = watched(400).totals.last_receive_s.unwrap();
    for steps in [150, 250, 350] {
        let facts = for_epochs(4, watched(steps));
        let time = run_time_of(&facts, RunState::Running).unwrap();

        let remaining = time.remaining.unwrap();
        assert_eq!(remaining.steps, 400 - steps);
        let passed = facts.totals.last_receive_s.unwrap();
        assert_near(passed + remaining.duration_s.value, complete);
        let run = time.run.unwrap();
        assert_eq!((run.steps, time.epochs), (400, Some(4)));
        assert_near(run.duration_s.value, complete);
    }
}

#[test]
fn batches_that_were_not_recorded_do_not_remain_and_their_time_has_passed() {
    let mut facts = for_epochs(4, watched(250));
    let whole = run_time_of(&facts, RunState::Running).unwrap().run.unwrap();
    facts.totals.unrecorded = 30;
    *facts.totals.last_receive_s.as_mut().unwrap() += 30.0 * 0.03;
    let time = run_time_of(&facts, RunState::Running).unwrap();

    let remaining = time.remaining.unwrap();
    assert_eq!(remaining.steps, 120);
    // One epoch follows the present one.
    assert_near(remaining.duration_s.value, 119.0 * 0.03 + 2.0);
    let run = time.run.unwrap();
    assert_eq!(run.steps, 400);
    assert_near(run.duration_s.value, whole.duration_s.value);
}

#[test]
fn while_the_program_does_something_else_less_remains_and_the_run_stays_as_long() {
    let facts = for_epochs(4, watched(250));
    let now = run_time_of(&facts, RunState::Running).unwrap();
    let run = RunFacts {
        elapsed_s: facts.totals.last_receive_s.unwrap() + 1.5,
        ..RunFacts::default()
    };
    let later = summarise(&run, std::slice::from_ref(&facts))
        .record
        .run_time
        .unwrap();

    let value = |period: Option<PeriodRecord>| period.unwrap().duration_s.value;
    assert_near(value(later.remaining), value(now.remaining) - 1.5);
    assert_near(value(later.run), value(now.run));
}

#[test]
fn a_complete_run_takes_as_long_as_it_took_and_nothing_remains() {
    let facts = for_epochs(4, watched(400));
    let known = run_time_of(&facts, RunState::Finished).unwrap();
    let unknown = run_time_of(&watched(400), RunState::Finished).unwrap();

    for time in [known, unknown] {
        assert_eq!(time.remaining, None);
        let run = time.run.unwrap();
        assert_eq!((run.steps, time.epochs), (400, Some(4)));
        let took = facts.totals.last_receive_s.unwrap();
        assert_eq!(run.duration_s, Estimate::around(took, 0.0));
    }
}

#[test]
fn a_run_that_an_exception_ended_is_not_the_whole_run() {
    let ended_by = Some(EndRecord::default());
    let time = run_time_of_run(&watched(400), RunState::Finished, ended_by.clone()).unwrap();
    assert_eq!(time.run, None);

    let facts = for_epochs(10, watched(400));
    let time = run_time_of_run(&facts, RunState::Finished, ended_by).unwrap();
    assert_eq!(time.run.unwrap().steps, 1000);
}

#[test]
fn the_shorter_of_two_lengths_counts() {
    let mut facts = for_epochs(4, watched(150));
    for (total, expected) in [(250, (250, 3)), (900, (400, 4))] {
        facts.loader.total_steps = Some(total);
        let time = run_time_of(&facts, RunState::Running).unwrap();
        assert_eq!((time.run.unwrap().steps, time.epochs.unwrap()), expected);
    }
}

#[test]
fn an_epoch_that_the_program_leaves_early_is_as_long_as_it_was() {
    let mut facts = for_epochs(4, watched(150));
    facts.totals.epoch_steps = Some(60);
    let steps = |facts: &LoopFacts| {
        run_time_of(facts, RunState::Running)
            .unwrap()
            .run
            .unwrap()
            .steps
    };
    assert_eq!(steps(&facts), 240);

    // A probe may end its epochs early.
    assert_eq!(steps(&probed(facts)), 400);
}

#[test]
fn free_data_saves_the_headspace_of_every_step() {
    let facts = probed(for_epochs(10, watched(150)));
    let time = run_time_of(&facts, RunState::Finished).unwrap();

    let saved = |period: Option<PeriodRecord>| period.unwrap().saved_by_free_data_s.unwrap().value;
    assert_near(saved(time.epoch), 100.0 * 0.009);
    assert_near(saved(time.run), 1000.0 * 0.009);
    // The run of the probe is not the run that the user wants to make.
    assert_near(
        time.run.unwrap().duration_s.value,
        1000.0 * 0.03 + 10.0 * 1.97,
    );
    assert_eq!(
        run_time_of(&probed(watched(150)), RunState::Finished)
            .unwrap()
            .run,
        None
    );
}

#[test]
fn without_a_probe_nothing_is_said_about_free_data() {
    let time = run_time_of(&for_epochs(4, watched(150)), RunState::Running).unwrap();
    assert_eq!(time.run.unwrap().saved_by_free_data_s, None);
}

#[test]
fn unknown_lengths_give_nothing() {
    let mut facts = watched(150);
    facts.loader.batches = None;
    assert_eq!(run_time_of(&facts, RunState::Running), None);
}

#[test]
fn each_of_several_ranks_uses_a_gpu() {
    let gpus = |count: u32, in_run, on_node| {
        let all: Vec<GpuRecord> = (0..count).map(|_| GpuRecord::default()).collect();
        gpus(RankNode {
            gpus: &all,
            compute_gpu: None,
            ranks: RankCounts { in_run, on_node },
        })
    };
    assert_eq!(gpus(0, 8, Some(8)), None);
    assert_eq!(gpus(1, 1, None), Some(1));
    assert_eq!(gpus(8, 1, None), None, "it may use one or all of them");
    assert_eq!(gpus(8, 16, Some(8)), Some(16));
    assert_eq!(gpus(1, 16, Some(8)), Some(16), "each rank sees its own");
    assert_eq!(gpus(2, 4, Some(4)), None, "they share them");
}

#[test]
fn the_error_of_a_product_contains_both_errors() {
    let found = product(Estimate::around(10.0, 3.0), Estimate::around(2.0, 0.8));
    assert_near(found.value, 20.0);
    assert_near(found.high - found.value, 10.0);
    assert_near(found.value - found.low, 10.0);
}
