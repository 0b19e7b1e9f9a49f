use super::*;
use crate::model::InterventionKind;

fn plan() -> WhatIfPlan {
    WhatIfPlan::for_loader(Some(0), 1)
}

fn stage(name: &str, busy_ms: u64) -> SwitchedStage {
    SwitchedStage {
        name: name.to_owned(),
        is_replaceable: true,
        is_delayable: true,
        calls_at_once: 1,
        proposed_calls: None,
        calls: 10,
        busy_ns: busy_ms * 1_000_000,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small positive number"
)]
fn whole(calls: f64) -> u32 {
    calls as u32
}

/// How these tests call the requests.
const REQUESTS: &str = "the requests";

/// A pipeline of these stages.
struct Watched {
    stages: Vec<SwitchedStage>,
    cores: u32,
    can_repeat: bool,
    batches_held: Option<u32>,
    behaves: bool,
}

impl Watched {
    fn of(stages: &[SwitchedStage]) -> Self {
        Self {
            stages: stages.to_vec(),
            cores: 64,
            can_repeat: false,
            batches_held: None,
            behaves: true,
        }
    }
}

impl Pipeline for Watched {
    fn stages(&self) -> Vec<SwitchedStage> {
        self.stages.clone()
    }

    fn cores(&self) -> u32 {
        self.cores
    }

    fn can_repeat_batches(&self) -> bool {
        self.can_repeat
    }

    fn keeps_epoch_length(&self) -> bool {
        self.can_repeat
    }

    fn batches_held(&self) -> Option<u32> {
        self.batches_held
    }

    fn behaves_as(&self, _: &Intervention) -> bool {
        self.behaves
    }
}

/// What a run does: its windows, and what the switches were set to.
#[derive(Debug, Default)]
struct Run {
    windows: Vec<WhatIfWindow>,
    changes: Vec<Change>,
    phases: Vec<Phase>,
}

impl Run {
    fn asked(&self) -> Vec<(&str, InterventionKind)> {
        let begun = self.changes.iter().filter_map(|change| match change {
            Change::Begin { intervention, .. } => Some(intervention),
            _ => None,
        });
        begun
            .map(|asked| (asked.stage.as_deref().unwrap_or(REQUESTS), asked.kind))
            .collect()
    }
}

/// Runs a loop whose step takes `step_ms` with the stages changed that it gets, and whose batches cannot be repeated.
fn run(
    plan: WhatIfPlan,
    stages: &[SwitchedStage],
    epoch: u32,
    step_ms: impl Fn(&[String], &Intervention) -> u64,
) -> Run {
    run_pipeline(plan, &Watched::of(stages), epoch, step_ms)
}

/// The same for any pipeline.
fn run_pipeline(
    plan: WhatIfPlan,
    pipeline: &Watched,
    epoch: u32,
    step_ms: impl Fn(&[String], &Intervention) -> u64,
) -> Run {
    let mut what_if = WhatIf::new(plan);
    let mut run = Run::default();
    let mut now = 10;
    for batch in 0..10_000 {
        if batch % epoch == 0 {
            what_if.begin_epoch();
        }
        let turn = what_if.request(pipeline);
        run.windows.extend(turn.window);
        match &turn.change {
            Some(Change::Begin {
                intervention,
                stages,
            }) => now = step_ms(stages, intervention),
            Some(_) => now = 10,
            None => {}
        }
        run.changes.extend(turn.change);
        run.phases.push(what_if.phase());
        what_if.delivered();
        // Steps vary a little.
        what_if.timed(now * 1_000_000, u64::from(batch % 7) * 10_000);
        if what_if.is_over() {
            return run;
        }
    }
    panic!("the what-if does not end");
}

#[test]
fn the_busiest_stage_is_asked_first_and_windows_alternate_until_the_steps_are_used_up() {
    let stages = [stage("read", 5), stage("decode", 50)];
    let run = run(plan(), &stages, 10_000, |_, _| 5);

    let asked = run.asked();
    assert_eq!(
        asked[..2],
        [
            ("decode", InterventionKind::Free),
            ("decode", InterventionKind::Cut)
        ]
    );
    assert_eq!(run.changes.first(), Some(&Change::Watch));
    assert_eq!(run.changes.last(), Some(&Change::Finish));
    for (number, window) in run.windows.iter().enumerate() {
        assert_eq!(window.intervention.is_some(), number % 2 == 1);
    }
    assert!(run.phases.len() <= plan().limit as usize + plan().settle as usize);
}

