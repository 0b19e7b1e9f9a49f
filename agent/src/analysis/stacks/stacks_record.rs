//! Writes the stacks with the longest time as a record.

use std::collections::HashMap;

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MAX_RECORDED_STACKS;
use crate::model::record::{FrameRecord, LineKind, StackRecord, StacksRecord};
use crate::model::stack::Frame;

/// The record of the stacks with the longest time. `None` without any.
pub(crate) fn stacks_record(stacks: &StackTimes) -> Option<StacksRecord> {
    let mut all: Vec<_> = stacks.stacks().collect();
    all.sort_by(|a, b| {
        let by_time = b.seconds.total_cmp(&a.seconds);
        by_time.then_with(|| (a.place, a.frames).cmp(&(b.place, b.frames)))
    });
    let left_out = all.split_off(all.len().min(MAX_RECORDED_STACKS));
    let mut numbers: HashMap<&Frame, u32> = HashMap::new();
    let mut record = StacksRecord {
        left_out_s: left_out.iter().map(|stack| stack.seconds).sum(),
        ..StacksRecord::default()
    };
    for stack in all {
        let frames = stack.frames.iter().rev().map(|frame| {
            let next = u32::try_from(record.frames.len()).unwrap_or(u32::MAX);
            *numbers.entry(frame).or_insert_with(|| {
                record.frames.push(FrameRecord::from(frame));
                next
            })
        });
        let frames = frames.collect();
        let (kind, waits_for) = LineKind::of(stack.activity);
        let mut one = StackRecord {
            kind,
            waits_for,
            seconds: stack.seconds,
            frames,
            ..StackRecord::default()
        };
        one.set_place(stack.place);
        record.stacks.push(one);
    }
    (!record.stacks.is_empty()).then_some(record)
}
