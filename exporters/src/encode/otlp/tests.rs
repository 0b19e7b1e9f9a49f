use headspace_agent::model::Record;
use headspace_agent::model::record::{EpochRecord, RecordBody, RunState, SummaryRecord};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::super::samples;
use super::super::snapshot::Snapshot;
use super::resource::{Process, resource};
use super::traces::Spans;
use super::{metrics, traces};

const SECOND: u64 = 1_000_000_000;

fn ticks(count: u64) -> Vec<Record> {
    (0..count)
        .map(|number| {
            let tick = samples::tick_with_stages(number);
            samples::record((number + 5) * SECOND, RecordBody::Tick(tick))
        })
        .collect()
}

fn request(records: &[Record]) -> ExportMetricsServiceRequest {
    let mut snapshot = Snapshot::default();
    for record in records {
        snapshot.take(record);
    }
    let of = resource(&Process::default(), &snapshot);
    metrics::request(&snapshot, of)
}

fn metric<'a>(request: &'a ExportMetricsServiceRequest, name: &str) -> &'a Metric {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    metrics.iter().find(|metric| metric.name == name).unwrap()
}

fn said(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|known| known.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

#[test]
fn a_total_is_cumulative_since_the_run_began_and_names_its_run_and_rank() {
    let request = request(&ticks(3));
    let cpu = metric(&request, "process.cpu.time");
    let Some(Data::Sum(sum)) = &cpu.data else {
        panic!("{cpu:?}")
    };
    assert_eq!((cpu.unit.as_str(), sum.is_monotonic), ("s", true));
    assert_eq!(sum.aggregation_temporality, 2);
    let user = sum
        .data_points
        .iter()
        .find(|point| said(&point.attributes, "cpu.mode").as_deref() == Some("user"))
        .unwrap();
    assert_eq!(
        user.value,
        Some(number_data_point::Value::AsDouble(2.0 * 3.21))
    );
    assert_eq!(
        (user.start_time_unix_nano, user.time_unix_nano),
        (5 * SECOND, 7 * SECOND)
    );
    assert_eq!(
        said(&user.attributes, "run").as_deref(),
        Some("2026-11-21T09-30-12-4711")
    );
    assert_eq!(said(&user.attributes, "rank").as_deref(), Some("0"));
}

#[test]
fn durations_are_exponential_histograms_with_the_counts_of_the_records() {
    let records = ticks(4);
    let request = request(&records);
    let step = metric(&request, "headspace.loop.step.time");
    let Some(Data::ExponentialHistogram(histogram)) = &step.data else {
        panic!("{step:?}")
    };
    let live = histogram
        .data_points
        .iter()
        .find(|point| said(&point.attributes, "phase").as_deref() == Some("live"))
        .unwrap();
    let (mut count, mut sum_ms) = (0, 0.0);
    for record in &records {
        let RecordBody::Tick(tick) = &record.body else {
            continue;
        };
        count += tick.loops[0].step.count;
        sum_ms += tick.loops[0].step.sum_ms;
    }
    let buckets = live.positive.as_ref().unwrap();
    assert_eq!(live.count, count);
    assert_eq!(buckets.bucket_counts.iter().sum::<u64>(), count);
    assert!((live.sum.unwrap() - sum_ms / 1e3).abs() < 1e-9);
    assert!(live.scale <= 4 && buckets.bucket_counts.len() <= 160);
}

#[test]
fn each_metric_is_there_once_with_all_its_points() {
    let request = request(&ticks(2));
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let mut names: Vec<_> = metrics.iter().map(|metric| &metric.name).collect();
    names.dedup();
    assert_eq!(names.len(), metrics.len());
    let stages = metric(&request, "headspace.stage.time");
    let Some(Data::ExponentialHistogram(histogram)) = &stages.data else {
        panic!("{stages:?}")
    };
    assert_eq!(histogram.data_points.len(), 10);
}

#[test]
fn json_writes_enums_as_numbers_and_large_integers_and_ids_as_text() {
    let json = serde_json::to_value(request(&ticks(1))).unwrap();
    let of = &json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let cpu = of
        .as_array()
        .unwrap()
        .iter()
        .find(|metric| metric["name"] == "process.cpu.time")
        .unwrap();
    assert_eq!(cpu["sum"]["aggregationTemporality"], 2);
    assert_eq!(cpu["sum"]["dataPoints"][0]["timeUnixNano"], "5000000000");

    let spans = spans(&ticks(1)).waiting(1);
    let json = serde_json::to_value(traces::request(spans, resource_of_nothing())).unwrap();
    let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(span["kind"], 1);
}

#[test]
fn what_the_user_says_of_the_resource_holds_but_ranks_stay_apart() {
    let mut snapshot = Snapshot::default();
    let mut record = ticks(1).remove(0);
    record.rank = 3;
    snapshot.take(&record);
    let given = [
        ("service.name", "trainer"),
        ("service.instance.id", "mine"),
        ("team", "vision"),
    ];
    let process = Process {
        given: given.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
        instance_id: "unused".to_owned(),
        local_rank: 1,
        world_size: 8,
    };
    let found = resource(&process, &snapshot).attributes;

    let tells = |key| said(&found, key).unwrap();
    assert_eq!(tells("service.name"), "trainer");
    assert_eq!(tells("service.instance.id"), "mine-3");
    assert_eq!(tells("team"), "vision");
    assert_eq!(
        (tells("headspace.rank"), tells("headspace.local_rank")),
        ("3".into(), "1".into())
    );
    assert_eq!(tells("headspace.world_size"), "8");
    assert_eq!(tells("process.pid"), "4711");
}

#[test]
fn spans_of_intervals_lie_in_their_epoch_and_the_epoch_in_the_run() {
    let mut records = ticks(3);
    for record in &mut records {
        if let RecordBody::Tick(tick) = &mut record.body {
            tick.loops.iter_mut().for_each(|entry| entry.epoch = 0);
        }
    }
    let RecordBody::Tick(first) = &records[0].body else {
        panic!("no tick")
    };
    let epoch = EpochRecord {
        loop_name: first.loops[0].name.clone(),
        epoch: 0,
        ..EpochRecord::default()
    };
    records.push(samples::record(8 * SECOND, RecordBody::Epoch(epoch)));
    let summary = SummaryRecord {
        state: RunState::Finished,
        ..SummaryRecord::default()
    };
    let end = RecordBody::Summary(Box::new(summary));
    records.push(samples::record(9 * SECOND, end));
    let found = spans(&records).waiting(usize::MAX);

    let run = named(&found, "run");
    assert!(run.parent_span_id.is_empty());
    let epoch = named(&found, "epoch");
    assert_eq!(epoch.parent_span_id, run.span_id);
    assert_eq!(epoch.end_time_unix_nano, 8 * SECOND);
    // The first tick's interval began before the tick did.
    assert!(epoch.start_time_unix_nano < 5 * SECOND);
    let steps = named(&found, "steps");
    assert_eq!(steps.parent_span_id, epoch.span_id);
    assert_eq!(said(&steps.attributes, "steps").as_deref(), Some("100"));
    assert!(found.iter().all(|span| span.trace_id == run.trace_id));
    let mut ids: Vec<_> = found.iter().map(|span| span.span_id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), found.len(), "an id is taken twice");
}

