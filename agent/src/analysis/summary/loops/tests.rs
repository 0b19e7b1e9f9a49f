//! Which loop is the training loop.

use super::*;
use crate::analysis::summary::RunFacts;
use crate::model::record::{LoaderRecord, Role, SummaryRecord};
use crate::model::step_series::StepSeries;
use crate::model::{LoopTotals, StepSample};

/// The numbers of a summary.
fn summarise(run: &RunFacts<'_>, loops: &[LoopFacts]) -> SummaryRecord {
    crate::analysis::summary::summarise(run, loops).record
}

/// A loop of so many steps of 30 ms, of which 20 ms are waiting.
fn facts(name: &str, steps: usize, role: Option<Role>) -> LoopFacts {
    let mut live = StepSeries::default();
    for _ in 0..steps {
        live.push(StepSample {
            compute_ns: 10_000_000,
            wait_ns: 20_000_000,
        });
    }
    LoopFacts {
        totals: LoopTotals {
            name: name.into(),
            steps: live.len(),
            live,
            ..LoopTotals::default()
        },
        loader: LoaderRecord {
            role,
            ..LoaderRecord::default()
        },
        ..LoopFacts::default()
    }
}

fn name_of_main(loops: &[LoopFacts]) -> &str {
    find_main_loop(loops).map_or("none", |main| &main.totals.name)
}

#[test]
fn an_evaluation_is_not_the_main_loop_while_another_took_steps() {
    let mut loops = vec![
        facts("evaluation", 1000, Some(Role::Evaluation)),
        facts("training", 5, Some(Role::Training)),
    ];
    assert_eq!(name_of_main(&loops), "training");
    loops[1].totals.steps = 0;
    assert_eq!(name_of_main(&loops), "evaluation");
}

#[test]
fn a_loop_of_unknown_role_may_be_the_main_loop() {
    let loops = [
        facts("evaluation", 1000, Some(Role::Evaluation)),
        facts("feeds", 1000, Some(Role::Background)),
        facts("unknown", 100, None),
    ];
    assert_eq!(name_of_main(&loops), "unknown");
}

#[test]
fn a_training_loop_has_priority_over_an_earlier_loop_without_training() {
    let loops = [
        facts("statistics", 1000, None),
        facts("training", 100, Some(Role::Training)),
    ];
    assert_eq!(name_of_main(&loops), "training");
    // But not to one that is too short for a number.
    let loops = [
        facts("training", 1000, None),
        facts("check", 3, Some(Role::Training)),
    ];
    assert_eq!(name_of_main(&loops), "training");
}

#[test]
fn without_roles_the_loop_with_the_most_time_is_the_main_loop() {
    let loops = [facts("short", 100, None), facts("long", 200, None)];
    assert_eq!(name_of_main(&loops), "long");
}

#[test]
fn the_loop_that_the_user_named_is_the_main_loop_in_any_role() {
    let mut loops = vec![
        facts("training", 1000, Some(Role::Training)),
        facts("mine", 10, Some(Role::Evaluation)),
    ];
    loops[1].loader.chosen = true;
    assert_eq!(name_of_main(&loops), "mine");
}

#[test]
fn the_summary_lists_the_other_loops() {
    let mut short = facts("short", 10, Some(Role::Evaluation));
    short.totals.epochs = 60;
    let summary = summarise(
        &RunFacts::default(),
        &[
            short,
            facts("training", 100, Some(Role::Training)),
            facts("long", 50, None),
            facts("unused", 0, None),
        ],
    );

    assert_eq!(summary.loop_name.as_deref(), Some("training"));
    assert_eq!(summary.loop_role, Some(Role::Training));
    let others: Vec<_> = summary
        .other_loops
        .iter()
        .map(|l| l.name.as_str())
        .collect();
    assert_eq!(others, ["long", "short"]);
    assert_eq!(summary.other_loops[1].role, Some(Role::Evaluation));
    assert!((summary.other_loops[0].seconds - 1.5).abs() < 1e-9);
    assert_eq!(summary.other_loops[1].epochs, 60);
}

#[test]
fn the_wait_of_a_background_loop_is_not_reported_as_training_wait() {
    let summary = summarise(
        &RunFacts::default(),
        &[facts("feeds", 100, Some(Role::Background))],
    );

    assert_eq!(summary.steady_step_mean_ms, Some(30.0));
    assert_eq!((summary.wait_ms, summary.wait_pct), (None, None));
    assert_eq!(summary.headspace_upper_bound_pct, None);
}
