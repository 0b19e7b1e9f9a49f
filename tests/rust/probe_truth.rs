//! Compares the measured headspace with the truth, on pipelines whose headspace is known.
//!
//! The pipelines run in logical time, so a seed gives the same numbers on every machine. These tests
//! run a few hundred pipelines, and `make study` runs thousands.

mod simulator;

use headspace_agent::analysis::floor::{FloorWarning, NoFloor};
use headspace_agent::batch_source::ProbePlan;
use headspace_agent::model::record::Phase;
use simulator::pipeline::{Device, Spec, Stage};
use simulator::population::{draw, draw_beside_others};
use simulator::service::{Service, Shape};
use simulator::tally::study;
use simulator::{probe, truth};

const MS: f64 = 1e6;

/// One loader thread of `load_ms` with a queue after it, and a model of `compute_ms`.
fn simple(load_ms: f64, depth: u32, compute_ms: f64) -> Spec {
    Spec {
        stages: vec![Stage {
            threads: 1,
            service: Service::new(load_ms * MS, 0.1, Shape::Gamma, 0.0),
            depth,
        }],
        compute: Service::new(compute_ms * MS, 0.05, Shape::Gamma, 0.0),
        contention: 0.0,
        waits_for_cores: false,
        device: None,
        content: Service::constant(1.0),
        first_step: 1.0,
        epoch: None,
        restarts: true,
        change: None,
        startup_ns: 50.0 * MS,
        others: None,
        on_core: 1.0,
    }
}

#[test]
fn headspace_of_random_pipelines_is_within_3_points_and_its_interval_contains_the_truth() {
    for (world_size, pipelines) in [(1, 200), (8, 100)] {
        let study = study(10_000..10_000 + pipelines, 10_000, draw, |case| {
            ProbePlan::for_loader(case.depth_known.then_some(case.depth), world_size)
        });
        println!("{world_size} processes\n{study}");
        assert!(study.all.within_pct() >= 95.0, "{study}");
        assert!((90.0..=99.0).contains(&study.all.covered_pct()), "{study}");
        assert!(study.all.refused_pct() < 10.0, "{study}");
    }
}

#[test]
fn a_busy_device_has_no_headspace_even_if_the_loop_waits_long() {
    for (in_flight, cv) in (1..=6).flat_map(|n| [(n, 0.0), (n, 0.02), (n, 0.1)]) {
        let mut spec = simple(25.0, 0, 5.0);
        spec.stages[0].service.cv = cv;
        spec.compute.cv = cv;
        let busy = Service::new(30.0 * MS, cv, Shape::Gamma, 0.0);
        spec.device = Some(Device::bounded(busy, in_flight));
        let probed = probe(&spec, ProbePlan::for_loader(None, 1), in_flight as u64);
        let live = &probed.analysis.windows[0].record;
        assert_eq!(live.phase, Phase::Live);
        assert!(
            live.wait_ms > 3.0 * live.compute_ms,
            "most of the step is waiting: {live:?}"
        );
        let found = probed.analysis.result.unwrap().headspace_pct;
        if cv == 0.0 {
            assert!(
                found.low <= 0.0 && 0.0 <= found.high && found.high < 0.1,
                "{found:?}"
            );
        }
        // Loading and launching take 25 + 5 ms, just as long as the device needs for a step. If the
        // times vary, the device is idle now and then, and this idle time is headspace.
        let truth = truth(&spec, 20_000, 1).headspace_pct();
        assert!(
            (found.value - truth).abs() < 3.0,
            "{in_flight} {cv}: {found:?}, not {truth}"
        );
    }
}

