use std::time::Duration;

use super::*;
use crate::analysis::attribution::{Action, Bottleneck, Evidence, Limit};
use crate::analysis::floor::{NoHeadspace, WindowAnalysis};
use crate::analysis::probe_result::ProbeResult;
use crate::analysis::resources::RankCounts;
use crate::model::metric::{
    GPU_MEMORY_OWNED, GPU_UTILIZATION, THREAD_CPU_TIME, THREAD_RUN_QUEUE_TIME,
};
use crate::model::record::{Estimate, FloorRecord, Phase, Role, WindowRecord};
use crate::model::stack::{Activity, Frame, Place, StackReading, ThreadStack, WaitFor};
use crate::model::stage_series::StageTicks;
use crate::model::step_history::NumberedStep;
use crate::model::step_series::StepSeries;
use crate::model::{
    CacheFacts, LoopTotals, Mode, Reading, Scope, StageSample, StepHistory, StepSample, attributes,
};

/// The numbers of a summary.
fn summarise(run: &RunFacts<'_>, loops: &[LoopFacts]) -> SummaryRecord {
    super::summarise(run, loops).record
}

fn series(steps: usize, compute_ms: u64, wait_ms: u64) -> StepSeries {
    let mut series = StepSeries::default();
    for _ in 0..steps {
        series.push(StepSample {
            compute_ns: compute_ms * 1_000_000,
            wait_ns: wait_ms * 1_000_000,
        });
    }
    series
}

fn facts(name: &str, live: StepSeries) -> LoopFacts {
    let totals = LoopTotals {
        name: name.into(),
        steps: live.len(),
        live,
        ..LoopTotals::default()
    };
    LoopFacts {
        totals,
        ..LoopFacts::default()
    }
}

fn with_spans(mut facts: LoopFacts, spans_s: Vec<(f64, f64)>) -> LoopFacts {
    facts.totals.spans_s = spans_s;
    facts
}

#[test]
fn measure_mode_gives_an_upper_bound_and_no_headspace() {
    let summary = summarise(&RunFacts::default(), &[facts("train", series(100, 10, 20))]);

    assert_eq!(summary.wait_ms, Some(20.0));
    assert_eq!(summary.steady_step_mean_ms, Some(30.0));
    assert!((summary.headspace_upper_bound_pct.unwrap() - 66.666).abs() < 0.01);
    assert_eq!(summary.headspace_pct, None);
    assert_eq!(summary.max_speedup, None);
}

#[test]
fn the_upper_bound_is_at_most_the_time_in_which_the_gpu_of_the_only_rank_does_not_work() {
    let mut history = ReadingSeries::default();
    for second in 1..=4 {
        let busy = Reading::with(
            &GPU_UTILIZATION,
            Scope::Gpu(0),
            attributes::GPU_GENERAL,
            0.9,
        );
        let at = Duration::from_secs(second);
        let own = Reading::with(&GPU_MEMORY_OWNED, Scope::Gpu(0), attributes::OWNER_OWN, 1e9);
        let others = Reading::with(
            &GPU_MEMORY_OWNED,
            Scope::Gpu(0),
            attributes::OWNER_OTHERS,
            0.0,
        );
        history.push(at, Duration::from_secs(1), false, &[busy, own, others]);
    }
    let bound = |in_run| {
        let ranks = RankCounts {
            in_run,
            on_node: Some(1),
        };
        let run = RunFacts {
            elapsed_s: 4.0,
            history: Some(&history),
            node: RankNode {
                ranks,
                ..RankNode::default()
            },
            ..RunFacts::default()
        };
        let summary = summarise(&run, &[facts("train", series(100, 10, 20))]);
        summary.headspace_upper_bound_pct.unwrap()
    };

    assert!((bound(1) - 10.0).abs() < 0.01, "{}", bound(1));
    assert!(
        (bound(2) - 66.666).abs() < 0.01,
        "its GPU may wait for the other rank"
    );
}

#[test]
fn the_upper_bound_includes_waits_for_a_loader_that_is_iterated_concurrently() {
    let beside = |begin_s: f64, steps, role| {
        let mut facts = facts(&format!("{begin_s} {steps}"), series(steps, 20, 10));
        facts.loader.role = role;
        with_spans(facts, vec![(begin_s, begin_s + 3.0)])
    };
    let main = with_spans(facts("train", series(100, 27, 3)), vec![(0.0, 3.0)]);
    let bound = |other| {
        let summary = summarise(&RunFacts::default(), &[main.clone(), other]);
        assert_eq!(summary.loop_name.as_deref(), Some("train"));
        summary.headspace_upper_bound_pct.unwrap()
    };

    assert!((bound(beside(0.1, 99, None)) - 43.0).abs() < 0.1);
    for apart in [
        beside(4.0, 99, None),
        beside(0.1, 30, None),
        beside(0.1, 99, Some(Role::Evaluation)),
        beside(0.1, 99, Some(Role::Background)),
    ] {
        assert!((bound(apart) - 10.0).abs() < 0.1);
    }
}

