//! The record of a bottleneck, with its texts.

use super::evidence::evidence_text;
use crate::analysis::attribution::{Bottleneck, Limit};
use crate::model::record::{BottleneckKind, BottleneckRecord};

/// The record of a bottleneck.
pub fn bottleneck_record(found: &Bottleneck) -> BottleneckRecord {
    let (kind, name) = match &found.limit {
        Limit::Stage(name) => (BottleneckKind::Stage, Some(name.clone())),
        Limit::Pool(name) => (BottleneckKind::Pool, Some(name.clone())),
        Limit::Resource(resource) => (BottleneckKind::Resource, Some(resource.as_str().to_owned())),
        Limit::HandOff => (BottleneckKind::HandOff, None),
        Limit::Producers => (BottleneckKind::Producers, None),
        Limit::Jitter => (BottleneckKind::Jitter, None),
        Limit::Compute => (BottleneckKind::Compute, None),
    };
    BottleneckRecord {
        kind,
        name,
        limit_ms: found.limit_ms,
        evidence: evidence_text(&found.evidence),
        confidence: found.confidence,
    }
}
