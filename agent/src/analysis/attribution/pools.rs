//! Infers which stages share the threads of a pool.

use std::collections::BTreeSet;

use super::facts::PipelineFacts;
use super::simulation::whole;
use super::stage_order::Node;
use crate::analysis::thresholds::Thresholds;
use crate::model::stack::LOADER;

/// A pool of threads that calls of stages run on. Calls may have to wait for a thread.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Name of its queue. [`LOADER`] if it has none that headspace knows.
    pub(super) name: String,
    pub(super) threads: u32,
    /// Mean number of threads in a call.
    pub(super) active: f64,
    pub(super) stages: Vec<usize>,
    /// Whether its threads also set how many calls each of its stages may run at once.
    pub(super) sets_concurrency: bool,
}

impl Pool {
    /// Share of the pool's threads that are in a call.
    pub(super) fn busy(&self) -> f64 {
        self.active / f64::from(self.threads)
    }
}

/// The pools whose threads stages may have to wait for. Programs do not declare which stages run in a pool.
/// It is inferred: the concurrent calls of a stage must match the pool's busy threads, either those of one
/// stage alone, or those of all stages together that have no pool of their own. `inline` is whether the loop does the
/// loader's work itself.
pub(super) fn find_pools(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    inline: bool,
    t: &Thresholds,
) -> Vec<Pool> {
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
            name: queue.name.clone(),
            threads: threads.max(1),
            active: at_work,
            stages,
            sets_concurrency: false,
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
    // Of executors that headspace knows, the stages are known as well as they can be.
    if !inline && facts.queues.iter().all(|queue| queue.concurrency.is_none()) {
        found.extend(find_busy_threads(facts, nodes, t));
    }
    found
}

/// The threads that run the calls of several stages in turn and are always busy, as the samples of stacks show. Each thread
/// of a program's own pool, for example, reads a sample and then decodes it. `None` if one stage takes nearly all of
/// their time: then this stage is the limit. Also `None` if a stage declares its concurrency, as SPDL's do: its calls may
/// wait for a thread, so their times do not add up to those of the threads.
fn find_busy_threads(facts: &PipelineFacts, nodes: &[Node<'_>], t: &Thresholds) -> Option<Pool> {
    let threads_of = |node: &Node<'_>| -> Option<&BTreeSet<u32>> {
        let mut sampled = facts.stage_threads.iter();
        let found = sampled.find(|sampled| sampled.stage == node.stage.name);
        let is_here = node.stage.processes <= 1;
        found.filter(|_| is_here).map(|found| &found.threads)
    };
    let largest = (nodes.iter().filter_map(threads_of)).max_by_key(|threads| threads.len())?;
    let shares = |threads: &BTreeSet<u32>| !threads.is_disjoint(largest);
    let stages: Vec<usize> = (0..nodes.len())
        .filter(|stage| threads_of(&nodes[*stage]).is_some_and(shares))
        .collect();
    if stages
        .iter()
        .any(|stage| nodes[*stage].stage.concurrency_known)
    {
        return None;
    }
    let active = |stage: &usize| nodes[*stage].active(facts.step_ms);
    let at_once = |stage: &usize| whole(nodes[*stage].concurrency);
    let pool = Pool {
        name: LOADER.to_owned(),
        // The sampled threads may be more: a loader may start new ones for each epoch.
        threads: stages.iter().map(at_once).max()?,
        active: stages.iter().map(active).sum(),
        stages,
        sets_concurrency: true,
    };
    let longest = (pool.stages.iter().map(active)).fold(0.0, f64::max);
    let is_shared = longest < t.dominant_stage * pool.active;
    let is_busy = (t.busy_pool..=2.0 - t.busy_pool).contains(&pool.busy());
    (is_shared && is_busy).then_some(pool)
}
