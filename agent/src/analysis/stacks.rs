//! Sampled stacks: how much time the lines of the program take, who holds the interpreter lock, and which work
//! a stage does.

mod blocked_loading;
mod compute_waits;
mod data_files;
mod gil_holders;
mod item_waits;
mod line_shares;
mod own_line;
mod own_loading;
mod shared_lock_waits;
mod stack_times;
mod stacks_record;
mod stage_threads;
mod work;

pub use self::blocked_loading::BlockedLoading;
pub use self::data_files::OpenFiles;
pub(super) use self::gil_holders::gil_holders;
pub use self::line_shares::LineShare;
pub(super) use self::own_loading::OwnLoading;
pub use self::shared_lock_waits::SharedLockWaits;
pub use self::stack_times::{StackTimes, TimedLine};
pub(crate) use self::stacks_record::stacks_record;
pub use self::stage_threads::StageThreads;
pub(super) use self::work::stage_work;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::Work;
    use crate::model::stack::{Activity, Frame, Place, StackReading, ThreadStack, WaitFor};

    fn times(stacks: &[(&str, Activity, f64)]) -> StackTimes {
        let mut times = StackTimes::default();
        for (line, (function, activity, seconds)) in (1..).zip(stacks) {
            times.add(StackReading {
                at_ns: 0,
                seconds: *seconds,
                is_trainer: true,
                samples: vec![(
                    Place::Stage("fetch".to_owned()),
                    ThreadStack::doing(
                        *activity,
                        vec![
                            Frame::own("data.py", line, function),
                            Frame::own("data.py", 99, "load"),
                        ],
                    ),
                )],
                ..StackReading::default()
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