#[test]
fn a_probe_without_a_result_has_the_same_upper_bound_as_no_probe() {
    let zipped = |name: &str, series: StepSeries| with_spans(facts(name, series), vec![(0.0, 3.0)]);
    let mut loops = [
        zipped("train", series(100, 27, 3)),
        zipped("beside", series(100, 20, 10)),
    ];
    loops[0].loader.chosen = true;
    let without_probe = summarise(&RunFacts::default(), &loops);
    loops[0].mode = Mode::Probe;
    loops[0].probe = Some(ProbeResult {
        windows: Vec::new(),
        floor: Err(NoHeadspace::NotDone),
        warnings: Vec::new(),
        cache: CacheFacts::default(),
    });

    let probed = summarise(&RunFacts::default(), &loops);

    assert_eq!(probed.loop_name.as_deref(), Some("train"));
    assert!((probed.headspace_upper_bound_pct.unwrap() - 43.3).abs() < 0.1);
    assert_eq!(
        probed.headspace_upper_bound_pct,
        without_probe.headspace_upper_bound_pct
    );
}

#[test]
fn loops_that_run_in_turn_do_not_add_to_each_others_waits() {
    // Two loops of a test suite, each begun anew many times, and one that goes on beside the second.
    let turns = |offset: f64| (0..50).map(move |turn| 4.0 * f64::from(turn) + offset);
    let spans = |offset, length: f64| turns(offset).map(move |at| (at, at + length)).collect();
    let facts = |name: &str, wait_ms, spans_s| {
        with_spans(facts(name, series(100, 30 - wait_ms, wait_ms)), spans_s)
    };
    let bound = |loops: &[LoopFacts]| {
        let summary = summarise(&RunFacts::default(), loops);
        assert_eq!(summary.loop_name.as_deref(), Some("main"));
        summary.headspace_upper_bound_pct.unwrap()
    };
    let mut main = facts("main", 12, spans(0.0, 1.0));
    main.loader.chosen = true;
    let others = [
        facts("in turn", 15, spans(1.5, 1.0)),
        facts("in turn, of one epoch", 15, vec![(201.0, 205.0)]),
        facts("hardly together", 15, spans(0.9, 1.0)),
    ];

    let alone = bound(std::slice::from_ref(&main));
    let [a, b, c] = others;
    assert!((bound(&[main.clone(), a, b, c]) - alone).abs() < 0.1);
    let beside = facts("beside", 3, spans(0.1, 1.0));
    assert!((bound(&[main, beside]) - alone - 10.0).abs() < 0.1);
}

#[test]
fn stages_of_an_evaluation_are_not_the_bottleneck_of_training() {
    let called = |name: &str, loop_name: &str, ms: u64, calls| {
        let mut time = crate::model::Distribution::default();
        (0..calls).for_each(|_| time.record(ms * 1_000_000));
        StageSample {
            name: name.into(),
            loop_name: Some(loop_name.into()),
            peak: 1,
            items_in: calls,
            items_out: calls,
            time,
            ..StageSample::default()
        }
    };
    let mut history = StageSeries::default();
    for second in 1..=4 {
        // The loop loads by itself, 20 of 30 ms, and evaluates now and then.
        history.push(StageTicks {
            at: Duration::from_secs(second),
            interval: Duration::from_secs(1),
            batches: &[("train".into(), 25), ("eval".into(), 10)],
            stages: &[
                called("fetch", "train", 20, 25),
                called("eval fetch", "eval", 20, 10),
            ],
            ..StageTicks::default()
        });
    }
    let run = RunFacts {
        elapsed_s: 4.0,
        stages: Some(&history),
        ..RunFacts::default()
    };
    let mut eval = facts("eval", series(40, 1, 20));
    eval.loader.role = Some(Role::Evaluation);
    let summary = super::summarise(&run, &[facts("train", series(100, 10, 20)), eval]);

    let found = summary.conclusions.attribution.bottleneck.unwrap();
    assert_eq!(found.limit, Limit::Stage("fetch".to_owned()));
    assert!(
        matches!(found.evidence, Evidence::TrainingThread { .. }),
        "{found:?}"
    );
    assert_eq!(summary.record.stages.len(), 2, "both are in the record");
}

