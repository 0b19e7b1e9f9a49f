//! Measures what the stages of a run cost in each tick: their slots are read, and kept for the summary.
//!
//! `cargo bench -p headspace-agent --bench stages`. In a run, the sampling thread does this work once per tick.

use std::time::Duration;

use divan::{Bencher, black_box};
use headspace_agent::model::StageSeries;
use headspace_agent::model::stage_series::StageTicks;
use headspace_agent::notice::NoticeLog;
use headspace_agent::recording::stage::slot::Outcome;
use headspace_agent::recording::stage::{Region, Slots};
use headspace_agent::sampling::StageReader;

fn main() {
    divan::main();
}

#[expect(
    clippy::expect_used,
    reason = "a benchmark without memory cannot go on"
)]
fn memory() -> &'static Region {
    Region::private().expect("memory")
}

/// Slots of `stages` stages, and a reader of them.
fn pipeline(stages: usize) -> (StageReader, Slots) {
    let slots = Slots::new(memory());
    for number in 0..stages {
        slots.stage(&format!("stage {number}"));
    }
    let reader = StageReader::new(Some(slots.region()), None);
    (reader, slots)
}

/// Records 100 calls of about 10 ms in each stage.
fn call(slots: &Slots, stages: usize) {
    for slot in &slots.region().stages[..stages] {
        for call in 0..100 {
            slot.record(9_500_000 + 10_000 * call, Outcome::default());
        }
    }
}

#[divan::bench(args = [10, 100, 1000])]
fn read_and_keep(bencher: Bencher<'_, '_>, stages: usize) {
    let (mut reader, slots) = pipeline(stages);
    let notice_log = NoticeLog::new(Box::new(|_| {}));
    let mut history = StageSeries::default();
    bencher
        .with_inputs(|| call(&slots, stages))
        .bench_local_values(|()| {
            let taken = reader.read(Duration::ZERO, &notice_log);
            history.push(StageTicks {
                interval: Duration::from_secs(1),
                stages: &taken.stages,
                queues: &taken.queues,
                ..StageTicks::default()
            });
        });
}

#[divan::bench(args = [10, 1000])]
fn read_at_rest(bencher: Bencher<'_, '_>, stages: usize) {
    let (mut reader, slots) = pipeline(stages);
    let notice_log = NoticeLog::new(Box::new(|_| {}));
    call(&slots, stages);
    reader.read(Duration::ZERO, &notice_log);
    bencher.bench_local(|| black_box(reader.read(Duration::ZERO, &notice_log)));
}
