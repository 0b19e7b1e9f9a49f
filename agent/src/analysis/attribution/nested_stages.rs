//! Finds the stage of the model that contains a stage of the records.

use super::facts::PipelineFacts;
use super::stage_order::Node;

/// The number of the stage that contains the named stage, and the named stage's part of its time.
pub(super) fn find_stage(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    name: &str,
) -> Option<(usize, f64)> {
    let (mut name, mut part) = (name, 1.0);
    // Stages nest a few levels deep at most; the bound protects against a cycle in the records.
    for _ in 0..8 {
        if let Some(stage) = nodes.iter().position(|node| node.stage.name == name) {
            return Some((stage, part));
        }
        let busy = |name: &str| {
            let stage = facts.stages.iter().find(|stage| stage.name == name)?;
            Some((stage, stage.mean_ms? * stage.calls_per_batch?))
        };
        let (inner, own) = busy(name)?;
        let outer = inner.within.as_deref()?;
        part *= own / busy(outer)?.1;
        name = outer;
    }
    None
}