#[test]
fn a_stage_may_have_the_name_of_an_evaluation() {
    let mut time = crate::model::Distribution::default();
    (0..25).for_each(|_| time.record(20_000_000));
    let metrics = StageSample {
        name: "evaluation metrics".into(),
        peak: 1,
        items_in: 25,
        items_out: 25,
        time,
        ..StageSample::default()
    };
    let mut history = StageSeries::default();
    for second in 1..=4 {
        history.push(StageTicks {
            at: Duration::from_secs(second),
            interval: Duration::from_secs(1),
            batches: &[("train".into(), 25)],
            stages: std::slice::from_ref(&metrics),
            ..StageTicks::default()
        });
    }
    let run = RunFacts {
        elapsed_s: 4.0,
        stages: Some(&history),
        ..RunFacts::default()
    };

    let summary = super::summarise(&run, &[facts("train", series(100, 10, 20))]);

    let found = summary.conclusions.attribution.bottleneck.unwrap();
    assert_eq!(found.limit, Limit::Stage("evaluation metrics".to_owned()));
}

#[test]
fn steady_values_of_a_short_run_are_absent_not_zero() {
    let summary = summarise(&RunFacts::default(), &[facts("train", series(25, 10, 20))]);

    assert_eq!(summary.steady_step_time_ms, None);
    assert_eq!(summary.wait_ms, None);
    assert_eq!(summary.step_time_ms, Some(30.0));
}

#[test]
fn a_run_without_a_steady_state_has_a_finding_with_the_steps_it_needs() {
    // 30 ms for `slow` steps, then 10 ms, with a jitter that no two blocks share.
    let steps = |slow: u64, all: u64| {
        let mut live = StepSeries::default();
        for step in 0..all {
            let level = if step < slow { 30_000_000 } else { 10_000_000 };
            live.push(StepSample {
                compute_ns: level + 1_000 * (step * step % 97),
                wait_ns: 0,
            });
        }
        facts("train", live)
    };
    let finding = |facts: LoopFacts| {
        let found = super::summarise(&RunFacts::default(), &[facts]).findings;
        let mut found = found.into_iter();
        found.find(|finding| matches!(finding, Finding::NoSteadyState { .. }))
    };
    let unsteady = |changed, enough| Some(Finding::NoSteadyState { changed, enough });

    assert_eq!(finding(steps(150, 200)), unsteady(150, Some((200, 300))));
    assert_eq!(finding(steps(150, 300)), None, "as it was said");
    assert_eq!(finding(steps(3000, 5000)), unsteady(3010, None));
}

#[test]
fn correlated_steps_widen_the_interval_of_the_mean_step() {
    let width = |steps: StepSeries| {
        let summary = summarise(&RunFacts::default(), &[facts("train", steps)]);
        let (low, high) = summary.steady_step_ci_ms.unwrap();
        let mean = summary.steady_step_mean_ms.unwrap();
        assert!(low < mean && mean < high);
        (high - low) / mean
    };
    // 20 and 40 ms by turns: at each step, and for 20 steps each.
    let turns = |run: usize| {
        let mut live = StepSeries::default();
        for step in 0..420 {
            live.push(StepSample {
                compute_ns: if (step / run).is_multiple_of(2) {
                    20_000_000
                } else {
                    40_000_000
                },
                wait_ns: 0,
            });
        }
        live
    };

    let (same, fast, slow) = (
        width(series(420, 10, 20)),
        width(turns(1)),
        width(turns(20)),
    );

    // Every step alike: what is left is the allowance from run to run.
    assert!((same - 2.0 * 2.365 * 0.0075).abs() < 0.001, "{same}");
    assert!(fast < 1.2 * same && slow > 3.0 * fast, "{fast} {slow}");
}

#[test]
fn slow_first_steps_are_left_out_of_the_steady_state() {
    let mut live = series(60, 500, 0);
    for _ in 0..400 {
        live.push(StepSample {
            compute_ns: 10_000_000,
            wait_ns: 0,
        });
    }

    let summary = summarise(&RunFacts::default(), &[facts("train", live)]);

    assert!((summary.steady_step_mean_ms.unwrap() - 10.0).abs() < 0.5);
    assert!(summary.step_time_ms.unwrap() > 70.0);
}

