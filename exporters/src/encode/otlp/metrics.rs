//! Converts the current state of a run to a request to OpenTelemetry's metrics service.
//!
//! Totals are cumulative, so the next export makes up for a missed one. Each total has a start time.
//! The start of some totals is unknown because it lies before the run (for example, the energy a GPU
//! has used since its driver was loaded). For these, the first reading is the start, and only the
//! increase since then is sent. OpenTelemetry's data model requires this: a point covers what happened
//! between its start and its time. Durations are exponential histograms with the counts of the records.
//! Each point also has the run and the rank as attributes, because Prometheus stores a resource's
//! attributes separately from its series.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use headspace_agent::model::metric::MetricKind;

use super::super::snapshot::{Point, Snapshot, Value};
use super::super::sparse_distribution::SparseDistribution;
use super::{integer, scope, text};

/// Finest scale of a histogram: buckets are 4.4 % wide, which is finer than any chart shows.
const FINEST_SCALE: i32 = 4;

/// Maximum number of buckets of a histogram: OpenTelemetry's own default.
const MOST_BUCKETS: usize = 160;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The export request with all series of the snapshot.
pub fn request(snapshot: &Snapshot, resource: Resource) -> ExportMetricsServiceRequest {
    let mut metrics: Vec<Metric> = Vec::new();
    for point in snapshot.points() {
        let last = metrics.last().map(|last| &*last.name);
        if last != Some(point.metric.name) {
            metrics.push(Metric {
                name: point.metric.name.to_owned(),
                description: point.metric.help.to_owned(),
                unit: point.metric.unit.to_owned(),
                data: Some(empty(point.metric.kind)),
                ..Metric::default()
            });
        }
        if let Some(data) = metrics.last_mut().and_then(|last| last.data.as_mut()) {
            add_point(data, point, snapshot);
        }
    }
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

fn empty(kind: MetricKind) -> Data {
    match kind {
        MetricKind::Gauge | MetricKind::Maximum => Data::Gauge(Gauge::default()),
        MetricKind::Counter | MetricKind::UpDownCounter => Data::Sum(Sum {
            aggregation_temporality: CUMULATIVE,
            is_monotonic: kind == MetricKind::Counter,
            ..Sum::default()
        }),
        MetricKind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
            aggregation_temporality: CUMULATIVE,
            ..ExponentialHistogram::default()
        }),
    }
}

fn add_point(data: &mut Data, point: Point<'_>, snapshot: &Snapshot) {
    match (data, point.value) {
        (Data::Gauge(gauge), Value::Number(value)) => {
            gauge.data_points.push(number(point, *value, snapshot));
        }
        (Data::Sum(sum), Value::Number(value)) => {
            let since = *value - point.start.base;
            sum.data_points.push(number(point, since, snapshot));
        }
        (Data::ExponentialHistogram(histogram), Value::Durations(values)) => {
            let point = durations(point, values, snapshot);
            histogram.data_points.push(point);
        }
        // The type of a value always matches its metric.
        _ => {}
    }
}

fn number(point: Point<'_>, value: f64, snapshot: &Snapshot) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(point, snapshot),
        start_time_unix_nano: point.start.unix_nano,
        time_unix_nano: snapshot.at_unix_nano(),
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn durations(
    point: Point<'_>,
    times: &SparseDistribution,
    snapshot: &Snapshot,
) -> ExponentialHistogramDataPoint {
    let buckets = times.exponential(FINEST_SCALE, MOST_BUCKETS);
    let some = times.count > 0;
    ExponentialHistogramDataPoint {
        attributes: attributes(point, snapshot),
        start_time_unix_nano: point.start.unix_nano,
        time_unix_nano: snapshot.at_unix_nano(),
        count: times.count,
        sum: Some(times.sum_s),
        scale: buckets.scale,
        positive: Some(Buckets {
            offset: buckets.offset,
            bucket_counts: buckets.counts,
        }),
        min: some.then_some(times.min_s),
        max: some.then_some(times.max_s),
        ..ExponentialHistogramDataPoint::default()
    }
}

fn attributes(point: Point<'_>, snapshot: &Snapshot) -> Vec<KeyValue> {
    let process = snapshot.process();
    let of_rank = [text("run", &process.run_id), integer("rank", process.rank)];
    let own = point.attributes.iter();
    let own = own.map(|(name, value)| text(name.as_ref(), value));
    of_rank.into_iter().chain(own).collect()
}
