//! What a scrape costs: the text of a run, by how many stages it has. The export thread waits for it
//! at most once a scrape; training never does.

use divan::Bencher;
use divan::counter::BytesCount;
use headspace_agent::model::RecordBody;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::StageTick;
use headspace_exporters::encode::prometheus::{self, Form};
use headspace_exporters::encode::snapshot::Snapshot;

mod synthetic;

fn main() {
    divan::main();
}

/// A minute of a run of so many stages.
fn run(stages: usize) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for number in 0..60 {
        let mut record = synthetic::tick(number);
        if let RecordBody::Tick(tick) = &mut record.body {
            let time: DistributionRecord = tick.loops[0].step.clone();
            tick.stages.extend((0..stages).map(|stage| StageTick {
                name: format!("stage {stage}"),
                time: time.clone(),
                ..StageTick::default()
            }));
        }
        snapshot.take(&record);
    }
    snapshot
}

#[divan::bench(args = [10, 100, 1000])]
fn text_of_a_run_with_stages(bencher: Bencher<'_, '_>, stages: usize) {
    let snapshot = run(stages);
    let make = || prometheus::encode([&snapshot], Form::OpenMetrics);
    bencher
        .counter(BytesCount::new(make().len()))
        .bench_local(make);
}