#[test]
fn the_main_loop_is_the_one_with_the_most_time() {
    let loops = [
        facts("eval", series(1000, 1, 0)),
        facts("train", series(100, 50, 0)),
    ];

    assert_eq!(
        summarise(&RunFacts::default(), &loops).loop_name.as_deref(),
        Some("train")
    );
}

#[test]
fn a_loop_with_too_few_steps_is_not_the_main_loop() {
    let loops = [
        facts("eval", series(25, 500, 0)),
        facts("train", series(100, 10, 0)),
    ];

    assert_eq!(
        summarise(&RunFacts::default(), &loops).loop_name.as_deref(),
        Some("train")
    );
}

#[test]
fn throughput_needs_a_batch_size() {
    let mut main = facts("train", series(100, 10, 10));
    assert_eq!(
        summarise(&RunFacts::default(), &[main.clone()]).throughput_samples_per_s,
        None
    );

    main.totals.samples_per_batch = Some(8.0);
    let summary = summarise(&RunFacts::default(), &[main]);
    assert!((summary.throughput_samples_per_s.unwrap() - 400.0).abs() < 1e-6);
}

#[test]
fn stages_are_those_of_the_main_loops_steady_state() {
    let mut history = StageSeries::default();
    for second in 1..=4u64 {
        let mut decode = StageSample {
            name: "decode".into(),
            peak: 1,
            ..StageSample::default()
        };
        // Twice as slow while the loop warms up.
        for _ in 0..20 {
            decode
                .time
                .record(if second == 1 { 40 } else { 20 } * 1_000_000);
        }
        history.push(StageTicks {
            at: Duration::from_secs(second),
            interval: Duration::from_secs(1),
            batches: &[("eval".into(), 1), ("train".into(), 10)],
            stages: &[decode],
            ..StageTicks::default()
        });
    }
    let mut main = facts("train", series(40, 10, 90));
    let totals = &mut main.totals;
    (totals.first_begin_s, totals.last_receive_s) = (Some(0.0), Some(4.0));
    let mut run = RunFacts {
        elapsed_s: 4.0,
        stages: Some(&history),
        ..RunFacts::default()
    };

    let summary = summarise(&run, std::slice::from_ref(&main));

    let decode = &summary.stages[0];
    assert_eq!(
        (decode.mean_ms, decode.calls_per_batch),
        (Some(20.0), Some(2.0))
    );
    assert!((decode.busy_pct.unwrap() - 40.0).abs() < 1e-9);
    // What was concluded a while ago is not concluded again.
    let concluded = Attribution {
        bottleneck: Some(Bottleneck {
            limit: Limit::Stage("decode".into()),
            limit_ms: None,
            evidence: Evidence::Disk { busy: 0.5 },
            confidence: 0.9,
        }),
        ..Attribution::default()
    };
    let concluded = Conclusions {
        attribution: concluded,
        ..Conclusions::default()
    };
    run.concluded = Some(&concluded);
    let summary = super::summarise(&run, &[main]);
    assert_eq!(summary.conclusions, concluded);
}

#[test]
fn with_a_floor_wait_and_compute_add_up_to_the_step() {
    let estimate = |value| Estimate {
        value,
        low: value,
        high: value,
    };
    let mut main = facts("train", series(100, 11, 22));
    main.probe = Some(ProbeResult {
        floor: Ok(FloorRecord {
            live_ms: estimate(30.0),
            floor_ms: estimate(10.0),
            headspace_pct: estimate(66.7),
            exposed_wait_ms: 20.0,
            contention_ms: 0.0,
        }),
        windows: vec![WindowAnalysis {
            record: WindowRecord {
                phase: Phase::Live,
                steps: 50,
                discarded: 10,
                wait_ms: 20.0,
                compute_ms: 10.0,
                ..WindowRecord::default()
            },
            unused: None,
        }],
        warnings: Vec::new(),
        cache: CacheFacts::default(),
    });

    let summary = summarise(&RunFacts::default(), &[main]);

    assert_eq!(summary.steady_step_mean_ms, Some(30.0));
    assert_eq!(
        (summary.wait_ms, summary.compute_ms),
        (Some(20.0), Some(10.0))
    );
    assert_eq!(summary.max_speedup, Some(3.0));
    assert_eq!(summary.headspace_upper_bound_pct, None);
}

