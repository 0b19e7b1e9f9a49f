//! Measures the cost of exporting one interval's metrics to a collector. The export thread hands over each
//! tick. The destination's own thread encodes the metrics at each interval. The reference for the encoding
//! is OpenTelemetry's SDK with as many instruments.
//!
//! The run has one loop, 10 stages, 8 GPUs and the readings of a process. It has lasted ten minutes.

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use divan::Bencher;
use divan::counter::BytesCount;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::StageTick;
use headspace_agent::model::{Distribution, Record, RecordBody};
use headspace_exporters::encode::otlp::metrics::request;
use headspace_exporters::encode::otlp::resource::{Origin, Process, resource};
use headspace_exporters::encode::snapshot::Snapshot;
use prost::Message;

mod official;
mod ratio;
mod synthetic;

fn main() {
    let (snapshot, _) = after_ten_minutes();
    let sdk = official::Sdk::after_ten_minutes();
    let what = "one interval's metrics as OTLP";
    let ours = || as_protobuf(&snapshot);
    ratio::print(what, ours, "opentelemetry_sdk", || sdk.request());
    divan::main();
}

fn as_protobuf(snapshot: &Snapshot) -> Vec<u8> {
    request(snapshot, resource(&Process::default(), &Origin::default())).encode_to_vec()
}

/// Tick `number` of such a run.
fn tick(number: u64) -> Record {
    let mut record = synthetic::tick(number);
    let RecordBody::Tick(tick) = &mut record.body else {
        return record;
    };
    for stage in 0..10_u64 {
        let mut time = Distribution::default();
        for call in 0..100 {
            time.record((stage + 1) * 1_000_000 + (number * 7919 + call * 104_729) % 500_000);
        }
        tick.stages.push(StageTick {
            name: format!("stage {stage}"),
            time: DistributionRecord::from(&time),
            ..StageTick::default()
        });
    }
    for gpu in 0..8 {
        let level = (number % 100) as f64 / 100.0;
        let readings = [
            ("headspace.gpu.sm.utilization{source=gpm}", level),
            ("hw.gpu.utilization{hw.gpu.task=general}", level),
            ("hw.gpu.utilization{hw.gpu.task=decoder}", level),
            ("hw.gpu.memory.usage", 6e10),
            ("hw.power", 400.0),
            ("hw.temperature", 60.0),
        ];
        let readings = readings.map(|(key, value)| (key.to_owned(), value));
        tick.readings.insert(format!("gpu:{gpu}"), readings.into());
    }
    record
}

fn after_ten_minutes() -> (Snapshot, Record) {
    let mut snapshot = Snapshot::default();
    for number in 0..600 {
        snapshot.add_record(&tick(number));
    }
    (snapshot, tick(600))
}

#[divan::bench]
fn hand_over_a_tick(bencher: Bencher<'_, '_>) {
    let (mut snapshot, tick) = after_ten_minutes();
    bencher.bench_local(|| snapshot.add_record(divan::black_box(&tick)));
}

#[divan::bench]
fn make_a_request_as_protobuf(bencher: Bencher<'_, '_>) {
    let (snapshot, _) = after_ten_minutes();
    let make = || as_protobuf(&snapshot);
    bencher
        .counter(BytesCount::new(make().len()))
        .bench_local(make);
}

#[divan::bench]
fn make_a_request_as_json(bencher: Bencher<'_, '_>) {
    let (snapshot, _) = after_ten_minutes();
    let make = || {
        let of = resource(&Process::default(), &Origin::default());
        serde_json::to_vec(&request(&snapshot, of)).unwrap()
    };
    bencher
        .counter(BytesCount::new(make().len()))
        .bench_local(make);
}

#[divan::bench]
fn make_a_request_by_the_official_sdk(bencher: Bencher<'_, '_>) {
    let sdk = official::Sdk::after_ten_minutes();
    bencher
        .counter(BytesCount::new(sdk.request()))
        .bench_local(|| sdk.request());
}
