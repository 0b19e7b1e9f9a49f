//! Derives the trace and span ids of a run, and parses `TRACEPARENT`.
//!
//! One trace contains all ranks of a run. The trace id and the span ids are derived from the run's id
//! and the rank, so ranks agree without communication. A launcher that is traced itself may pass its
//! trace context in the environment (`TRACEPARENT`). The run then belongs to that trace, as a child of
//! the launcher's span.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

use headspace_agent::model::Record;
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags};

/// The parent span of a run, from W3C's `traceparent`.
///
/// ```
/// use headspace_exporters::encode::otlp::trace_ids::Parent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// assert!(text.parse::<Parent>().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// The lowest bit means that the trace is sampled.
    pub(super) flags: TraceFlags,
}

/// Length of `traceparent` in version 00. Later versions may continue after a dash.
const LENGTH: usize = 55;

impl FromStr for Parent {
    type Err = String;

    /// Parses a `traceparent` (<https://www.w3.org/TR/trace-context/>).
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a W3C traceparent (`00-<32 hex digits>-<16 hex digits>-01`)")
        };
        parse(text).ok_or_else(wrong)
    }
}

fn parse(text: &str) -> Option<Parent> {
    let (first, rest) = text.split_at_checked(LENGTH)?;
    let mut fields = first.split('-');
    let version = hex(fields.next(), 2)?;
    let parent = Parent {
        trace_id: TraceId::from(hex(fields.next(), 32)?),
        span_id: SpanId::from(u64::try_from(hex(fields.next(), 16)?).ok()?),
        flags: TraceFlags::new(hex(fields.next(), 2)?.try_into().ok()?),
    };
    let continued = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let valid = parent.trace_id != TraceId::INVALID && parent.span_id != SpanId::INVALID;
    (continued && valid && fields.next().is_none()).then_some(parent)
}

/// Parses a field of exactly `digits` lower-case hexadecimal digits.
fn hex(field: Option<&str>, digits: usize) -> Option<u128> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let field = field.filter(|text| text.len() == digits && text.bytes().all(is_digit))?;
    u128::from_str_radix(field, 16).ok()
}

impl Parent {
    /// Moves a span of a run into this trace, and makes the run's own span a child of the parent.
    pub(super) fn adopt(&self, span: &mut Span) {
        span.trace_id = self.trace_id.to_bytes().to_vec();
        let mut flags = u32::from(self.flags.to_u8()) | SpanFlags::ContextHasIsRemoteMask as u32;
        if span.parent_span_id.is_empty() {
            span.parent_span_id = self.span_id.to_bytes().to_vec();
            flags |= SpanFlags::ContextIsRemoteMask as u32;
        }
        span.flags = flags;
    }
}

/// The trace id of a run without a parent: the same for all its ranks.
pub(super) fn trace_id(record: &Record) -> TraceId {
    let half = |which: u8| u128::from(hash(&(which, &record.run_id)));
    TraceId::from(half(0) << 64 | half(1))
}

/// The id of the span of a rank's whole run.
pub(super) fn run_span(record: &Record) -> SpanId {
    span_id(record, &"run")
}

/// The id of the span of an epoch of loop `of`.
pub(super) fn epoch_span(record: &Record, of: &str, epoch: u64) -> SpanId {
    span_id(record, &("epoch", of, epoch))
}

/// The id of the span of `what` in a rank's run.
pub(super) fn span_id(record: &Record, what: &impl Hash) -> SpanId {
    let id = hash(&(&record.run_id, record.rank, hash(what)));
    SpanId::from(id.max(1)) // All zeros are no id.
}

/// Hashes `what`. Equal values have equal hashes within one build, which all ranks of a run share.
fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn later_versions_of_traceparent_are_parsed_up_to_their_unknown_fields() {
        let known: Parent = format!("00-{TRACE}-{SPAN}-01").parse().unwrap();
        for text in [
            format!("cc-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01-what-comes-later"),
        ] {
            assert_eq!(text.parse::<Parent>().unwrap(), known, "{text}");
        }
        assert!(known.flags.is_sampled());
    }

    #[test]
    fn errors_quote_every_traceparent_that_is_invalid_by_the_specification() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            "unknown".to_owned(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{TRACE}{SPAN}--01"),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-é{}-{SPAN}-01", &TRACE[2..]),
        ] {
            let problem = text.parse::<Parent>().unwrap_err();
            assert!(problem.contains(&format!("`{text}`")), "{problem}");
        }
    }
}