/// Samples of a loop's own code: the training thread runs in half of them, and waits for another rank in the others.
fn half_blocked() -> StackTimes {
    let mut times = StackTimes::default();
    for number in 0..100 {
        let activity = if number % 2 == 0 {
            Activity::Python
        } else {
            Activity::Wait(WaitFor::Connection)
        };
        times.add(StackReading {
            at_ns: number,
            seconds: 0.1,
            is_trainer: true,
            samples: vec![(
                Place::Loop("train".to_owned()),
                ThreadStack::doing(activity, vec![Frame::own("train.py", 7, "main")]),
            )],
            ..StackReading::default()
        });
    }
    times
}

#[test]
fn the_time_in_which_the_training_thread_slept_replaces_its_sampled_share() {
    let stacks = half_blocked();
    // The thread runs for 25 % of the time, and waits for a core for 5 %.
    let mut history = ReadingSeries::default();
    for second in 1..=10 {
        let at_s = f64::from(second);
        let consumer = Scope::Thread(attributes::CONSUMER.into());
        let readings = [
            Reading::new(&THREAD_CPU_TIME, consumer.clone(), 0.25 * at_s),
            Reading::new(&THREAD_RUN_QUEUE_TIME, consumer, 0.05 * at_s),
        ];
        let tick = Duration::from_secs(1);
        history.push(second * tick, tick, false, &readings);
    }
    // 500 steps of 20 ms.
    let blocked = |history: Option<&ReadingSeries>, wait_ms: u64, last_s: f64| {
        let run = RunFacts {
            elapsed_s: last_s,
            history,
            stacks: Some(&stacks),
            ..RunFacts::default()
        };
        let mut main = facts("train", series(500, 20 - wait_ms, wait_ms));
        main.totals.first_begin_s = Some(0.0);
        main.totals.last_receive_s = Some(last_s);
        summarise(&run, &[main]).compute_blocked_ms.unwrap()
    };

    assert!((blocked(None, 0, 10.0).value - 10.0).abs() < 1e-6);
    let exact = blocked(Some(&history), 0, 10.0);
    assert!((exact.value - 14.0).abs() < 1e-6, "{exact:?}");
    assert!(exact.high - exact.low < 2.0, "{exact:?}");
    // While the loop waits for data, its sleep says little of compute.
    assert!((blocked(Some(&history), 10, 10.0).value - 5.0).abs() < 1e-6);
    // If the steps do not fill the time, the thread also slept between them.
    assert!((blocked(Some(&history), 0, 15.0).value - 10.0).abs() < 1e-6);
}

#[test]
fn a_compute_bound_loop_with_costly_stalls_is_not_told_that_nothing_is_left_to_do() {
    let told_to_stop = |stall_ms: u64| {
        let (mut live, mut history, mut at_ns) = (StepSeries::default(), StepHistory::default(), 0);
        for step in 0..3000 {
            let stall = if step % 75 == 0 { stall_ms } else { 0 };
            let sample = StepSample {
                compute_ns: (10 + stall) * 1_000_000,
                wait_ns: 0,
            };
            live.push(sample);
            at_ns += sample.step_ns();
            history.push(NumberedStep {
                step,
                step_in_epoch: step,
                to_ns: at_ns,
                sample,
            });
        }
        let step_ms = at_ns as f64 / 3000.0 / 1e6;
        let mut main = facts("train", live);
        main.totals.history = history;
        main.probe = Some(ProbeResult {
            floor: Ok(FloorRecord {
                live_ms: Estimate::around(step_ms, 0.1),
                floor_ms: Estimate::around(step_ms, 0.1),
                ..FloorRecord::default()
            }),
            windows: Vec::new(),
            warnings: Vec::new(),
            cache: CacheFacts::default(),
        });
        let found = super::summarise(&RunFacts::default(), &[main]).conclusions;
        let remedies = found.attribution.remedies;
        (
            remedies.iter().any(|remedy| remedy.action == Action::Stop),
            found.episodes.len(),
        )
    };

    assert_eq!(told_to_stop(0), (true, 0));
    assert_eq!(told_to_stop(200), (false, 1));
}

#[test]
fn without_a_steady_state_the_finding_names_the_step_at_which_an_episode_begins() {
    let mut unsteady = Finding::NoSteadyState {
        changed: 2375,
        enough: Some((2399, 4750)),
    };
    let mut other = Finding::SplitTwice;

    name_change(&mut unsteady, 1201);
    name_change(&mut other, 1201);

    let named = Finding::NoSteadyState {
        changed: 1201,
        enough: None,
    };
    assert_eq!((unsteady, other), (named, Finding::SplitTwice));
}
