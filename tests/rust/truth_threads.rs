//! The headspace of real threads and queues, on the machine's clock.
//!
//! This is a separate test program, so that no other test of the crate runs at the same time. The margin is wide: an
//! answer may be 12 points off, and of up to four rounds one must be right: other programs disturb a
//! round, but a wrong method is wrong in all of them. What is true is measured before and after the
//! probe with the same loop; where the two differ by more than 5 points, the round does not count. A
//! machine that is never quiet is said aloud and proves nothing.

mod simulator;

use std::time::Duration;

use headspace_agent::batch_source::ProbePlan;
use simulator::threads::{self, Setup, Work};

const MARGIN: f64 = 12.0;
const QUIET: f64 = 5.0;
const ROUNDS: usize = 4;

/// Whether the answer of some round is that of the truth; `None` where no round counts.
fn right_in_some_round(name: &str, setup: &Setup, plan: ProbePlan) -> Option<bool> {
    let mut counted = None;
    for _ in 0..ROUNDS {
        let before = threads::truth(setup, 60).headspace_pct();
        let answer = threads::probe(setup, plan).result;
        let after = threads::truth(setup, 60).headspace_pct();
        println!("{name}: {before:.1} % before, {after:.1} % after, probe {answer:?}");
        let Ok(answer) = answer else { continue };
        if (before - after).abs() < QUIET {
            let truth = f64::midpoint(before, after).max(0.0);
            if (answer.headspace_pct.value - truth).abs() < MARGIN {
                return Some(true);
            }
            counted = Some(false);
        }
    }
    counted
}

#[test]
fn real_threads_and_queues_give_the_same_answers_within_a_wide_margin() {
    let (short, long) = (Duration::from_millis(2), Duration::from_millis(5));
    let sleeping = Setup {
        load: Work::Sleep(long),
        depth: 4,
        compute: Work::Sleep(short),
        device: None,
    };
    let setups = [
        ("sleeping, slow loader", sleeping),
        (
            "spinning model",
            Setup {
                compute: Work::Spin(short),
                ..sleeping
            },
        ),
        (
            "fast loader",
            Setup {
                load: Work::Sleep(short),
                compute: Work::Sleep(long),
                ..sleeping
            },
        ),
        (
            "busy device",
            Setup {
                device: Some((Work::Sleep(long), 3)),
                ..sleeping
            },
        ),
    ];
    let plan = ProbePlan::for_loader(Some(4), 1).with_total(300).unwrap();
    for (name, setup) in setups {
        match right_in_some_round(name, &setup, plan) {
            Some(right) => assert!(right, "{name}: no round was right"),
            None => println!("{name}: the machine was never quiet, so this proves nothing"),
        }
    }
}
