//! Finds the stage of the model that contains a stage of the records.

use super::facts::PipelineFacts;
use super::stage_order::Node;
use crate::model::record::StageSummary;

/// The number of the stage that contains the named stage, and the named stage's part of its time. Time in stages within
/// the named one is not part of it, as in [`LineShare`](crate::analysis::stacks::LineShare).
pub(super) fn find_stage(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    name: &str,
) -> Option<(usize, f64)> {
    let find = |name: &str| facts.stages.iter().find(|stage| stage.name == name);
    let within = |stage: &&StageSummary| stage.within.as_deref() == Some(name);
    let nested_ms: f64 = (facts.stages.iter().filter(within))
        .filter_map(StageSummary::busy_ms)
        .sum();
    let own_ms = find(name)?.busy_ms()? - nested_ms;
    let mut outer = name;
    // Stages nest a few levels deep at most; the bound protects against a cycle in the records.
    for _ in 0..8 {
        if let Some(stage) = nodes.iter().position(|node| node.stage.name == outer) {
            return Some((stage, (own_ms / nodes[stage].busy_ms()).clamp(0.0, 1.0)));
        }
        outer = find(outer)?.within.as_deref()?;
    }
    None
}
