//! The record of a summary, with the texts of its conclusions.

use super::episodes::episode_record;
use super::findings::finding_record;
use super::{bottleneck_record, remedy_record, smaller_buffer_record};
use crate::analysis::attribution::LineGain;
use crate::analysis::summary::{Conclusions, Summary};
use crate::model::record::{BottleneckKind, LineKind, LineRecord, SummaryRecord};

/// The record of a summary with the texts of its conclusions.
pub fn summary_record(summary: Summary) -> SummaryRecord {
    let Summary {
        record,
        findings,
        conclusions,
    } = summary;
    let Conclusions {
        attribution,
        episodes,
        ..
    } = conclusions;
    let bottleneck = attribution.bottleneck.as_ref().map(bottleneck_record);
    let stage = bottleneck
        .as_ref()
        .filter(|found| found.kind == BottleneckKind::Stage);
    let options_from = record.options_from.unwrap_or_default();
    let findings = (findings.iter()).map(|finding| finding_record(finding, options_from));
    SummaryRecord {
        bottleneck_stage: stage.and_then(|found| found.name.clone()),
        bottleneck,
        remedies: attribution.remedies.iter().map(remedy_record).collect(),
        smaller_buffer: (attribution.smaller_buffer.as_ref())
            .zip(record.steady_step_mean_ms)
            .map(|(found, step_ms)| smaller_buffer_record(found, step_ms)),
        lines: attribution.lines.iter().map(line_record).collect(),
        episodes: episodes.iter().map(episode_record).collect(),
        findings: findings.collect(),
        ..record
    }
}

fn line_record(gain: &LineGain) -> LineRecord {
    let line = &gain.line;
    let (kind, waits_for) = LineKind::of(line.activity);
    LineRecord {
        stage: line.place.stage().map(ToOwned::to_owned),
        file: line.frame.file.to_string(),
        line: line.frame.line,
        function: line.frame.function.to_string(),
        share_pct: 100.0 * line.share,
        kind,
        waits_for,
        predicted_step_ms: gain.predicted_step_ms,
    }
}