#[test]
fn only_settled_steps_of_one_epoch_count() {
    let stages = [stage("read", 5)];
    let run = run(plan(), &stages, 40, |_, _| 5);

    let first = &run.windows[1];
    let counted = first.steps.len();
    assert!(
        (90..100).contains(&counted),
        "the steps between epochs are left out: {counted}"
    );
    assert!(first.steps.iter().all(|step| step.compute_ns == 5_000_000));
    let changed = run.phases.iter().filter(|phase| **phase == Phase::Changed);
    let of_pairs = run.asked().len() * (2 * plan().settle + plan().changed) as usize;
    assert_eq!(changed.count(), of_pairs);
}

#[test]
fn an_uncertain_window_gets_more_steps_within_the_limit() {
    let mut what_if = WhatIf::new(plan());
    let mut lengths = Vec::new();
    let mut steps = 0_u64;
    while !what_if.is_over() {
        let turn = what_if.request(&Watched::of(&[stage("read", 5)]));
        let changed = turn.window.filter(|window| window.intervention.is_some());
        lengths.extend(changed.map(|window| window.steps.len()));
        what_if.delivered();
        // For some steps the loop is three times as slow.
        what_if.timed(
            if steps % 64 < 32 {
                5_000_000
            } else {
                15_000_000
            },
            0,
        );
        steps += 1;
    }
    assert!(lengths[0] > 250, "{lengths:?}");
    assert!(steps <= u64::from(plan().limit + plan().settle));
}

#[test]
fn details_are_asked_of_the_stage_that_gains_most_and_not_of_others() {
    let stages = [stage("read", 40), stage("decode", 50), stage("resize", 45)];
    let run = run(plan(), &stages, 10_000, |changed, asked| {
        let is_decode = changed.iter().any(|name| name == "decode");
        match (is_decode, asked.kind) {
            (true, InterventionKind::Half) => 7,
            (true, _) => 4,
            _ => 10,
        }
    });

    let details: Vec<&str> = (run.asked()[4..].iter()).map(|(stage, _)| *stage).collect();
    assert!(!details.is_empty());
    assert!(
        details.iter().all(|stage| *stage == "decode"),
        "{details:?}"
    );
    assert!(run.asked().contains(&("decode", InterventionKind::Half)));
}

#[test]
fn a_cut_changes_all_stages_up_to_its_own() {
    let stages = [stage("read", 40), stage("decode", 50)];
    let run = run(plan(), &stages, 10_000, |_, _| 5);

    let cut = run.changes.iter().find_map(|change| match change {
        Change::Begin {
            intervention,
            stages,
        } if intervention.kind == InterventionKind::Cut => Some((intervention, stages)),
        _ => None,
    });
    let (intervention, changed) = cut.unwrap();
    assert_eq!(intervention.stage.as_deref(), Some("decode"));
    assert_eq!(changed, &["read", "decode"]);
}

#[test]
fn with_all_data_kept_calls_are_only_delayed_or_kept_waiting() {
    let parallel = SwitchedStage {
        calls_at_once: 4,
        ..stage("decode", 40)
    };
    let keeps = WhatIfPlan {
        keep_data: true,
        ..plan()
    };
    let run = run(keeps, &[stage("read", 5), parallel], 10_000, |_, _| 12);

    assert!(!run.asked().is_empty());
    assert!(run.asked().iter().all(|(_, kind)| !kind.replaces_results()));
    let gate = (run.windows.iter())
        .filter_map(|window| window.intervention.as_ref())
        .find(|asked| asked.kind == InterventionKind::Gate);
    assert!((gate.unwrap().amount - 2.0).abs() < 1e-9);
}

