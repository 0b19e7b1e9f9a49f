//! What the windows of a probe must say, and when they say nothing.

use super::{Asynchrony, FloorWarning, NoFloor, Unused, estimate};
use crate::analysis::resources::CoresInUse;
use crate::model::record::Phase;
use crate::model::{ThreadReading, ThreadTimes, Window, WindowStep};
use crate::statistics::bootstrap::Rng;
use crate::statistics::mean;

fn noise(rng: &mut Rng, level: f64) -> f64 {
    1.0 + level * (rng.unit() + rng.unit() - 1.0)
}

/// A window of steps of so many milliseconds of compute and wait, each within 10 %.
fn window(phase: Phase, cycle: u32, steps: u32, compute_ms: f64, wait_ms: f64) -> Window {
    let mut rng = Rng::new(u64::from(cycle) * 2 + u64::from(phase == Phase::Live));
    let mut ns = |ms: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ns = (ms * 1e6 * noise(&mut rng, 0.1)) as u64;
        ns
    };
    let steps = (0..steps)
        .map(|_| WindowStep {
            compute_ns: ns(compute_ms),
            wait_ns: ns(wait_ms),
            slot: None,
        })
        .collect();
    Window {
        long: false,
        phase,
        cycle,
        settled_at: Some(0),
        entered_ns: None,
        steps,
        readings: Vec::new(),
    }
}

/// Pairs of windows: live steps as given, 10 ms in replay.
fn probe(live: &[(f64, f64)]) -> Vec<Window> {
    (0..)
        .zip(live)
        .flat_map(|(cycle, &(compute_ms, wait_ms))| {
            [
                window(Phase::Live, cycle, 64, compute_ms, wait_ms),
                window(Phase::Replay, cycle, 64, 10.0, 0.0),
            ]
        })
        .collect()
}

#[test]
fn waits_are_headspace_and_the_interval_contains_it() {
    let floor = estimate(&probe(&[(10.0, 20.0); 4]), None).result.unwrap();
    let headspace = floor.headspace_pct;
    assert!((headspace.value - 66.7).abs() < 1.0, "{headspace:?}");
    assert!(
        headspace.low < 66.67 && 66.67 < headspace.high,
        "{headspace:?}"
    );
    assert!(headspace.high - headspace.low < 3.0, "{headspace:?}");
    assert!((floor.exposed_wait_ms - 20.0).abs() < 0.6, "{floor:?}");
    assert!(floor.contention_ms < 0.3, "{floor:?}");
}

#[test]
fn compute_that_is_shorter_in_replay_is_contention_and_not_wait() {
    let floor = estimate(&probe(&[(14.0, 6.0); 4]), None).result.unwrap();
    assert!((floor.contention_ms - 4.0).abs() < 0.4, "{floor:?}");
    assert!((floor.exposed_wait_ms - 6.0).abs() < 0.4, "{floor:?}");
}

#[test]
fn waiting_for_the_loader_is_no_headspace_while_the_device_is_busy() {
    let floor = estimate(&probe(&[(2.0, 8.0); 4]), None).result.unwrap();
    assert!(
        floor.headspace_pct.low <= 0.0 && floor.headspace_pct.value < 2.0,
        "{floor:?}"
    );
    assert!(floor.contention_ms.abs() < 1e-9, "{floor:?}");
}

#[test]
fn the_same_windows_give_the_same_numbers() {
    let windows = probe(&[(10.0, 5.0); 4]);
    assert_eq!(estimate(&windows, None), estimate(&windows, None));
}

#[test]
fn a_loop_that_changes_midway_has_a_wider_interval_with_a_warning_or_no_number() {
    let steady = estimate(&probe(&[(10.0, 5.0); 4]), None);
    assert_eq!(steady.warnings, []);
    let changed = estimate(
        &probe(&[(10.0, 5.0), (10.0, 5.0), (10.0, 9.0), (10.0, 9.0)]),
        None,
    );
    match changed.result {
        Ok(floor) => {
            let found = floor.headspace_pct;
            assert!(found.low < 34.0 && found.high > 46.0, "{found:?}");
            let differ = |warning| matches!(warning, FloorWarning::WindowsDiffer { spread_pct } if spread_pct > 20.0);
            assert!(differ(changed.warnings[0]), "{:?}", changed.warnings);
        }
        Err(reason) => assert!(matches!(reason, NoFloor::Disagree { .. }), "{reason}"),
    }
}

