//! Writes the current state of runs in the formats that Prometheus reads: OpenMetrics 1.0, or the older
//! text format.
//!
//! Every series has the labels `run` and `rank`, so the ranks of a run may be served from one address
//! (`headspace serve`) or from one each. Names are those of [`names`]. Durations are histograms with
//! fixed boundaries ([`BOUNDS_S`]), which can be added over ranks and over time.
//!
//! The text is not written by a library, because it is needed in both formats, for several ranks, and
//! with totals that were counted elsewhere. The tests read it with the official Python parsers of both
//! formats.

pub mod names;
mod target;
mod write;

use std::collections::BTreeMap;

use headspace_agent::model::metric::{Metric, MetricKind};

use self::write::{Kind, Writer};
use super::snapshot::{Point, Snapshot, Value};

/// Upper boundaries of the buckets of every duration, in seconds: five per decade from 100 µs to 100 s.
/// A quantile is known up to the bucket that contains it. The upper boundary of a bucket is 1.3 to 2
/// times the lower one.
pub const BOUNDS_S: [f64; 31] = [
    1e-4, 2e-4, 3e-4, 5e-4, 7e-4, 1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1,
    0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0,
];

/// Name suffixes of a histogram's samples, which no other metric should have.
const OF_HISTOGRAMS: [&str; 3] = ["_count", "_sum", "_bucket"];

/// One of the two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The text format 0.0.4, which every scraper reads.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Form {
    /// The format for a request's `Accept` header: OpenMetrics if its weight is at least that of text.
    pub fn accepted(accept: &str) -> Self {
        let open = preference_weight(accept, "application/openmetrics-text");
        if open > 0.0 && open >= preference_weight(accept, "text/plain") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The format's media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The weight (`q`) of `wanted` in a header such as `Accept` (RFC 9110, section 12.4.2); 0 if it is not listed.
pub(crate) fn preference_weight(header: &str, wanted: &str) -> f32 {
    let weight_in = |entry: &str| -> Option<f32> {
        let mut parts = entry.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(wanted) {
            return None;
        }
        let q = parts.find_map(|part| part.strip_prefix("q="));
        Some(q.and_then(|q| q.parse().ok()).unwrap_or(1.0))
    };
    header.split(',').filter_map(weight_in).fold(0.0, f32::max)
}

/// The ranks of one or several runs, as one text.
pub fn encode<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, form: Form) -> String {
    let mut writer = Writer::new(form);
    let mut families = BTreeMap::<&str, Vec<(String, Point<'a>)>>::new();
    let mut targets = Vec::new();
    for snapshot in snapshots {
        let process = snapshot.process();
        if process.run_id.is_empty() {
            // This snapshot has no records yet.
            continue;
        }
        let rank = process.rank.to_string();
        let of = [("run", process.run_id.as_str()), ("rank", rank.as_str())];
        let about = target::labels(snapshot);
        let about = about.iter().map(|(name, value)| (*name, value.as_str()));
        targets.push(write::labels(of.into_iter().chain(about)));
        for point in snapshot.points() {
            let labels = labels(&of, &point);
            let family = families.entry(point.metric.name).or_default();
            family.push((labels, point));
        }
    }
    if !targets.is_empty() {
        let help = "What runs there";
        writer.family("target_info", Kind::Info, None, help);
        for labels in &targets {
            writer.sample("target_info", "", labels, 1);
        }
    }
    for points in families.values() {
        family(&mut writer, points);
    }
    writer.finish()
}

fn labels(of: &[(&str, &str); 2], point: &Point<'_>) -> String {
    let named: Vec<(String, &str)> = point
        .attributes
        .iter()
        .map(|(name, value)| (names::label(name), value.as_str()))
        .collect();
    let own = named.iter().map(|(name, value)| (name.as_str(), *value));
    write::labels(of.iter().copied().chain(own))
}

/// Writes all series of one metric.
fn family(writer: &mut Writer, points: &[(String, Point<'_>)]) {
    let Some(metric) = points.first().map(|(_, point)| point.metric) else {
        return;
    };
    let name = names::name(metric);
    writer.family(&name, kind(metric, &name), names::unit(metric), metric.help);
    for (labels, point) in points {
        match point.value {
            Value::Number(value) => writer.sample(&name, "", labels, value),
            Value::Durations(durations) => {
                let counts = durations.up_to(&BOUNDS_S);
                for (bound, count) in BOUNDS_S.iter().zip(counts) {
                    // `{:?}` writes `1.0`, which is valid in both formats.
                    let labels = format!("{labels},le=\"{bound:?}\"");
                    writer.sample(&name, "_bucket", &labels, count);
                }
                let all = format!("{labels},le=\"+Inf\"");
                writer.sample(&name, "_bucket", &all, durations.count);
                writer.sample(&name, "_sum", labels, durations.sum_s);
                writer.sample(&name, "_count", labels, durations.count);
            }
        }
    }
}

/// The type of the family. Semantic conventions give some levels a histogram's suffix
/// (`process.thread.count`). Such a level is written without a type: linters would require another
/// name, and the series would then differ from the one exported over OTLP.
fn kind(metric: &Metric, name: &str) -> Kind {
    match metric.kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Histogram => Kind::Histogram,
        _ if OF_HISTOGRAMS.iter().any(|ending| name.ends_with(ending)) => Kind::Unknown,
        MetricKind::Gauge | MetricKind::UpDownCounter | MetricKind::Maximum => Kind::Gauge,
    }
}

#[cfg(test)]
mod tests;
