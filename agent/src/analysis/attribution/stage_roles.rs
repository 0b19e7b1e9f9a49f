//! Infers what stages are: the one that decodes on the GPU, the one that reads from the disk, worker processes, or
//! the loop's own thread. Programs do not declare this.

use super::facts::PipelineFacts;
use super::resource_use::{Uses, decoders};
use super::stage_names::has_decoding_name;
use super::stage_order::Node;
use crate::analysis::thresholds::{Thresholds, bounds};

/// The stage whose concurrent calls match the number of busy decoders, while no core works for them.
pub(super) fn find_decoder(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    t: &Thresholds,
) -> Option<(usize, u32)> {
    let (engines, busy) =
        decoders(&facts.resources).filter(|(_, busy)| *busy >= t.min_decoder_use)?;
    let explains = |node: &Node<'_>| {
        let active = node.active(facts.step_ms);
        active >= t.min_decoding_calls * busy
            && node.cpu().is_none_or(|cpu| cpu < t.max_decoding_cpu)
    };
    let candidates = || nodes.iter().enumerate().filter(|(_, node)| explains(node));
    let named = candidates().find(|(_, node)| has_decoding_name(&node.stage.name));
    // If no stage has a matching name, the stage with the closest number of calls is used.
    let nearest = || {
        candidates().min_by(|(_, a), (_, b)| {
            let off = |node: &Node<'_>| (node.active(facts.step_ms) - busy).abs();
            off(a).total_cmp(&off(b))
        })
    };
    named.or_else(nearest).map(|(stage, _)| (stage, engines))
}

/// The stage with the longest wait for something other than a core, while the disk is busy.
pub(super) fn find_reader(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    uses: Uses,
    decoder: Option<usize>,
    thresholds: &Thresholds,
) -> Option<usize> {
    uses.disk.filter(|used| *used >= thresholds.min_disk_use)?;
    let waits = |node: &Node<'_>| node.active(facts.step_ms) * (1.0 - node.cpu().unwrap_or(1.0));
    nodes
        .iter()
        .enumerate()
        .filter(|(stage, node)| {
            decoder != Some(*stage) && waits(node) > thresholds.min_reading_calls
        })
        .max_by(|(_, a), (_, b)| waits(a).total_cmp(&waits(b)))
        .map(|(stage, _)| stage)
}

/// The stage that runs in as many processes as the loader has workers.
pub(super) fn find_workers(facts: &PipelineFacts, nodes: &[Node<'_>]) -> Option<usize> {
    let workers = facts.loader.workers.filter(|workers| *workers > 0)?;
    nodes.iter().position(|node| {
        node.stage.processes == workers
            && (node.concurrency - f64::from(workers)).abs() < bounds::SAME_WHOLE_NUMBER
    })
}

/// Whether the loop does the loader's work itself: the waits match the stages' times, and no queue holds
/// batches. If the loader is known to have no worker processes, queues belong to something else. A loader on one other
/// thread also makes the loop wait for as long as its stages take if the rest of the step is short. So most sampled
/// calls must be on the training thread.
pub(super) fn is_inline(facts: &PipelineFacts, nodes: &[Node<'_>], t: &Thresholds) -> bool {
    let says_so = facts.loader.workers == Some(0);
    let least = if says_so {
        t.min_explained_wait
    } else {
        t.min_explained_wait_unknown
    };
    let load: f64 = nodes.iter().map(Node::busy_ms).sum();
    let on_other_threads =
        (facts.training_thread_share).is_some_and(|share| share < t.loads_itself);
    if on_other_threads && !says_so {
        return false;
    }
    let explained = load >= least * facts.wait_ms && load <= t.max_explained_wait * facts.wait_ms;
    let one_by_one = nodes.iter().all(|node| node.concurrency <= 1.0);
    explained && one_by_one && (says_so || facts.queues.is_empty()) && !nodes.is_empty()
}
