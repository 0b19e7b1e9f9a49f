//! A run as OpenTelemetry's protocol (OTLP) carries it: messages made from the records.
//!
//! They are built from [`Snapshot`](super::snapshot::Snapshot) and not recorded through
//! OpenTelemetry's SDK (docs/adr/0008): the records already hold exact histograms and totals, which
//! an SDK takes one value at a time only. The messages are those of the official definitions.

pub mod logs;
pub mod metrics;
pub mod resource;
pub mod trace;
pub mod traces;
pub mod waiting;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};

/// Who made the measurements.
fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "headspace".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn attribute(key: impl Into<String>, value: Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(key: impl Into<String>, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn integer(key: impl Into<String>, value: impl Into<i64>) -> KeyValue {
    attribute(key, Value::IntValue(value.into()))
}

fn count(key: impl Into<String>, value: u64) -> KeyValue {
    integer(key, i64::try_from(value).unwrap_or(i64::MAX))
}

fn number(key: impl Into<String>, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

#[cfg(test)]
mod tests;
