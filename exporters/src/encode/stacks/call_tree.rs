//! Arranges sampled stacks as trees of calls: one for each stage, and one for compute.

use headspace_agent::model::record::{COMPUTE, FrameRecord, LineRecord, StackRecord, StacksRecord};
use headspace_agent::wording::verdict::does;

/// The calls of a stage, or of compute.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTree<'a> {
    /// The stage. `None` for compute.
    pub stage: Option<&'a str>,
    /// Time of all samples.
    pub seconds: f64,
    /// The outermost calls, the longest first.
    pub calls: Vec<Call>,
}

impl CallTree<'_> {
    /// Name of the stage, or [`COMPUTE`].
    pub fn place(&self) -> &str {
        self.stage.unwrap_or(COMPUTE)
    }

    /// The line of a frame of this tree, if it is one of the `lines` with a gain.
    pub fn line<'a>(&self, frame: &FrameRecord, lines: &'a [LineRecord]) -> Option<&'a LineRecord> {
        lines.iter().find(|line| {
            line.stage.as_deref() == self.stage
                && line.file == frame.file
                && line.line == frame.line
        })
    }
}

/// A call with the calls that it makes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// Number of its frame in the record.
    pub frame: u32,
    /// Its time, with that of the calls that it makes.
    pub seconds: f64,
    /// What the thread does most of the time in the call itself.
    pub does: Option<&'static str>,
    /// The time of that.
    does_seconds: f64,
    /// The calls that it makes, the longest first.
    pub calls: Vec<Call>,
}

/// The trees, that with the longest time first.
pub fn call_trees(record: &StacksRecord) -> Vec<CallTree<'_>> {
    let mut trees: Vec<CallTree<'_>> = Vec::new();
    for stack in &record.stacks {
        let stage = stack.stage.as_deref();
        let known = trees.iter().position(|tree| tree.stage == stage);
        let index = known.unwrap_or_else(|| {
            trees.push(CallTree {
                stage,
                seconds: 0.0,
                calls: Vec::new(),
            });
            trees.len() - 1
        });
        trees[index].seconds += stack.seconds;
        add(&mut trees[index].calls, &stack.frames, stack);
    }
    for tree in &mut trees {
        sort(&mut tree.calls);
    }
    trees.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    trees
}

/// Adds a stack, whose remaining frames are these.
fn add(calls: &mut Vec<Call>, frames: &[u32], stack: &StackRecord) {
    let Some((first, rest)) = frames.split_first() else {
        return;
    };
    let known = calls.iter().position(|call| call.frame == *first);
    let index = known.unwrap_or_else(|| {
        calls.push(Call {
            frame: *first,
            ..Call::default()
        });
        calls.len() - 1
    });
    let call = &mut calls[index];
    call.seconds += stack.seconds;
    if rest.is_empty() && stack.seconds >= call.does_seconds {
        call.does = Some(does(stack.kind, stack.waits_for));
        call.does_seconds = stack.seconds;
    }
    add(&mut call.calls, rest, stack);
}

fn sort(calls: &mut [Call]) {
    calls.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for call in calls {
        sort(&mut call.calls);
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::record::LineKind;

    use super::super::tests::example;
    use super::*;

    #[test]
    fn the_activity_of_a_call_is_the_one_with_the_most_time() {
        let mut record = example();
        record.stacks.truncate(1);
        let mut brief = record.stacks[0].clone();
        let (longest, kind) = (record.stacks[0].seconds, LineKind::Native);
        (brief.seconds, brief.kind, brief.waits_for) = (0.1 * longest, kind, None);
        let of = |record: &StacksRecord| {
            let mut call = call_trees(record)[0].calls[0].clone();
            while let Some(inner) = call.calls.pop() {
                call = inner;
            }
            call.does
        };
        let expected = of(&record);

        record.stacks.push(brief.clone());
        assert_eq!(of(&record), expected);
        record.stacks.swap(0, 1);
        assert_eq!(of(&record), expected);
    }

    #[test]
    fn stacks_with_the_same_outer_calls_share_them() {
        let record = example();
        let trees = call_trees(&record);

        let stages: Vec<_> = trees
            .iter()
            .map(|tree| (tree.stage, tree.seconds))
            .collect();
        assert_eq!(stages, [(Some("fetch"), 2.0), (None, 0.75)]);
        let [load] = &trees[0].calls[..] else {
            panic!("{:?}", trees[0].calls)
        };
        assert_eq!(
            (load.frame, load.seconds, load.does),
            (0, 2.0, Some("runs Python"))
        );
        let [read] = &load.calls[..] else {
            panic!("{:?}", load.calls)
        };
        assert_eq!(
            (read.frame, read.seconds, read.does),
            (1, 1.5, Some("waits for a file"))
        );
    }
}
