//! The record of a summary, with the texts of its conclusions.

use super::findings::finding_record;
use super::{bottleneck_record, remedy_record};
use crate::analysis::summary::Summary;
use crate::model::record::{BottleneckKind, SummaryRecord};

/// The record of a summary with the texts of its conclusions.
pub fn summary_record(summary: &Summary) -> SummaryRecord {
    let attribution = &summary.attribution;
    let bottleneck = attribution.bottleneck.as_ref().map(bottleneck_record);
    let stage = bottleneck
        .as_ref()
        .filter(|found| found.kind == BottleneckKind::Stage);
    SummaryRecord {
        bottleneck_stage: stage.and_then(|found| found.name.clone()),
        bottleneck,
        remedies: attribution.remedies.iter().map(remedy_record).collect(),
        findings: summary.findings.iter().map(finding_record).collect(),
        ..summary.record.clone()
    }
}