#[test]
fn spans_that_nobody_takes_are_bounded_and_counted() {
    let mut spans = spans(&ticks(1));
    let held = spans.waiting(usize::MAX).len();
    for record in ticks(1000).iter().skip(1) {
        spans.take(record);
    }
    assert_eq!(spans.waiting(usize::MAX).len(), 4096);
    assert!(spans.dropped() > 0);
    spans.done(4000);
    assert_eq!(spans.waiting(usize::MAX).len(), 96);
    assert!(held > 0);
}

#[test]
fn ticks_faster_than_a_tenth_of_a_second_are_sampled() {
    let mut records = ticks(20);
    for (number, record) in records.iter_mut().enumerate() {
        if let RecordBody::Tick(tick) = &mut record.body {
            tick.at_s = 1.0 + number as f64 / 100.0;
            tick.stages.clear();
        }
    }
    let found = spans(&records).waiting(usize::MAX);
    // Two loops' entries a tick, of which one in ten is taken.
    assert_eq!(found.len(), 4);
}

#[test]
fn a_message_of_a_tick_survives_its_encoding() {
    let request = request(&ticks(2));
    let bytes = request.encode_to_vec();
    assert_eq!(
        ExportMetricsServiceRequest::decode(&bytes[..]).unwrap(),
        request
    );
}

fn spans(records: &[Record]) -> Spans {
    let mut spans = Spans::default();
    for record in records {
        spans.take(record);
    }
    spans
}

fn resource_of_nothing() -> opentelemetry_proto::tonic::resource::v1::Resource {
    resource(&Process::default(), &Snapshot::default())
}

fn named<'a>(spans: &'a [Span], start: &str) -> &'a Span {
    spans
        .iter()
        .find(|span| span.name.starts_with(start))
        .unwrap_or_else(|| panic!("no span begins with {start}"))
}

#[test]
fn short_epochs_leave_nothing_behind_and_begin_after_the_tick_before() {
    let mut spans = Spans::default();
    for number in 0..50 {
        let mut tick = samples::tick(number);
        tick.loops.iter_mut().for_each(|entry| entry.epoch = number);
        let epoch = EpochRecord {
            loop_name: tick.loops[0].name.clone(),
            epoch: number,
            ..EpochRecord::default()
        };
        let at = (number + 5) * SECOND;
        spans.take(&samples::record(at, RecordBody::Epoch(epoch)));
        spans.take(&samples::record(at, RecordBody::Tick(tick)));
    }
    let found = spans.waiting(usize::MAX);
    let epochs: Vec<_> = found
        .iter()
        .filter(|span| span.name.starts_with("epoch"))
        .collect();
    assert_eq!(epochs.len(), 50);
    assert_eq!(epochs[7].start_time_unix_nano, 11 * SECOND);
    assert_eq!(epochs[7].end_time_unix_nano, 12 * SECOND);
    assert_eq!(spans.going_on(), 0);
}
