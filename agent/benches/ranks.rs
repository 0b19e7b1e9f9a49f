//! Measures the cost of analysing all ranks of a run together. The cost per rank should not depend on their number.

use divan::Bencher;
use divan::counter::ItemsCount;
use headspace_agent::analysis::ranks::Ranks;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::Distribution;
use headspace_agent::model::record::{LoopTick, SummaryRecord, TickRecord};

fn main() {
    divan::main();
}

/// The ticks of one rank over a minute: one tick per second, with 100 steps each.
fn ticks(rank: u64) -> Vec<TickRecord> {
    (0..60)
        .map(|tick| {
            let [mut step, mut wait, mut compute] = [(); 3].map(|()| Distribution::default());
            for i in 0..100 {
                let jitter = (rank * 7919 + tick * 104_729 + i * 1_299_709) % 1_000_000;
                wait.record(2_000_000 + jitter);
                compute.record(8_000_000 + jitter);
                step.record(10_000_000 + 2 * jitter);
            }
            TickRecord {
                loops: vec![LoopTick {
                    name: "train".to_owned(),
                    steps: 100,
                    step: (&step).into(),
                    wait: (&wait).into(),
                    compute: (&compute).into(),
                    ..LoopTick::default()
                }],
                ..TickRecord::default()
            }
        })
        .collect()
}

#[divan::bench(args = [100, 1_000, 10_000], sample_count = 1, sample_size = 1)]
fn read_together(bencher: Bencher<'_, '_>, ranks: u32) {
    let some: Vec<Vec<TickRecord>> = (0..16).map(ticks).collect();
    let summary = SummaryRecord {
        mode: Some(headspace_agent::model::Mode::Measure),
        loop_name: Some("train".to_owned()),
        steps: 6000,
        steady_steps: 5980,
        ..SummaryRecord::default()
    };
    bencher.counter(ItemsCount::new(ranks)).bench_local(|| {
        let mut together = Ranks::default();
        for rank in 0..ranks {
            let mut series = TickSeries::default();
            for tick in &some[rank as usize % some.len()] {
                series.add_read(&tick.into());
            }
            together.add(rank, Some(ranks), Some(&summary), &series);
        }
        together.finish()
    });
}
