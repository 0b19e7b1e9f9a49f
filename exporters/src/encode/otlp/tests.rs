use headspace_agent::model::Record;
use headspace_agent::model::record::{
    EpochRecord, RecordBody, RunRecord, RunState, StepRecord, SummaryRecord,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::super::snapshot::Snapshot;
use super::super::test_records;
use super::resource::{Origin, Process, resource};
use super::spans::Spans;
use super::trace_ids::Parent;
use super::{metrics, spans};

const SECOND: u64 = 1_000_000_000;

fn ticks(count: u64) -> Vec<Record> {
    (0..count)
        .map(|number| {
            let tick = test_records::tick_with_stages(number);
            test_records::record((number + 5) * SECOND, RecordBody::Tick(tick))
        })
        .collect()
}

fn request(records: &[Record]) -> ExportMetricsServiceRequest {
    let (mut snapshot, mut origin) = (Snapshot::default(), Origin::default());
    for record in records {
        snapshot.add_record(record);
        origin.add_record(record);
    }
    metrics::request(&snapshot, resource(&Process::default(), &origin))
}

fn metric<'a>(request: &'a ExportMetricsServiceRequest, name: &str) -> &'a Metric {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    metrics.iter().find(|metric| metric.name == name).unwrap()
}

fn attribute_text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|known| known.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

/// A counter's point with this attribute: value, start and time.
fn points(request: &ExportMetricsServiceRequest, name: &str, of: (&str, &str)) -> (f64, u64, u64) {
    let metric = metric(request, name);
    let Some(Data::Sum(sum)) = &metric.data else {
        panic!("{metric:?}")
    };
    assert_eq!((sum.is_monotonic, sum.aggregation_temporality), (true, 2));
    let point = sum
        .data_points
        .iter()
        .find(|point| attribute_text(&point.attributes, of.0).as_deref() == Some(of.1))
        .unwrap();
    let Some(number_data_point::Value::AsDouble(value)) = point.value else {
        panic!("{point:?}")
    };
    (value, point.start_time_unix_nano, point.time_unix_nano)
}

#[test]
fn a_total_is_cumulative_and_names_its_run_and_rank() {
    let request = request(&ticks(3));
    let cpu = metric(&request, "process.cpu.time");
    assert_eq!(cpu.unit, "s");
    let steps = metric(&request, "headspace.loop.steps");
    let Some(Data::Sum(sum)) = &steps.data else {
        panic!("{steps:?}")
    };
    let point = &sum.data_points[0];
    assert_eq!(
        attribute_text(&point.attributes, "run").as_deref(),
        Some("2026-11-21T09-30-12-4711")
    );
    assert_eq!(
        attribute_text(&point.attributes, "rank").as_deref(),
        Some("0")
    );
    let (value, start, at) = points(&request, "headspace.loop.steps", ("phase", "live"));
    assert_eq!((value, at), (300.0, 7 * SECOND));
    // The run began before the first tick.
    assert_eq!(start, 5 * SECOND - first_at());
}

/// Nanoseconds from the run's beginning to the first tick.
fn first_at() -> u64 {
    nanos(test_records::tick_with_stages(0).at_s)
}

fn nanos(seconds: f64) -> u64 {
    let time = std::time::Duration::from_secs_f64(seconds);
    u64::try_from(time.as_nanos()).unwrap()
}