#[test]
fn a_gate_has_the_number_of_calls_that_the_model_proposes() {
    let parallel = SwitchedStage {
        calls_at_once: 8,
        proposed_calls: Some(3),
        ..stage("decode", 40)
    };
    let run = run(plan(), &[parallel], 10_000, |_, _| 5);

    let gate = (run.windows.iter())
        .filter_map(|window| window.intervention.as_ref())
        .find(|asked| asked.kind == InterventionKind::Gate);
    assert!((gate.unwrap().amount - 3.0).abs() < 1e-9);
}

/// The gates of a stage with 12 calls at once, in the order in which they are asked.
fn gates(proposed_calls: Option<u32>, cores: u32, step_ms: fn(u32) -> u64) -> Vec<u32> {
    let parallel = SwitchedStage {
        calls_at_once: 12,
        proposed_calls,
        ..stage("decode", 40)
    };
    let pipeline = Watched {
        cores,
        ..Watched::of(&[parallel])
    };
    let run = run_pipeline(plan(), &pipeline, 10_000, |_, asked| match asked.kind {
        InterventionKind::Gate => step_ms(whole(asked.amount)),
        _ => 9,
    });
    let asked = run.changes.iter().filter_map(|change| match change {
        Change::Begin { intervention, .. } => Some(intervention),
        _ => None,
    });
    let gates = asked.filter(|asked| asked.kind == InterventionKind::Gate);
    gates.map(|gate| whole(gate.amount)).collect()
}

#[test]
fn fewer_calls_are_measured_until_the_neighbours_of_the_best_number_are_known() {
    let two_are_best = gates(Some(4), 64, |calls| if calls == 2 { 5 } else { 7 });
    assert_eq!(two_are_best[..3], [4, 2, 1]);
    let all_are_best = gates(Some(4), 64, |calls| if calls > 4 { 11 } else { 20 });
    assert_eq!(all_are_best[..2], [4, 8]);
}

#[test]
fn with_more_calls_than_cores_fewer_calls_are_measured_first() {
    let three_are_best = gates(None, 4, |calls| if calls == 3 { 5 } else { 7 });
    assert_eq!(three_are_best[..3], [6, 3, 1]);
}

#[test]
fn fewer_calls_are_also_measured_of_a_stage_that_cannot_be_free() {
    let parallel = SwitchedStage {
        calls_at_once: 8,
        is_replaceable: false,
        ..stage("demux", 400)
    };
    let pipeline = Watched {
        cores: 2,
        ..Watched::of(&[parallel, stage("decode", 10)])
    };
    let run = run_pipeline(plan(), &pipeline, 10_000, |_, _| 8);

    let asked = run.asked();
    assert_eq!(asked[0], ("decode", InterventionKind::Free));
    let gate = ("demux", InterventionKind::Gate);
    assert!(asked[..3].contains(&gate), "{asked:?}");
}

#[test]
fn fewer_calls_of_an_almost_idle_stage_are_not_measured_first() {
    let idle = SwitchedStage {
        calls_at_once: 8,
        is_replaceable: false,
        ..stage("demux", 8)
    };
    let pipeline = Watched {
        cores: 2,
        ..Watched::of(&[idle, stage("read", 5), stage("decode", 40)])
    };
    let run = run_pipeline(plan(), &pipeline, 10_000, |_, _| 8);

    let free = |name| (name, InterventionKind::Free);
    assert_eq!(run.asked()[0], free("decode"));
    assert!(
        run.asked()[..3].contains(&free("read")),
        "{:?}",
        run.asked()
    );
}

#[test]
fn what_cannot_be_changed_is_not_asked_about() {
    let fixed = SwitchedStage {
        is_replaceable: false,
        is_delayable: false,
        ..stage("write", 50)
    };
    let run = run(plan(), &[fixed], 10_000, |_, _| 5);

    assert_eq!(run.asked(), []);
    assert_eq!(run.changes.last(), Some(&Change::Finish));
}

#[test]
fn ranks_ask_the_same_questions_at_the_same_steps() {
    let fixed = WhatIfPlan::for_loader(Some(4), 8);
    let runs = [1, 2].map(|rank| {
        let stages = [stage("read", 5 * rank), stage("decode", 40 / rank)];
        run(fixed, &stages, 1000, |_, _| 5 * rank)
    });

    assert_eq!(runs[0].changes, runs[1].changes);
    assert_eq!(runs[0].phases, runs[1].phases);
}

