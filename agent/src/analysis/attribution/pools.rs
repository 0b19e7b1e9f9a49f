//! Infers which stages share the threads of a pool.

use super::facts::PipelineFacts;
use super::stage_order::Node;
use crate::analysis::thresholds::Thresholds;
use crate::model::record::QueueSummary;

/// A pool of threads that calls of stages run on. Calls may have to wait for a thread.
#[derive(Debug, Clone)]
pub(super) struct Pool<'a> {
    pub(super) queue: &'a QueueSummary,
    pub(super) threads: u32,
    /// Mean number of threads in a call.
    pub(super) active: f64,
    pub(super) stages: Vec<usize>,
}

impl Pool<'_> {
    /// Share of the pool's threads that are in a call.
    pub(super) fn busy(&self) -> f64 {
        self.active / f64::from(self.threads)
    }
}

/// The pools whose threads stages may have to wait for. Programs do not declare which stages run in a pool.
/// It is inferred: the concurrent calls of a stage must match the pool's busy threads, either those of one
/// stage alone, or those of all stages together that have no pool of their own.
pub(super) fn find_pools<'a>(
    facts: &'a PipelineFacts,
    nodes: &[Node<'_>],
    t: &Thresholds,
) -> Vec<Pool<'a>> {
    let active = |stage: &usize| nodes[*stage].active(facts.step_ms);
    let mut left: Vec<usize> = (0..nodes.len())
        .filter(|stage| nodes[*stage].stage.processes <= 1)
        .collect();
    let all: f64 = left.iter().map(active).sum();
    let mut found = Vec::new();
    let mut shared = Vec::new();
    for queue in &facts.queues {
        let (Some(threads), Some(at_work)) = (queue.concurrency, queue.active) else {
            continue;
        };
        let off = |calls: f64| (calls - at_work).abs();
        let same = |calls: f64| off(calls) <= t.same_calls_error * at_work;
        let pool = |stages| Pool {
            queue,
            threads: threads.max(1),
            active: at_work,
            stages,
        };
        let alone = (0..left.len())
            .filter(|at| same(active(&left[*at])) && off(active(&left[*at])) <= off(all))
            .min_by(|a, b| off(active(&left[*a])).total_cmp(&off(active(&left[*b]))));
        match alone.map(|at| left.remove(at)) {
            Some(stage) if f64::from(threads) < nodes[stage].concurrency => {
                found.push(pool(vec![stage]));
            }
            Some(_) => {}
            None => shared.push(pool(Vec::new())),
        }
    }
    // If several pools are shared, the stages cannot be assigned to them.
    if let [pool] = &mut shared[..] {
        let together: f64 = left.iter().map(active).sum();
        if (together - pool.active).abs() <= t.same_calls_error * pool.active && left.len() > 1 {
            pool.stages = left;
            found.append(&mut shared);
        }
    }
    found
}
