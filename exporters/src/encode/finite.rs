//! Omits numbers that JSON cannot represent: infinity and NaN.
//!
//! Serde writes such a number as `null`. An optional number is then read as absent, which is correct. If the
//! number is required, the record cannot be read at all. In that case the smallest optional part that
//! contains the number is omitted: a reading, an item of a list, or an optional field. One bad number
//! therefore never costs the whole record. Only a required number that is in no optional part (the age of the
//! run, the length of an interval) becomes 0.
//!
//! Serde attributes on the records cannot do this: an attribute of a required number can only replace a null by a
//! number, and cannot omit the list item around it. They would also leave lines that the JSON Schema rejects, and
//! other programs read these lines.

use headspace_agent::analysis::floor::NoHeadspace;
use headspace_agent::model::record::{ProbeRecord, StacksRecord, SummaryRecord, TickRecord};
use headspace_agent::model::{Record, RecordBody};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Omits the parts that could not be read back.
pub(super) fn leave_out_unreadable(record: &mut Record) {
    match &mut record.body {
        RecordBody::Tick(tick) => trim_tick(tick),
        RecordBody::Probe(probe) => trim_probe(probe),
        RecordBody::Summary(summary) => trim_summary(summary),
        RecordBody::Stacks(stacks) => trim_stacks(stacks),
        RecordBody::Run(_) | RecordBody::Epoch(_) | RecordBody::Notice(_) => {}
    }
}

fn trim_tick(tick: &mut TickRecord) {
    zero_unless_finite(&mut tick.at_s);
    zero_unless_finite(&mut tick.interval_s);
    for entry in &mut tick.loops {
        entry.sampled.retain(is_readable);
    }
    tick.loops.retain(is_readable);
    tick.queues.retain(is_readable);
    for stage in &mut tick.stages {
        zero_unless_finite(&mut stage.nested_ms);
        keep_readable(&mut stage.cpu_ms);
    }
    tick.stages.retain(is_readable);
    for readings in tick.readings.values_mut() {
        readings.retain(|_, value| value.is_finite());
    }
}

fn trim_probe(probe: &mut ProbeRecord) {
    probe.windows.retain(is_readable);
    if !is_readable(&probe.floor) {
        probe.floor = None;
        probe
            .reason
            .get_or_insert_with(|| NoHeadspace::NotFinite.to_string());
    }
}

fn trim_summary(summary: &mut SummaryRecord) {
    zero_unless_finite(&mut summary.elapsed_s);
    zero_unless_finite(&mut summary.steady_s);
    zero_unless_finite(&mut summary.resources.seconds);
    keep_readable(&mut summary.steady_step_ci_ms);
    keep_readable(&mut summary.floor_ci_ms);
    keep_readable(&mut summary.headspace_ci_pct);
    keep_readable(&mut summary.bottleneck);
    keep_readable(&mut summary.resources.memory_growth_per_step);
    summary.remedies.retain(is_readable);
    summary.lines.retain(is_readable);
    summary.episodes.retain(is_readable);
    summary.gil_holders.retain(is_readable);
    summary.stage_work.retain(is_readable);
    summary.other_loops.retain(is_readable);
}

fn trim_stacks(stacks: &mut StacksRecord) {
    zero_unless_finite(&mut stacks.left_out_s);
    stacks.stacks.retain(is_readable);
}

/// Whether serde can read back what it writes for `value`.
fn is_readable<T: Serialize + DeserializeOwned>(value: &T) -> bool {
    serde_json::to_vec(value).is_ok_and(|json| serde_json::from_slice::<T>(&json).is_ok())
}

fn keep_readable<T: Serialize + DeserializeOwned>(value: &mut Option<T>) {
    if !is_readable(value) {
        *value = None;
    }
}

fn zero_unless_finite(value: &mut f64) {
    if !value.is_finite() {
        *value = 0.0;
    }
}