#[test]
fn a_queue_that_fills_during_replay_is_not_mistaken_for_a_fast_loader() {
    for depth in [1, 2, 8, 16, 32, 64, 256] {
        let spec = simple(10.0, depth, 5.0);
        let probed = probe(&spec, ProbePlan::for_loader(None, 1), 3);
        // The queue has filled during the replay, so the first steps after it do not wait. The test
        // needs such steps, because the probe could mistake them for a fast loader.
        let refilled = &probed.windows[2];
        assert_eq!((refilled.phase, refilled.cycle), (Phase::Live, 1));
        let free = refilled
            .steps
            .iter()
            .take_while(|step| step.wait_ns < 1_000_000)
            .count();
        assert!(
            free >= if depth < 8 { 1 } else { 8 },
            "depth {depth}: {free}"
        );
        let floor = probed.analysis.result.unwrap();
        assert!(
            (floor.live_ms.value - 10.0).abs() < 0.3,
            "depth {depth}: {floor:?}"
        );
        assert!(
            (floor.headspace_pct.value - 50.0).abs() < 2.0,
            "depth {depth}: {floor:?}"
        );
    }
}

#[test]
fn contention_of_the_loader_with_the_model_is_reported_separately_from_waiting() {
    let mut spec = simple(20.0, 4, 10.0);
    spec.contention = 0.4;
    let floor = probe(&spec, ProbePlan::for_loader(Some(4), 1), 1)
        .analysis
        .result
        .unwrap();
    assert!((floor.contention_ms - 4.0).abs() < 0.4, "{floor:?}");
    assert!((floor.exposed_wait_ms - 6.0).abs() < 0.4, "{floor:?}");
    assert!((floor.floor_ms.value - 10.0).abs() < 0.3, "{floor:?}");
}

#[test]
fn a_loader_that_slows_down_during_the_probe_gives_a_wide_interval_or_no_number() {
    for seed in 0..10 {
        let mut spec = simple(10.0, 4, 5.0);
        spec.change = Some((200, 1.6));
        let analysis = probe(&spec, ProbePlan::for_loader(None, 1), seed).analysis;
        match analysis.result {
            Ok(floor) => {
                let found = floor.headspace_pct;
                // The true headspace rises from 50 % to 69 % during the probe.
                assert!(found.high - found.low > 8.0, "seed {seed}: {found:?}");
                assert!(
                    found.low < 69.0 && found.high > 50.0,
                    "seed {seed}: {found:?}"
                );
            }
            Err(reason) => assert!(
                matches!(reason, NoFloor::Disagree { .. }),
                "seed {seed}: {reason}"
            ),
        }
    }
}

/// A model that launches each step in 20 µs, and a device that executes the launches one after
/// another.
fn queueing(load_ms: f64, device_ms: f64) -> Spec {
    let mut spec = simple(load_ms, 8, 0.02);
    let busy = Service::new(device_ms * MS, 0.05, Shape::Gamma, 0.0);
    spec.device = Some(Device::bounded(busy, usize::MAX));
    spec
}

/// Checks that the answer is right within 5 percentage points, or that its interval contains the
/// truth. Returns the reason if there is no answer.
fn right_or_refused(spec: &Spec, plan: ProbePlan, name: &str) -> Result<(), NoFloor> {
    let truth = truth(spec, 5000, 3).headspace_pct();
    let analysis = probe(spec, plan, 5).analysis;
    let found = analysis.result?.headspace_pct;
    assert!(
        (found.value - truth).abs() < 5.0 || found.low <= truth && truth <= found.high,
        "{name}: {found:?}, not {truth}"
    );
    Ok(())
}

#[test]
fn a_long_replay_outlasts_a_bounded_launch_queue() {
    for (load_ms, device_ms) in [(8.0, 5.0), (20.0, 4.0)] {
        for in_flight in [8, 32] {
            let mut spec = queueing(load_ms, device_ms);
            spec.device.as_mut().unwrap().in_flight = in_flight;
            let name = format!("{load_ms} {device_ms} {in_flight}");
            right_or_refused(&spec, ProbePlan::for_loader(None, 1), &name).unwrap();
        }
    }
}