#[test]
fn a_total_from_before_the_run_starts_at_its_known_start_or_its_first_reading() {
    let user = ("cpu.mode", "user");
    let mut records = ticks(3);
    for (number, record) in (0..).zip(&mut records) {
        if let RecordBody::Tick(tick) = &mut record.body {
            let gpu = tick.readings.entry("gpu:0".into()).or_default();
            gpu.insert("hw.energy".into(), 1e6 + f64::from(number) * 300.0);
        }
    }
    let unknown = request(&records);
    let since_first = points(&unknown, "process.cpu.time", user);
    assert_eq!(since_first, (2.0 * 3.21, 5 * SECOND, 7 * SECOND));
    let energy = points(&unknown, "hw.energy", ("gpu", "0"));
    assert_eq!(energy, (600.0, 5 * SECOND, 7 * SECOND));

    let run = RunRecord {
        process_started_unix_nano: Some(SECOND),
        ..RunRecord::default()
    };
    records.insert(0, test_records::record(4 * SECOND, RecordBody::Run(run)));
    for record in &mut records {
        if let RecordBody::Tick(tick) = &mut record.body {
            let process = tick.readings.get_mut("process").unwrap();
            *process.get_mut("process.cpu.time{cpu.mode=user}").unwrap() += 40.0;
        }
    }
    let known = points(&request(&records), "process.cpu.time", user);
    assert_eq!(known, (40.0 + 2.0 * 3.21, SECOND, 7 * SECOND));
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
        .find(|point| attribute_text(&point.attributes, "phase").as_deref() == Some("live"))
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
fn each_metric_occurs_once_with_all_its_points() {
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

    let spans = waiting(&ticks(1));
    let json = serde_json::to_value(spans::request(spans, resource_of_nothing())).unwrap();
    let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(span["kind"], 1);
}

#[test]
fn user_attributes_override_detected_ones_but_instance_ids_of_ranks_differ() {
    let mut origin = Origin::default();
    let mut record = ticks(1).remove(0);
    record.rank = 3;
    origin.add_record(&record);
    let given = [
        ("service.name", "trainer"),
        ("service.instance.id", "mine"),
        ("team", "vision"),
    ];
    let process = Process {
        attributes: given.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
        instance_id: "unused".to_owned(),
        local_rank: 1,
        world_size: 8,
    };
    let found = resource(&process, &origin).attributes;

    let tells = |key| attribute_text(&found, key).unwrap();
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
fn interval_spans_are_children_of_their_epoch_and_epochs_of_the_run() {
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
    records.push(test_records::record(8 * SECOND, RecordBody::Epoch(epoch)));
    let summary = SummaryRecord {
        state: RunState::Finished,
        ..SummaryRecord::default()
    };
    let end = RecordBody::Summary(Box::new(summary));
    records.push(test_records::record(9 * SECOND, end));
    let found = waiting(&records);

    let run = named(&found, "run");
    assert!(run.parent_span_id.is_empty());
    let epoch = named(&found, "epoch");
    assert_eq!(epoch.parent_span_id, run.span_id);
    assert_eq!(epoch.end_time_unix_nano, 8 * SECOND);
    // The first tick's interval began before the tick did.
    assert!(epoch.start_time_unix_nano < 5 * SECOND);
    let steps = named(&found, "steps");
    assert_eq!(steps.parent_span_id, epoch.span_id);
    assert_eq!(
        attribute_text(&steps.attributes, "steps").as_deref(),
        Some("100")
    );
    assert!(found.iter().all(|span| span.trace_id == run.trace_id));
    let mut ids: Vec<_> = found.iter().map(|span| span.span_id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), found.len(), "two spans have the same id");
}

#[test]
fn ticks_shorter_than_a_tenth_of_a_second_are_sampled() {
    let mut records = ticks(20);
    for (number, record) in records.iter_mut().enumerate() {
        if let RecordBody::Tick(tick) = &mut record.body {
            tick.at_s = 1.0 + number as f64 / 100.0;
            tick.stages.clear();
        }
    }
    let found = waiting(&records);
    // Two loops' entries a tick, of which one in ten is taken.
    assert_eq!(found.len(), 4);
}

#[test]
fn a_metrics_message_survives_encoding_and_decoding() {
    let request = request(&ticks(2));
    let bytes = request.encode_to_vec();
    assert_eq!(
        ExportMetricsServiceRequest::decode(&bytes[..]).unwrap(),
        request
    );
}

fn waiting(records: &[Record]) -> Vec<Span> {
    spans_below(None, records)
}

fn spans_below(parent: Option<Parent>, records: &[Record]) -> Vec<Span> {
    let mut spans = Spans::new(parent);
    for record in records {
        spans.add_record(record);
    }
    spans.waiting.first(usize::MAX)
}

fn resource_of_nothing() -> opentelemetry_proto::tonic::resource::v1::Resource {
    resource(&Process::default(), &Origin::default())
}

fn named<'a>(spans: &'a [Span], start: &str) -> &'a Span {
    spans
        .iter()
        .find(|span| span.name.starts_with(start))
        .unwrap_or_else(|| panic!("no span begins with {start}"))
}