#[test]
fn replayed_steps_that_delay_later_steps_are_no_floor() {
    let mut windows = probe(&[(10.0, 5.0); 4]);
    for replay in windows.iter_mut().filter(|w| w.phase == Phase::Replay) {
        for step in &mut replay.steps {
            step.compute_ns = 20_000;
        }
    }
    assert!(matches!(
        estimate(&windows, None).result,
        Ok(_) | Err(NoFloor::Asynchronous(Asynchrony::Short { .. }))
    ));
    // Each of 64 replayed steps is owed 10 ms; the next 32 live steps take 20 ms more each.
    for live in windows
        .iter_mut()
        .filter(|w| w.phase == Phase::Live && w.cycle > 0)
    {
        live.entered_ns = Some(15_000_000);
        live.settled_at = Some(32);
        for step in live.steps.iter_mut().take(32) {
            step.compute_ns += 20_000_000;
        }
    }
    let refused = estimate(&windows, None).result.unwrap_err();
    assert!(
        matches!(refused, NoFloor::Asynchronous(Asynchrony::Owed { .. })),
        "{refused}"
    );
}

/// Lets the loop's thread wait for a core for `share` of the time that it ran, and says so by readings.
fn wait_for_cores(windows: &mut [Window], share: impl Fn(&Window) -> f64) {
    let (mut ran, mut waited) = (0, 0);
    for window in windows {
        let share = share(window);
        for at in (0..=window.steps.len()).step_by(8) {
            window.readings.push(ThreadReading {
                steps: u32::try_from(at).unwrap(),
                times: ThreadTimes {
                    ran_ns: ran,
                    waited_ns: waited,
                },
            });
            for step in window.steps.iter_mut().skip(at).take(8) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let wait = (share * step.compute_ns as f64) as u64;
                ran += step.compute_ns;
                waited += wait;
                step.compute_ns += wait;
            }
        }
    }
}

#[test]
fn waits_caused_by_other_programs_do_not_raise_the_floor() {
    // Beside another program in the second half of the probe: the thread waits half of its time.
    let mut windows = probe(&[(10.0, 10.0); 4]);
    wait_for_cores(&mut windows, |window| f64::from(window.cycle >= 2));
    let analysis = estimate(&windows, None);
    let warning = analysis.warnings[0];
    assert!(
        matches!(warning, FloorWarning::Oversubscribed { .. }),
        "{warning:?}"
    );
    let floor = analysis.result.unwrap();
    // Half of the steps of 20 ms take 30, and half of those of 10 ms take 20.
    assert!((floor.headspace_pct.value - 40.0).abs() < 6.0, "{floor:?}");
    let shares: Vec<f64> = (analysis.windows.iter())
        .filter_map(|window| window.record.run_queue_pct)
        .collect();
    assert!(
        shares[0] < 1.0 && (shares[7] - 50.0).abs() < 1.0,
        "{shares:?}"
    );
}

#[test]
fn a_replay_that_is_slower_than_live_gives_no_number() {
    let result = estimate(&probe(&[(8.0, 0.5); 4]), None).result;
    assert!(
        matches!(result, Err(NoFloor::ReplaySlower { .. })),
        "{result:?}"
    );
}

#[test]
fn a_loop_that_never_settled_or_had_few_steps_gives_no_number() {
    let mut windows = probe(&[(10.0, 5.0); 2]);
    assert!(matches!(
        estimate(&windows[..1], None).result,
        Err(NoFloor::TooFewSteps {
            live: 64,
            replay: 0
        })
    ));
    for window in windows
        .iter_mut()
        .filter(|window| window.phase == Phase::Live)
    {
        window.settled_at = None;
    }
    let analysis = estimate(&windows, None);
    assert_eq!(
        analysis.result,
        Err(NoFloor::Unsettled {
            unsettled: 2,
            windows: 2
        })
    );
    assert!(analysis.windows[0].unused.is_some());
    assert!(matches!(
        estimate(&[], None).result,
        Err(NoFloor::TooFewSteps { .. })
    ));
}

