//! Which loop the verdict is about, and what the other loops add.

use crate::analysis::loop_facts::LoopFacts;
use crate::analysis::main_loop::select_main_loop;
use crate::model::record::{OtherLoop, Role};

/// Loops run within the same steps if this part of their known epoch time overlaps, and if the other loop
/// has enough steps ([`STEPS_BESIDE`]).
const OVERLAP: f64 = 0.5;
/// Steps of another loop within those of the main loop, as a share of the main loop's, from which on both run
/// beside each other.
const STEPS_BESIDE: f64 = 0.5;

/// The loop that the verdict is about.
pub(super) fn find_main_loop(loops: &[LoopFacts]) -> Option<&LoopFacts> {
    loops.get(select_main_loop(loops.iter().map(LoopFacts::candidate))?)
}

/// The loops besides the main one that have steps, the longest first.
pub(super) fn other_loops(loops: &[LoopFacts], main: &LoopFacts) -> Vec<OtherLoop> {
    let mut others: Vec<OtherLoop> = loops
        .iter()
        .filter(|other| !std::ptr::eq(*other, main) && other.totals.steps > 0)
        .map(|other| OtherLoop {
            name: other.totals.name.clone(),
            role: other.loader.role,
            epochs: other.totals.epochs,
            steps: other.totals.steps,
            seconds: other.seconds(),
        })
        .collect();
    others.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    others
}

/// Time spent waiting for other loaders that are iterated within the same steps (for example zipped), in
/// percent of the main loop's time. This waiting is part of the main loop's own compute.
pub(super) fn waits_beside_pct(loops: &[LoopFacts], main: &LoopFacts) -> f64 {
    let all = main.series().totals_after(0).step.sum_nanos() as f64;
    let within = |other: &&LoopFacts| {
        let secondary = other.loader.role.is_some_and(Role::is_secondary);
        let (other, main) = (&other.totals, &main.totals);
        other.name != main.name
            && !secondary
            && !other.without_loader
            && other.steps as f64 >= STEPS_BESIDE * main.steps as f64
            && go_on_together(&other.spans_s, &main.spans_s)
    };
    let waits = loops
        .iter()
        .filter(within)
        .map(|other| other.series().totals_after(0).wait_ns as f64);
    if all > 0.0 {
        100.0 * waits.sum::<f64>() / all
    } else {
        0.0
    }
}

/// Whether at least half of one loop's epoch time overlaps the other loop's epochs. Loops that run in turn,
/// as in many programs, do not overlap.
fn go_on_together(spans: &[(f64, f64)], others: &[(f64, f64)]) -> bool {
    let overlap = |(from, to): &(f64, f64)| -> f64 {
        let common = |other: &(f64, f64)| (to.min(other.1) - from.max(other.0)).max(0.0);
        others.iter().map(common).sum()
    };
    let length = |spans: &[(f64, f64)]| spans.iter().map(|(from, to)| to - from).sum::<f64>();
    // Only the first epochs of each loop are kept. The shorter record is complete.
    let known = length(spans).min(length(others));
    known > 0.0 && spans.iter().map(overlap).sum::<f64>() >= OVERLAP * known
}

/// Names of the loops whose time does not count for the stages. A loop on a background thread feeds the main loop.
pub(super) fn other_loop_names<'a>(loops: &'a [LoopFacts], main: &LoopFacts) -> Vec<&'a str> {
    (loops.iter())
        .filter(|other| other.loader.role != Some(Role::Background))
        .map(|other| other.totals.name.as_str())
        .filter(|name| *name != main.totals.name)
        .collect()
}

#[cfg(test)]
mod tests;
