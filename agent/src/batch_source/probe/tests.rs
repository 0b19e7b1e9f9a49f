//! Properties of the probe for any loop: early exits, short epochs, any timing.

use proptest::prelude::*;

use crate::batch_source::{Decision, Probe, ProbePlan};
use crate::model::Window;
use crate::model::record::Phase;

/// One batch as the loop received it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Received {
    Source(u64),
    Cached(u64),
}

/// Result of a run.
struct Run {
    received: Vec<Received>,
    windows: Vec<Window>,
    finished: bool,
}

/// Runs `probe` for `total` batches. It repeats the epochs of the given lengths, and leaves each epoch after
/// `leave` batches. The compute of a step holds the number of its first batch.
fn run(
    mut probe: Probe,
    epochs: &[(u64, usize)],
    total: usize,
    mut wait: impl FnMut(u64) -> u64,
) -> Run {
    let (mut received, mut windows, mut cache) = (Vec::new(), Vec::new(), Vec::new());
    let mut source = 0;
    'run: for (length, leave) in epochs.iter().cycle() {
        probe.begin_epoch();
        let (mut left, mut in_epoch) = (*length, 0);
        while in_epoch < *leave {
            if received.len() >= total {
                break 'run;
            }
            match probe.request() {
                Decision::End => break 'run,
                Decision::Source if left == 0 => {
                    probe.source_ended();
                    break;
                }
                Decision::Source => {
                    left -= 1;
                    if let Some(slot) = probe.delivered() {
                        assert!(slot <= cache.len(), "slots are filled in order");
                        cache.resize(cache.len().max(slot + 1), 0);
                        cache[slot] = source;
                    }
                    received.push(Received::Source(source));
                    source += 1;
                }
                Decision::Cached(index) => received.push(Received::Cached(cache[index])),
            }
            in_epoch += 1;
            if in_epoch > 1 {
                let step = received.len() as u64 - 2;
                windows.extend(probe.timed(step, wait(step)));
            }
        }
    }
    Run {
        received,
        finished: probe.finished(),
        windows,
    }
}

fn plans() -> impl Strategy<Value = ProbePlan> {
    (proptest::option::of(0_u32..80), 1_u32..3, 200_u64..1200).prop_map(|(depth, world, total)| {
        ProbePlan::for_loader(depth, world)
            .with_total(total)
            .unwrap()
    })
}

fn epochs() -> impl Strategy<Value = Vec<(u64, usize)>> {
    proptest::collection::vec((1_u64..400, 1_usize..400), 1..5)
}

