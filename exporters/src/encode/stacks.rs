//! Encodes sampled stacks for viewers of profiles.
//!
//! Both formats get the same stacks: those of each stage, and those of compute. A stack
//! that waits ends in a frame that says for what.

pub mod call_tree;
pub mod collapsed;
pub mod speedscope;

use headspace_agent::model::record::{FrameRecord, LineKind, StackRecord, StacksRecord};
use headspace_agent::wording::verdict::does;

/// The stacks of one rank.
#[derive(Debug, Clone, Copy)]
pub struct RankStacks<'a> {
    /// The rank; `None` if the run has only one.
    pub rank: Option<u32>,
    /// Its stacks.
    pub stacks: &'a StacksRecord,
}

impl RankStacks<'_> {
    /// Name of a stack's stage or `compute`, with the rank if there are several.
    fn place(&self, stack: &StackRecord) -> String {
        let place = stack.place();
        match self.rank {
            Some(rank) => format!("rank {rank} · {place}"),
            None => place.to_owned(),
        }
    }

    /// The calls of a stack, the outermost first.
    fn frames<'a>(&'a self, stack: &'a StackRecord) -> impl Iterator<Item = &'a FrameRecord> {
        let frames = &self.stacks.frames;
        (stack.frames.iter()).filter_map(|number| frames.get(*number as usize))
    }
}

/// The frame at the end of a stack that waits.
fn wait(stack: &StackRecord) -> Option<String> {
    (stack.kind == LineKind::Wait).then(|| format!("({})", does(stack.kind, stack.waits_for)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use headspace_agent::model::stack::WaitFor;

    /// Two stacks of a stage, one that waits, and one of the loop.
    pub(crate) fn example() -> StacksRecord {
        let frame = |function: &str, line| FrameRecord {
            file: "/home/me/data.py".to_owned(),
            line,
            function: function.to_owned(),
            own: true,
        };
        let stack = |stage: Option<&str>, seconds, frames: &[u32]| StackRecord {
            stage: stage.map(ToOwned::to_owned),
            seconds,
            frames: frames.to_vec(),
            ..StackRecord::default()
        };
        StacksRecord {
            frames: vec![frame("load", 5), frame("read; all", 7), frame("train", 40)],
            stacks: vec![
                StackRecord {
                    kind: LineKind::Wait,
                    waits_for: Some(WaitFor::File),
                    ..stack(Some("fetch"), 1.5, &[0, 1])
                },
                stack(None, 0.75, &[2]),
                stack(Some("fetch"), 0.5, &[0]),
            ],
            left_out_s: 0.0,
        }
    }

    #[test]
    fn a_place_names_its_rank_if_there_are_several() {
        let stacks = example();
        let of = |rank| RankStacks {
            rank,
            stacks: &stacks,
        };
        assert_eq!(of(None).place(&stacks.stacks[1]), "compute");
        assert_eq!(of(Some(3)).place(&stacks.stacks[0]), "rank 3 · fetch");
    }
}
