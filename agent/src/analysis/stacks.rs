//! What samples of stacks say besides lines: who holds the interpreter lock, which work a stage does, and the
//! record of all stacks.

mod work;

use std::collections::HashMap;

use crate::model::record::{
    FrameRecord, GilHolderRecord, LineKind, StackRecord, StacksRecord, StageWorkRecord, Work,
};
use crate::model::stack::{Frame, Place, StackTimes};
use work::work_of;

/// Minimum share of the time that a line holds the interpreter lock, to be reported.
const LEAST_HELD: f64 = 0.05;

/// Maximum number of holders of the interpreter lock that are reported.
const MAX_HOLDERS: usize = 3;

/// Minimum share of a kind of work in a stage's time, to be reported.
const LEAST_WORK: f64 = 0.05;

/// Maximum number of stacks in a record.
const MAX_STACKS: usize = 400;

/// Who held the interpreter lock of the training process, the longest first.
pub(super) fn gil_holders(stacks: &StackTimes) -> Vec<GilHolderRecord> {
    let holder = |(place, frame, share): (&Place, &Frame, f64)| GilHolderRecord {
        stage: match place {
            Place::Stage(name) => Some(name.clone()),
            Place::Loop(_) | Place::Elsewhere => None,
        },
        in_loop: matches!(place, Place::Loop(_)),
        file: frame.file.to_string(),
        line: frame.line,
        function: frame.function.to_string(),
        share_pct: 100.0 * share,
    };
    let holders = stacks.gil_holders(LEAST_HELD);
    holders.into_iter().take(MAX_HOLDERS).map(holder).collect()
}

/// The kinds of work of each stage, the largest share of a stage first. Empty for a stage of only one kind.
pub(super) fn stage_work(stacks: &StackTimes) -> Vec<StageWorkRecord> {
    let mut stages: HashMap<&str, HashMap<Work, f64>> = HashMap::new();
    for stack in stacks.stacks() {
        if let Place::Stage(name) = stack.place {
            let work = work_of(stack.frames, stack.activity);
            *stages.entry(name).or_default().entry(work).or_default() += stack.seconds;
        }
    }
    let mut records: Vec<StageWorkRecord> = Vec::new();
    for (stage, times) in stages {
        let total: f64 = times.values().sum();
        let large = times
            .into_iter()
            .filter(|(_, time)| time / total >= LEAST_WORK);
        let large: Vec<_> = large.collect();
        if large.iter().any(|(work, _)| *work != Work::Other) && large.len() > 1 {
            records.extend(large.into_iter().map(|(work, time)| StageWorkRecord {
                stage: stage.to_owned(),
                work,
                share_pct: 100.0 * time / total,
            }));
        }
    }
    let by_share = |a: &StageWorkRecord, b: &StageWorkRecord| b.share_pct.total_cmp(&a.share_pct);
    records.sort_by(|a, b| {
        a.stage
            .cmp(&b.stage)
            .then(by_share(a, b))
            .then(a.work.cmp(&b.work))
    });
    records
}

/// The record of the stacks with the longest time. `None` without any.
pub(crate) fn stacks_record(stacks: &StackTimes) -> Option<StacksRecord> {
    let mut all: Vec<_> = stacks.stacks().collect();
    all.sort_by(|a, b| {
        let by_time = b.seconds.total_cmp(&a.seconds);
        by_time.then_with(|| (a.place, a.frames).cmp(&(b.place, b.frames)))
    });
    let left_out = all.split_off(all.len().min(MAX_STACKS));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::{Activity, StackReading, StackSample, WaitFor};

    fn frame(file: &str, line: u32, function: &str) -> Frame {
        Frame {
            file: file.into(),
            line,
            function: function.into(),
            is_own: true,
        }
    }

    fn times(stacks: &[(&str, Activity, f64)]) -> StackTimes {
        let mut times = StackTimes::default();
        for (line, (function, activity, seconds)) in (1..).zip(stacks) {
            times.add(StackReading {
                seconds: *seconds,
                is_trainer: true,
                samples: vec![StackSample {
                    place: Place::Stage("fetch".to_owned()),
                    frames: vec![
                        frame("data.py", line, function),
                        frame("data.py", 99, "load"),
                    ],
                    activity: *activity,
                    holds_gil: *activity == Activity::Python,
                }],
            });
        }
        times
    }

    #[test]
    fn a_stages_time_is_divided_by_kinds_of_work() {
        let times = times(&[
            ("read", Activity::Wait(WaitFor::File), 1.0),
            ("decode_jpeg", Activity::Native, 2.0),
            ("f", Activity::Python, 1.0),
        ]);
        let shares: Vec<_> = (stage_work(&times).iter())
            .map(|work| (work.work, work.share_pct))
            .collect();
        let expected = [
            (Work::Decoding, 50.0),
            (Work::Reading, 25.0),
            (Work::Other, 25.0),
        ];
        assert_eq!(shares, expected);
        assert_eq!(gil_holders(&times)[0].function, "f");
    }

    #[test]
    fn the_record_has_each_frame_once_and_the_longest_stacks_first() {
        let times = times(&[("a", Activity::Python, 1.0), ("b", Activity::Python, 2.0)]);
        let record = stacks_record(&times).unwrap();
        assert_eq!(record.frames.len(), 3, "`load` is shared");
        assert_eq!(
            record.frames[0].function, "load",
            "the outermost call is first"
        );
        assert_eq!(record.stacks[0].frames, [0, 1]);
        assert_eq!(record.frames[1].function, "b");
        assert_eq!(stacks_record(&StackTimes::default()), None);
    }
}
