//! Creates ticks like those of a real run, for the benchmarks.

use std::collections::BTreeMap;

use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{LoopTick, Phase, SCHEMA, TickRecord};
use headspace_agent::model::{Distribution, Record, RecordBody};

/// Tick `number` of a run. It has one loop with 100 steps, whose times vary by ± 25 %, and 20 readings.
pub(crate) fn tick(number: u64) -> Record {
    let mut seed = number.wrapping_mul(2_654_435_761) | 1;
    let mut distribution = |mean: u64| {
        let mut d = Distribution::default();
        for _ in 0..100 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            d.record(mean * 3 / 4 + (seed >> 33) % (mean / 2));
        }
        DistributionRecord::from(&d)
    };
    let entry = LoopTick {
        name: "loader".to_owned(),
        phase: Phase::Live,
        epoch: number / 100,
        first_step: number * 100,
        steps: 100,
        samples: Some(3200),
        wait: distribution(5_000_000),
        compute: distribution(5_000_000),
        step: distribution(10_000_000),
        ..LoopTick::default()
    };
    let readings = (0..20)
        .map(|i| {
            (
                format!("process.context_switches{{type={i}}}"),
                number as f64 * 1.37,
            )
        })
        .collect();
    Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano: 1_795_253_412_000_000_000 + number * 1_000_000_000,
        run_id: "2026-11-21T09-30-12-4711".to_owned(),
        rank: 0,
        pid: 4711,
        body: RecordBody::Tick(TickRecord {
            tick: number,
            at_s: number as f64,
            interval_s: 1.0,
            merged: 1,
            loops: vec![entry],
            readings: BTreeMap::from([("process".to_owned(), readings)]),
            ..TickRecord::default()
        }),
    }
}
