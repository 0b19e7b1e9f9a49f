//! The long study of attribution: random pipelines, each remedy really applied (`make study`).
//!
//! Its seeds were used for nothing else: constants of the method were chosen on seeds below
//! 1,000,000. Of these 1,500 pipelines 98 % get a verdict; 96 % of the verdicts are right. Of 2,549
//! predictions half are within 0.3 % of what really came, and 90 % within 6.0 %.
//!
//! What it cannot tell: threads that slow each other through memory look like a slow stage where
//! neither a probe nor the processor's counters tell otherwise (two in five of the class `memory`), and the
//! interpreter lock hides what else a call waits for (predictions of `subprocess` are 8 % off, 29 %
//! at the 90th percentile). The model that predicts and the simulation that judges share their
//! idea, items that move between places, and nothing else: penalties, correlation, contention,
//! filtering at random and the shapes of service times are the judge's alone.

mod simulator;

use simulator::line::judge::Length;
use simulator::line::table::Table;

const FIRST: u64 = 5_000_000;
const PIPELINES: u64 = 1500;

const LONG: Length = Length {
    calls: 40_000.0,
    most_steps: 4000.0,
};

#[test]
#[ignore = "study"]
fn bottlenecks_are_right_and_remedies_gain_what_was_predicted() {
    let table = Table::of(FIRST..FIRST + PIPELINES, LONG);
    println!("{table}");
    let all = table.all();
    assert!(all.right_pct() >= 95.0);
    assert!(all.error_pct(0.5) <= 5.0);
    assert!(all.error_pct(0.9) <= 15.0);
}