#[test]
fn waits_caused_by_the_loader_are_headspace_but_not_those_caused_by_others() {
    // The thread waits for a core in live windows alone, more in the first one.
    let mut windows = probe(&[(10.0, 10.0); 2]);
    let live = |window: &Window| window.phase == Phase::Live;
    wait_for_cores(&mut windows, |w| {
        let more = if w.cycle == 0 { 0.14 } else { 0.06 };
        if live(w) { more } else { 0.0 }
    });
    let headspace = |own_beside_loop, others| {
        let cores = CoresInUse {
            own_beside_loop,
            others,
        };
        let floor = estimate(&windows, Some(cores));
        floor.result.unwrap().headspace_pct.value
    };
    let (loaders, halved, of_others) = (
        headspace(1.0, 0.0),
        headspace(0.5, 0.5),
        headspace(0.0, 1.0),
    );
    // The live step is 21 ms, and 10 are left where nothing else has the core.
    assert!((loaders - 100.0 * 11.0 / 21.0).abs() < 1.0, "{loaders}");
    assert!(of_others < loaders - 2.0, "{of_others} of {loaders}");
    assert!(of_others < halved && halved < loaders, "{halved}");
}

#[test]
fn equal_waits_in_both_phases_are_not_adjusted() {
    // The thread waits 40 % of the time live, of which others cause a quarter, and 10 % in replay.
    let mut windows = probe(&[(10.0, 10.0); 3]);
    wait_for_cores(&mut windows, |window| match window.phase {
        Phase::Live => 2.0 / 3.0,
        _ => 1.0 / 9.0,
    });
    let headspace = |cores| {
        let floor = estimate(&windows, cores).result.unwrap();
        floor.headspace_pct.value
    };

    let cores = CoresInUse {
        own_beside_loop: 3.0,
        others: 1.0,
    };
    // Steps of 26.7 ms, and of 11.1 ms.
    let expected = 100.0 * (1.0 - 11.1 / 26.7);
    let found = headspace(Some(cores));
    assert!((found - expected).abs() < 1.0, "{found}, not {expected}");
}

#[test]
fn a_window_whose_queue_was_still_full_is_left_out_with_its_reason() {
    let analysis = estimate(&probe(&[(10.0, 0.0), (10.0, 10.0), (10.0, 10.0)]), None);
    assert_eq!(analysis.windows[0].unused, Some(Unused::StillDraining));
    assert!((analysis.result.unwrap().headspace_pct.value - 50.0).abs() < 2.0);
}

#[test]
fn the_floor_is_measured_at_the_end_of_the_last_replay_with_an_idle_loader() {
    let mut windows = probe(&[(14.0, 6.0); 3]);
    for replay in windows
        .iter_mut()
        .filter(|window| window.phase == Phase::Replay)
    {
        replay.steps = window(Phase::Replay, 7, 24, 14.0, 0.0).steps;
    }
    let last = windows.last_mut().unwrap();
    last.steps
        .extend(window(Phase::Replay, 8, 80, 10.0, 0.0).steps);
    let analysis = estimate(&windows, None);
    assert!(
        analysis.windows[1].unused.is_some(),
        "{:?}",
        analysis.windows
    );
    let floor = analysis.result.unwrap();
    assert!((floor.floor_ms.value - 10.0).abs() < 0.2, "{floor:?}");
}

#[test]
fn cached_batches_that_are_faster_than_usual_do_not_lower_the_floor() {
    // Work per batch varies by a third; of the ten cached ones, all are among the quicker.
    let mut rng = Rng::new(5);
    let mut live = window(Phase::Live, 0, 200, 10.0, 5.0);
    let mut replay = window(Phase::Replay, 0, 200, 10.0, 0.0);
    let works: Vec<f64> = (0..200).map(|_| 1.0 + 0.6 * (rng.unit() - 0.5)).collect();
    let mut quick: Vec<usize> = (0..200).filter(|&i| works[i] < 1.05).take(10).collect();
    quick.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let scaled = |ns: u64, work: f64| (ns as f64 * work) as u64;
    for (i, step) in live.steps.iter_mut().enumerate() {
        step.compute_ns = scaled(step.compute_ns, works[i]);
        step.slot = quick
            .iter()
            .position(|&q| q == i)
            .and_then(|slot| u32::try_from(slot).ok());
    }
    for (i, step) in replay.steps.iter_mut().enumerate() {
        step.slot = u32::try_from(i % 10).ok();
        step.compute_ns = scaled(step.compute_ns, works[quick[i % 10]]);
    }
    let raw = mean(
        &replay
            .steps
            .iter()
            .map(|s| s.step_ns() as f64 * 1e-6)
            .collect::<Vec<_>>(),
    );
    let usual = 10.0 * mean(&works);
    assert!(
        usual - raw > 0.7,
        "{raw} of {usual}: the test has something to correct"
    );
    let floor = estimate(&[live, replay], None).result.unwrap();
    assert!(
        (floor.floor_ms.value - usual).abs() < 0.4,
        "{floor:?}, not {usual}"
    );
}