#[test]
fn short_epochs_leave_no_state_and_begin_after_the_previous_tick() {
    let mut spans = Spans::default();
    for number in 0..50 {
        let mut tick = test_records::tick(number);
        tick.loops.iter_mut().for_each(|entry| entry.epoch = number);
        let epoch = EpochRecord {
            loop_name: tick.loops[0].name.clone(),
            epoch: number,
            ..EpochRecord::default()
        };
        let at = (number + 5) * SECOND;
        spans.add_record(&test_records::record(at, RecordBody::Epoch(epoch)));
        spans.add_record(&test_records::record(at, RecordBody::Tick(tick)));
    }
    let found = spans.waiting.first(usize::MAX);
    let epochs: Vec<_> = found
        .iter()
        .filter(|span| span.name.starts_with("epoch"))
        .collect();
    assert_eq!(epochs.len(), 50);
    assert_eq!(epochs[7].start_time_unix_nano, 11 * SECOND);
    assert_eq!(epochs[7].end_time_unix_nano, 12 * SECOND);
    assert_eq!(spans.epochs.len(), 0);
}

#[test]
fn single_steps_have_their_true_times_even_if_the_tick_was_written_late() {
    let step = |step, epoch, received_s| StepRecord {
        step,
        epoch,
        received_s,
        step_ms: 10.0,
        wait_ms: Some(4.0),
    };
    let tick = |at_s: f64, late_ms: u64, sampled| {
        let mut tick = test_records::tick(0);
        tick.at_s = at_s;
        tick.loops.truncate(1);
        tick.loops[0].sampled = sampled;
        let at = 100 * SECOND + nanos(at_s) + late_ms * 1_000_000;
        test_records::record(at, RecordBody::Tick(tick))
    };
    let found = waiting(&[
        tick(1.0, 0, vec![step(70, 0, 0.5)]),
        tick(2.0, 20, vec![step(170, 0, 1.5), step(171, 1, 1.75)]),
    ]);
    let steps: Vec<_> = found.iter().filter(|s| s.name == "step loader").collect();
    let ends: Vec<_> = steps.iter().map(|span| span.end_time_unix_nano).collect();
    let millis = |ms: u64| 100 * SECOND + ms * 1_000_000;
    assert_eq!(ends, [millis(500), millis(1_500), millis(1_750)]);
    assert_eq!(steps[0].start_time_unix_nano, millis(490));
    assert_eq!(
        attribute_text(&steps[0].attributes, "step").as_deref(),
        Some("70")
    );
    assert_eq!(steps[0].parent_span_id, steps[1].parent_span_id);
    assert_ne!(steps[1].parent_span_id, steps[2].parent_span_id);
}

#[test]
fn all_ranks_join_the_launchers_trace_and_only_the_run_span_is_its_child() {
    let launcher = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let launcher: Parent = launcher.parse().unwrap();
    let summary = SummaryRecord {
        state: RunState::Finished,
        ..SummaryRecord::default()
    };
    let mut records = ticks(2);
    let end = RecordBody::Summary(Box::new(summary));
    records.push(test_records::record(9 * SECOND, end));
    let found = spans_below(Some(launcher), &records);

    assert!(
        found
            .iter()
            .all(|span| span.trace_id == launcher.trace_id.to_bytes())
    );
    let run = named(&found, "run");
    assert_eq!(run.parent_span_id, launcher.span_id.to_bytes());
    // Sampled, and the parent is in another process.
    assert_eq!(run.flags, 0x301);
    let others: Vec<_> = found.iter().filter(|span| span.name != "run").collect();
    assert!(!others.is_empty());
    assert!(others.iter().all(|span| span.flags == 0x101));
    assert!(
        others
            .iter()
            .all(|span| span.parent_span_id != launcher.span_id.to_bytes())
    );
}
