//! The long study of what-ifs: random simulated pipelines in which each change is also made for a whole run.

mod simulator;

use simulator::line::draw::Class;
use simulator::line::judge::Length;
use simulator::line::what_if::plan;
use simulator::line::what_if_table::WhatIfTable;

const FIRST: u64 = 7_000_000;
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

/// For the choice of the method's constants: seeds from the environment, other than those of the study.
#[test]
#[ignore = "tuning"]
fn tune() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let first = number("FIRST", 6_000_000);
    let table = WhatIfTable::of(first..first + number("COUNT", 150), LONG, plan);
    println!("{table}");
}
