//! Converts the records of a run to OpenTelemetry protocol (OTLP) messages.
//!
//! Metrics are built from [`Snapshot`](super::snapshot::Snapshot), not with OpenTelemetry's SDK
//! (docs/adr/0008). The records already contain exact histograms and totals, but an SDK accepts only
//! one value at a time. The SDK creates the log records. The message types come from the official
//! definitions.

pub mod bounded_queue;
pub mod logs;
pub mod metrics;
pub mod profiles;
pub mod resource;
pub mod spans;
pub mod trace_ids;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};

/// The instrumentation scope of all measurements.
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
