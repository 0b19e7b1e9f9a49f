//! The long study of what-ifs: random simulated pipelines in which each change is also made for a whole run
//! (`make study`).
//!
//! TABLE

mod simulator;

use headspace_agent::batch_source::WhatIfPlan;
use simulator::line::draw::Class;
use simulator::line::judge::Length;
use simulator::line::what_if::{depth, plan};
use simulator::line::what_if_table::WhatIfTable;

const FIRST: u64 = 7_100_000;
const PIPELINES: u64 = 400;

/// Length of the runs whose means are the truth.
const LONG: Length = Length {
    calls: 150_000.0,
    most_steps: 15_000.0,
};

#[test]
#[ignore = "study"]
fn gains_are_those_of_pipelines_that_are_really_changed() {
    let table = WhatIfTable::of(FIRST..FIRST + PIPELINES, LONG, plan);
    println!("{table}");
    let all = table.answers(None, None);
    assert!(all.within_pct() >= 95.0);
    assert!((90.0..=99.0).contains(&all.covered_pct()));
    assert!(table.pipelines(None).right_pct() >= 98.0);
    assert!(table.pipelines(Some(Class::Memory)).right_pct() >= 95.0);
}

#[test]
#[ignore = "study"]
fn intervals_of_several_ranks_on_a_fixed_schedule_contain_the_truth() {
    let table = WhatIfTable::of(FIRST..FIRST + PIPELINES / 2, LONG, |line| {
        WhatIfPlan::for_loader(depth(line), 8)
    });
    println!("world size 8\n{table}");
    let all = table.answers(None, None);
    assert!(all.within_pct() >= 92.0);
    assert!((90.0..=99.0).contains(&all.covered_pct()));
}

#[test]
#[ignore = "study"]
fn more_steps_answer_more_questions() {
    println!(
        "steps  answers within % covers %     bias     half pipelines  right %   none %    steps"
    );
    let mut before = 0;
    for steps in [1000, 2000, 4000, 8000] {
        let table = WhatIfTable::of(FIRST..FIRST + PIPELINES / 4, LONG, |line| {
            plan(line).with_limit(steps).unwrap()
        });
        let all = table.answers(None, None);
        println!("{steps:5}   {all} {}", table.pipelines(None));
        assert!(all.count() > before, "more steps must not answer less");
        assert!(all.covered_pct() > 88.0, "an interval stays honest");
        before = all.count();
    }
}