/// Waits in nanoseconds like those of a loop: zero and random values in turn.
fn waits(seed: u64) -> impl FnMut(u64) -> u64 {
    move |step| {
        let mixed = (step ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if (step / 50 + seed).is_multiple_of(3) {
            0
        } else {
            mixed >> 40
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_source_batch_is_delivered_once_and_in_order(
        plan in plans(), epochs in epochs(), seed in any::<u64>(),
    ) {
        let run = run(Probe::new(plan, false), &epochs, 3000, waits(seed));
        let live: Vec<u64> = run.received.iter().filter_map(|batch| match batch {
            Received::Source(n) => Some(*n),
            Received::Cached(_) => None,
        }).collect();
        prop_assert!(live.iter().copied().eq(0..live.len() as u64));
    }

    #[test]
    fn the_probe_ends_within_its_plan_whatever_the_loop_does(
        plan in plans(), epochs in epochs(), seed in any::<u64>(),
    ) {
        let run = run(Probe::new(plan, true), &epochs, 100_000, waits(seed));
        prop_assert!(run.finished);
        let replayed = run.received.iter().filter(|b| matches!(b, Received::Cached(_))).count() as u64;
        prop_assert!(run.received.len() as u64 <= plan.total_steps());
        prop_assert!(replayed <= plan.replayed_steps());
        if !plan.adaptive {
            prop_assert_eq!(run.received.len() as u64, plan.total_steps());
            prop_assert_eq!(replayed, plan.replayed_steps());
        }
    }

    #[test]
    fn several_ranks_switch_at_the_same_step_for_any_waits(
        depth in proptest::option::of(0_u32..80),
        epochs in epochs(),
        seeds in any::<(u64, u64)>(),
    ) {
        let plan = ProbePlan::for_loader(depth, 2);
        let one = run(Probe::new(plan, false), &epochs, 2500, waits(seeds.0));
        let other = run(Probe::new(plan, false), &epochs, 2500, waits(seeds.1));
        prop_assert_eq!(one.received, other.received);
    }

    #[test]
    fn a_window_holds_only_steps_between_batches_of_its_own_phase(
        plan in plans(), epochs in epochs(), seed in any::<u64>(),
    ) {
        let run = run(Probe::new(plan, true), &epochs, 100_000, waits(seed));
        for window in &run.windows {
            for step in &window.steps {
                let first = usize::try_from(step.compute_ns).unwrap();
                for batch in [run.received[first], run.received[first + 1]] {
                    prop_assert_eq!(
                        matches!(batch, Received::Cached(_)),
                        window.phase == Phase::Replay
                    );
                }
            }
            let starts: Vec<u64> = window.steps.iter().map(|step| step.compute_ns).collect();
            prop_assert!(starts.is_sorted_by(|a, b| a < b), "no step counts twice");
        }
    }

    #[test]
    fn replayed_batches_are_those_of_the_live_window_before(
        plan in plans(), epochs in epochs(), seed in any::<u64>(),
    ) {
        let run = run(Probe::new(plan, true), &epochs, 100_000, waits(seed));
        let mut live = 0..0;
        let mut replaying = false;
        for batch in &run.received {
            match *batch {
                Received::Source(n) => {
                    live = if replaying { n..n + 1 } else { live.start..n + 1 };
                    replaying = false;
                }
                Received::Cached(n) => {
                    replaying = true;
                    prop_assert!(live.contains(&n), "{n} not in {live:?}");
                }
            }
        }
    }
}

/// Waits of a loop whose loader takes twice as long as the compute, with a queue of `depth`.
fn refilled(depth: u64) -> impl FnMut(u64, bool) -> u64 {
    let mut held = 0_u64;
    move |_, replaying| {
        // Half a batch is made in each compute.
        held += 1;
        if replaying {
            held = held.min(2 * depth);
            return 0;
        }
        if held >= 2 {
            held -= 2;
            return 0;
        }
        held = 0;
        10_000_000
    }
}

#[test]
fn a_live_window_counts_from_the_step_at_which_the_refilled_queue_is_empty() {
    let mut probe = Probe::new(ProbePlan::for_loader(None, 1), true);
    let mut wait = refilled(16);
    let mut windows = Vec::new();
    probe.begin_epoch();
    for step in 0.. {
        let replaying = match probe.request() {
            Decision::End => break,
            Decision::Source => {
                probe.delivered();
                false
            }
            Decision::Cached(_) => true,
        };
        windows.extend(probe.timed(10_000_000, wait(step, replaying)));
    }
    let live: Vec<&Window> = windows.iter().filter(|w| w.phase == Phase::Live).collect();
    assert_eq!(live.len(), 4);
    for window in live {
        let settled = &window.steps[usize::try_from(window.settled_at.unwrap()).unwrap()..];
        let waits = settled.iter().filter(|step| step.wait_ns > 0).count();
        assert!(
            10 * waits >= 9 * settled.len(),
            "{waits} of {}",
            settled.len()
        );
    }
}

#[test]
fn steps_after_the_last_replay_are_settling_until_the_loop_waits_again() {
    let mut probe = Probe::new(ProbePlan::for_loader(Some(16), 1), false);
    let mut wait = refilled(16);
    let mut phases = Vec::new();
    probe.begin_epoch();
    for step in 0..2000 {
        let replaying = matches!(probe.request(), Decision::Cached(_));
        if !replaying {
            probe.delivered();
        }
        probe.timed(10_000_000, wait(step, replaying));
        phases.push((probe.phase(), probe.finished()));
    }
    let after: Vec<Phase> = phases.iter().filter(|p| p.1).map(|p| p.0).collect();
    let settling = after
        .iter()
        .filter(|phase| **phase == Phase::Settle)
        .count();
    assert!((16..100).contains(&settling), "{settling}");
    assert!(after[settling..].iter().all(|phase| *phase == Phase::Live));
}

/// All windows of a probe. `compute` returns the compute of a step from its number. If `change` returns true
/// before a step, the loop continues with another loader.
fn windows_of(
    compute: impl Fn(u64) -> u64,
    change: impl Fn(&Probe, &[Window]) -> bool,
) -> Vec<Window> {
    let mut probe = Probe::new(ProbePlan::for_loader(Some(4), 1), false);
    let mut windows = Vec::new();
    probe.begin_epoch();
    for step in 0..3000 {
        if change(&probe, &windows) {
            probe.change_loader();
        }
        let replaying = matches!(probe.request(), Decision::Cached(_));
        if !replaying {
            probe.delivered();
        }
        let wait = if replaying { 0 } else { 5_000_000 };
        windows.extend(probe.timed(compute(step), wait));
    }
    assert!(probe.finished());
    windows
}

fn never(_: &Probe, _: &[Window]) -> bool {
    false
}

#[test]
fn the_long_replay_is_the_last_window_on_a_steady_machine() {
    let windows = windows_of(|step| 10_000_000 + step % 7 * 100_000, never);

    let long: Vec<usize> = (0..windows.len()).filter(|w| windows[*w].long).collect();
    assert_eq!(long, [windows.len() - 1]);
    assert_eq!(windows[long[0]].phase, Phase::Replay);
    assert_eq!(windows.len(), 8);
}

#[test]
fn on_an_unsteady_machine_more_pairs_follow_the_long_replay() {
    let plan = ProbePlan::for_loader(Some(4), 1);
    // Alternately slower and faster, for longer than a window.
    let windows = windows_of(|step| 10_000_000 + step / 37 % 2 * 8_000_000, never);

    let long = windows.iter().position(|window| window.long).unwrap();
    assert_eq!(long, 7);
    let pairs = windows.last().unwrap().cycle + 1;
    assert!(pairs > plan.cycles && pairs <= plan.most_cycles, "{pairs}");
}

#[test]
fn a_long_replay_that_another_loader_ends_early_does_not_count() {
    let in_long =
        |probe: &Probe, windows: &[Window]| windows.len() == 7 && probe.phase() == Phase::Replay;
    let windows = windows_of(|step| 10_000_000 + step % 7 * 100_000, in_long);

    assert_eq!(windows[7].phase, Phase::Replay);
    assert!(windows.iter().all(|window| !window.long));
}

#[test]
fn epochs_of_one_batch_have_no_whole_step_and_the_probe_still_ends() {
    let run = run(
        Probe::new(ProbePlan::default(), true),
        &[(1, 9)],
        100_000,
        |_| 5,
    );
    assert!(run.finished);
    assert!(
        run.windows
            .iter()
            .all(|window| window.settled_at.is_none() || window.phase == Phase::Replay)
    );
}