#[test]
fn a_replay_too_short_for_the_launch_queue_gives_no_floor() {
    let mut spec = queueing(8.0, 5.0);
    spec.device.as_mut().unwrap().in_flight = 32;
    let plan = ProbePlan::for_loader(None, 1).with_total(300).unwrap();
    let refused = right_or_refused(&spec, plan, "32 of 60").unwrap_err();
    assert!(matches!(refused, NoFloor::Asynchronous(_)), "{refused}");
}

#[test]
fn a_loop_that_waits_for_its_device_once_in_many_steps_is_measured_over_whole_periods() {
    for (load_ms, device_ms) in [(4.0, 8.0), (8.0, 5.0), (20.0, 4.0)] {
        for every in [10, 20] {
            let mut spec = queueing(load_ms, device_ms);
            spec.device.as_mut().unwrap().sync_every = Some(every);
            let name = format!("{load_ms} {device_ms} {every}");
            right_or_refused(&spec, ProbePlan::for_loader(None, 1), &name).unwrap();
        }
        let mut spec = queueing(load_ms, device_ms);
        spec.device.as_mut().unwrap().sync_every = Some(500);
        let plan = ProbePlan::for_loader(None, 1);
        let refused = right_or_refused(&spec, plan, "500").unwrap_err();
        assert!(matches!(refused, NoFloor::Asynchronous(_)), "{refused}");
    }
}

#[test]
fn launches_that_copies_to_the_device_wait_for_give_no_floor() {
    for copies_after in [2, 16] {
        let mut spec = queueing(4.0, 8.0);
        spec.device.as_mut().unwrap().copies_after = Some(copies_after);
        let plan = ProbePlan::for_loader(None, 1);
        let refused = right_or_refused(&spec, plan, "copies").unwrap_err();
        assert!(matches!(refused, NoFloor::Asynchronous(_)), "{refused}");
        assert!(refused.to_string().contains("loss.item()"), "{refused}");
    }
}

#[test]
fn an_unbounded_launch_queue_without_synchronisation_causes_a_warning() {
    let spec = queueing(20.0, 4.0);
    let analysis = probe(&spec, ProbePlan::for_loader(None, 1), 5).analysis;
    assert!(analysis.result.is_ok());
    let warning = analysis.warnings.first();
    assert!(
        matches!(warning, Some(FloorWarning::NextToNothing { .. })),
        "{warning:?}"
    );
}

#[test]
fn intervals_contain_the_truth_while_other_programs_start_and_stop() {
    let study = study(20_000..20_150, 20_000, draw_beside_others, |case| {
        ProbePlan::for_loader(case.depth_known.then_some(case.depth), 1)
    });
    println!("{study}");
    assert!((85.0..=99.5).contains(&study.all.covered_pct()), "{study}");
    assert!(study.all.refused_pct() < 20.0, "{study}");
}

#[test]
fn a_window_may_span_several_short_epochs() {
    for batches in [3, 7, 20] {
        let mut spec = simple(10.0, 4, 5.0);
        spec.epoch = Some(batches);
        let truth = truth(&spec, 10_000, 5).headspace_pct();
        let headspace = probe(&spec, ProbePlan::for_loader(None, 1), 6)
            .analysis
            .result
            .unwrap()
            .headspace_pct;
        assert!(
            (headspace.value - truth).abs() < 3.0,
            "{batches}: {headspace:?}, not {truth}"
        );
    }
}

#[test]
fn a_short_probe_does_not_exceed_its_steps() {
    for world_size in [1, 4] {
        let plan = ProbePlan::for_loader(Some(2), world_size)
            .with_total(250)
            .unwrap();
        let probed = probe(&simple(10.0, 2, 5.0), plan, 1);
        assert!(probed.steps <= 250, "{}", probed.steps);
        assert!(probed.replayed <= plan.replayed_steps());
        let headspace = probed.analysis.result.unwrap().headspace_pct;
        assert!((headspace.value - 50.0).abs() < 4.0, "{headspace:?}");
    }
}
