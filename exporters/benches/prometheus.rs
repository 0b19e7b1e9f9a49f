//! Measures the cost of a scrape: the text of a run, by its number of stages. The reference is
//! `prometheus-client`, the official library, with as many histograms of stages. The export thread waits at
//! most once per scrape. Training never waits.

use divan::Bencher;
use divan::counter::BytesCount;
use headspace_agent::model::RecordBody;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::StageTick;
use headspace_exporters::encode::prometheus::{self, BOUNDS_S, Form};
use headspace_exporters::encode::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

mod ratio;
mod synthetic;

fn main() {
    let (snapshot, registry) = (run(100), registry(100));
    ratio::print(
        "a scrape with 100 stages",
        || prometheus::encode([&snapshot], Form::OpenMetrics),
        "prometheus-client",
        || official(&registry),
    );
    divan::main();
}

/// A snapshot of the first minute of a run with `stages` stages.
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
        snapshot.add_record(&record);
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

/// A registry with the histograms of the stages only. Their labels are the same.
fn registry(stages: usize) -> Registry {
    let mut registry = Registry::default();
    let times =
        Family::<Vec<(&str, String)>, Histogram>::new_with_constructor(|| Histogram::new(BOUNDS_S));
    for stage in 0..stages {
        let labels = vec![
            ("run", "2026-11-21T09-30-12-4711".to_owned()),
            ("rank", "0".to_owned()),
            ("stage", format!("stage {stage}")),
        ];
        let time = times.get_or_create(&labels);
        for call in 0..100 {
            time.observe(0.0075 + 5e-5 * f64::from(call));
        }
    }
    let help = "Duration of one call of a stage";
    registry.register_with_unit("headspace_stage_time", help, Unit::Seconds, times);
    registry
}

fn official(registry: &Registry) -> String {
    let mut text = String::new();
    let made = prometheus_client::encoding::text::encode(&mut text, registry);
    made.map(|()| text).unwrap_or_default()
}

#[divan::bench(args = [10, 100, 1000])]
fn text_by_the_official_library(bencher: Bencher<'_, '_>, stages: usize) {
    let registry = registry(stages);
    let make = || official(&registry);
    bencher
        .counter(BytesCount::new(make().len()))
        .bench_local(make);
}