#[test]
fn a_window_whose_calls_did_not_behave_as_it_says_has_no_steps() {
    let mut what_if = WhatIf::new(plan());
    let mut windows = Vec::new();
    while !what_if.is_over() {
        let turn = what_if.request(&Watched {
            behaves: false,
            ..Watched::of(&[stage("read", 5)])
        });
        windows.extend(turn.window);
        what_if.delivered();
        what_if.timed(10_000_000, 0);
    }

    let (changed, unchanged): (Vec<_>, Vec<_>) =
        (windows.iter()).partition(|window| window.intervention.is_some());
    assert!(!changed.is_empty());
    assert!(changed.iter().all(|window| window.steps.is_empty()));
    assert!(unchanged.iter().all(|window| !window.steps.is_empty()));
}

#[test]
fn all_stages_are_free_together_after_the_busiest_was_free_alone() {
    let stages = [stage("read", 5), stage("decode", 50), stage("resize", 9)];
    let run = run(plan(), &stages, 10_000, |_, _| 5);

    let (free, cut) = (InterventionKind::Free, InterventionKind::Cut);
    let first = [
        ("decode", free),
        ("resize", cut),
        ("resize", free),
        ("read", free),
    ];
    assert_eq!(run.asked()[..4], first);
}

/// A pipeline of these stages, whose batches can be repeated.
fn repeatable(stages: &[SwitchedStage]) -> Watched {
    Watched {
        can_repeat: true,
        ..Watched::of(stages)
    }
}

#[test]
fn the_loop_gets_repeated_batches_after_the_busiest_stage_was_free() {
    let stages = [stage("read", 5), stage("decode", 50)];
    let run = run_pipeline(plan(), &repeatable(&stages), 10_000, |_, _| 5);

    let free = InterventionKind::Free;
    let first = [("decode", free), (REQUESTS, free), ("read", free)];
    assert_eq!(run.asked()[..3], first);
}

#[test]
fn ranks_repeat_no_batches_if_the_loader_has_no_length() {
    let fixed = WhatIfPlan::for_loader(Some(4), 8);
    for (pipeline, has_floor) in [(repeatable(&[]), true), (Watched::of(&[]), false)] {
        let run = run_pipeline(fixed, &pipeline, 1000, |_, _| 5);
        let floor = (REQUESTS, InterventionKind::Free);
        assert_eq!(run.asked().contains(&floor), has_floor);
    }
}

#[test]
fn a_loader_without_stages_is_asked_as_a_whole() {
    let run = run_pipeline(plan(), &repeatable(&[]), 10_000, |_, _| 5);

    let asked = run.asked();
    assert!(asked.contains(&(REQUESTS, InterventionKind::Free)));
    assert!(asked.contains(&(REQUESTS, InterventionKind::Half)));
    assert!(asked.iter().all(|(changed, _)| *changed == REQUESTS));
}

#[test]
fn with_all_data_kept_requests_are_delayed_by_a_part_of_the_step() {
    let keeps = WhatIfPlan {
        keep_data: true,
        ..plan()
    };
    let run = run_pipeline(keeps, &repeatable(&[]), 10_000, |_, _| 12);

    assert_eq!(run.asked()[0], (REQUESTS, InterventionKind::Delay));
    assert!(run.asked().iter().all(|(_, kind)| !kind.replaces_results()));
    let delay = run.windows[1].intervention.as_ref().unwrap();
    assert!((delay.amount - 2.0).abs() < 0.1, "{delay:?}");
}

#[test]
fn the_capacities_of_queues_shorten_the_time_to_settle() {
    let settle = |batches_held| {
        let mut what_if = WhatIf::new(WhatIfPlan::for_loader(None, 1));
        let pipeline = Watched {
            batches_held,
            ..Watched::of(&[stage("read", 5)])
        };
        let mut steps = 0;
        while !matches!(what_if.segment, Segment::Unchanged) {
            what_if.request(&pipeline);
            what_if.delivered();
            steps += 1;
        }
        steps
    };
    assert_eq!(settle(None) - settle(Some(6)), 110 - 18);
}
