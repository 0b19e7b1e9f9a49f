//! Determines the order of stages, the queues between them, and the number of items per batch.
//!
//! Programs do not declare this. Stages and queues are recorded in the order of their first use, which is
//! the order of the data flow. The number of items per batch is measured, never assumed equal.

use crate::analysis::attribution::facts::PipelineFacts;
use crate::analysis::thresholds::bounds::OUT_PER_IN;
use crate::analysis::thresholds::{Thresholds, counts};
use crate::model::record::{QueueSummary, StageSummary};

/// A stage of the pipeline with its neighbouring queues.
#[derive(Debug, Clone)]
pub(super) struct Node<'a> {
    pub(super) stage: &'a StageSummary,
    /// The queue that the stage writes to.
    pub(super) after: Option<&'a QueueSummary>,
    /// The queue that the stage reads from.
    pub(super) before: Option<&'a QueueSummary>,
    pub(super) concurrency: f64,
    pub(super) calls: f64,
    pub(super) mean_ms: f64,
    /// Input items per call.
    pub(super) takes: f64,
    /// Output items per call.
    pub(super) gives: f64,
    /// Shortest step that the stage allows.
    pub(super) limit_ms: f64,
    /// Share of a call's time that a core works for it.
    cpu: Option<f64>,
}

impl Node<'_> {
    pub(super) fn room(&self) -> u32 {
        self.after
            .and_then(|queue| queue.capacity)
            .unwrap_or(counts::QUEUE_CAPACITY)
    }

    /// Share of a call's time that a core works for it, measured or estimated from the process's CPU time;
    /// `None` if unknown.
    pub(super) fn cpu(&self) -> Option<f64> {
        self.cpu
    }

    /// The same, only if measured.
    pub(super) fn measured_cpu(&self) -> Option<f64> {
        self.cpu.filter(|_| self.stage.cpu_pct.is_some())
    }

    /// Total duration of the calls per batch, in milliseconds.
    pub(super) fn busy_ms(&self) -> f64 {
        self.mean_ms * self.calls
    }

    /// Mean number of concurrent calls.
    pub(super) fn active(&self, step_ms: f64) -> f64 {
        (self.busy_ms() / step_ms).min(self.concurrency)
    }
}

/// The stages in data-flow order, and the number of items of the last queue per batch.
pub(super) fn chain<'a>(facts: &'a PipelineFacts, t: &Thresholds) -> (Vec<Node<'a>>, f64) {
    let outer: Vec<&StageSummary> = facts
        .stages
        .iter()
        .filter(|stage| is_outer(stage))
        .collect();
    let mut after: Vec<Option<&QueueSummary>> = queues_after(&outer, &facts.queues);
    after.resize(outer.len(), None);
    let mut items = None;
    let mut nodes: Vec<Node<'a>> = Vec::new();
    for (number, (stage, queue)) in outer.into_iter().zip(after.iter()).enumerate() {
        let Some((declared, calls, mean_ms)) = known(stage) else {
            continue;
        };
        let busy_ms = mean_ms * calls;
        let at_once = busy_ms / facts.step_ms;
        let more = at_once.is_finite() && at_once > (1.0 + t.max_over_declared) * declared;
        let concurrency = if more && is_of_threads(facts, stage) {
            at_once.ceil()
        } else {
            declared
        };
        let into = items.unwrap_or(calls);
        let out = into * (stage.out_per_in.unwrap_or(1.0)).clamp(OUT_PER_IN.0, OUT_PER_IN.1);
        items = Some(out);
        nodes.push(Node {
            stage,
            after: *queue,
            before: number.checked_sub(1).and_then(|before| after[before]),
            concurrency,
            calls,
            mean_ms,
            takes: into / calls,
            gives: out / calls,
            limit_ms: busy_ms / concurrency,
            cpu: stage.cpu_pct.map(|pct| (pct / 100.0).clamp(0.0, 1.0)),
        });
    }
    share_cpu_time(facts, &mut nodes);
    let mut batch = items.unwrap_or(1.0);
    if batch < t.min_whole_item {
        // The first stage takes several items per call. No stage before it shows how many.
        for node in &mut nodes {
            node.takes /= batch;
            node.gives /= batch;
        }
        batch = 1.0;
    }
    if (batch - batch.round()).abs() < t.whole_batch_error * batch {
        batch = batch.round();
    }
    (nodes, batch)
}

/// Estimates the CPU time of this process's stages for which it is not measured, such as SPDL's: they get
/// the CPU time of the process, minus that of the training thread and of the measured stages. If other
/// threads (such as the model's) are included, the estimate is too high, and remedies promise too little.
fn share_cpu_time(facts: &PipelineFacts, nodes: &mut [Node<'_>]) {
    let Some(used) = facts.resources.other_threads_cores else {
        return;
    };
    let is_here =
        |node: &Node<'_>| is_of_threads(facts, node.stage) && node.stage.runs_in_training_process();
    let here = |node: &&Node<'_>| is_here(node);
    let measured: f64 = (nodes.iter().filter(here))
        .filter_map(|node| Some(node.busy_ms() * node.cpu?))
        .sum();
    let unmeasured: f64 = (nodes.iter().filter(here))
        .filter(|node| node.cpu.is_none())
        .map(Node::busy_ms)
        .sum();
    let share = ((used * facts.step_ms - measured) / unmeasured.max(1e-9)).clamp(0.0, 1.0);
    for node in nodes {
        if node.cpu.is_none() && is_here(node) {
            node.cpu = Some(share);
        }
    }
}

/// Whether a stage belongs to a loader without worker processes, and consists of threads of one process.
fn is_of_threads(facts: &PipelineFacts, stage: &StageSummary) -> bool {
    stage.processes <= 1 && facts.loader.workers.is_none()
}

/// The queues before and after a stage, if they are known.
pub(crate) fn queues_around<'a>(
    stages: &[StageSummary],
    queues: &'a [QueueSummary],
    name: &str,
) -> Vec<&'a QueueSummary> {
    let outer: Vec<&StageSummary> = stages.iter().filter(|stage| is_outer(stage)).collect();
    let after = queues_after(&outer, queues);
    let Some(number) = outer.iter().position(|stage| stage.name == name) else {
        return Vec::new();
    };
    let before = number.checked_sub(1);
    let numbers = before.into_iter().chain([number]);
    numbers
        .filter_map(|place| after.get(place).copied().flatten())
        .collect()
}

/// Sets the stage that fills each queue, where it is known.
pub(in crate::analysis) fn set_filling_stages(
    queues: &mut [QueueSummary],
    stages: &[StageSummary],
) {
    let outer: Vec<&StageSummary> = stages.iter().filter(|stage| is_outer(stage)).collect();
    let after = queues_after(&outer, queues);
    let filled: Vec<(String, String)> = (outer.iter().zip(after))
        .filter_map(|(stage, queue)| Some((queue?.name.clone(), stage.name.clone())))
        .collect();
    for queue in queues {
        let named = (stages.iter()).find(|stage| stage.name == name_of_filling_stage(queue));
        let found = filled.iter().find(|(name, _)| *name == queue.name);
        let found = found.map(|(_, stage)| stage);
        queue.filled_by = named.map(|stage| &stage.name).or(found).cloned();
    }
}

/// Whether batches pass through the stage, and the stage is not nested in another one.
fn is_outer(stage: &StageSummary) -> bool {
    stage.within.is_none() && known(stage).is_some()
}

/// Concurrency, calls per batch and time per call, if all are known.
fn known(stage: &StageSummary) -> Option<(f64, f64, f64)> {
    let positive = |value: Option<f64>| value.filter(|v| v.is_finite() && *v > 0.0);
    Some((
        positive(stage.concurrency)?.max(1.0),
        positive(stage.calls_per_batch)?,
        positive(stage.mean_ms)?,
    ))
}

/// Assigns a queue to each stage: one after each, or one between each two, or by name. Otherwise only the
/// last queue is used. A pool's queue holds requests of any caller, so it is after no stage.
fn queues_after<'a>(
    stages: &[&StageSummary],
    queues: &'a [QueueSummary],
) -> Vec<Option<&'a QueueSummary>> {
    let queues: Vec<&QueueSummary> = queues.iter().filter(|q| q.concurrency.is_none()).collect();
    let last = queues.iter().copied().find(|queue| queue.last);
    if queues.len() == stages.len() || (queues.len() + 1 == stages.len() && last.is_none()) {
        return queues.into_iter().map(Some).collect();
    }
    let count = stages.len();
    stages
        .iter()
        .enumerate()
        .map(|(number, stage)| {
            let named = (queues.iter().copied()).find(|queue| is_named_after(queue, &stage.name));
            named.or(last.filter(|_| number + 1 == count))
        })
        .collect()
}

/// Whether the queue is named after the stage that fills it: with [`name_of_filling_stage`], or with the stage's
/// name and an ending (`decoded`).
fn is_named_after(queue: &QueueSummary, stage: &str) -> bool {
    let ending = name_of_filling_stage(queue).strip_prefix(stage);
    !stage.is_empty() && ending.is_some_and(|ending| ending.chars().all(char::is_alphabetic))
}

/// The name in `<name>_queue` (SPDL's queues) or in `after <name>`; otherwise the queue's name.
fn name_of_filling_stage(queue: &QueueSummary) -> &str {
    let name = queue.name.as_str();
    let plain = name
        .strip_suffix("_queue")
        .or_else(|| name.strip_prefix("after "));
    plain.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, calls: f64, out_per_in: f64) -> StageSummary {
        StageSummary {
            name: name.to_owned(),
            concurrency: Some(1.0),
            calls_per_batch: Some(calls),
            out_per_in: Some(out_per_in),
            mean_ms: Some(1.0),
            ..StageSummary::default()
        }
    }

    fn queue(name: &str, last: bool) -> QueueSummary {
        QueueSummary {
            name: name.to_owned(),
            last,
            ..QueueSummary::default()
        }
    }

    fn nodes_of(facts: &PipelineFacts) -> (Vec<Node<'_>>, f64) {
        chain(facts, &Thresholds::default())
    }

    #[test]
    fn items_follow_aggregation_and_filtering() {
        let facts = PipelineFacts {
            stages: vec![stage("read", 10.0, 0.5), stage("join", 1.0, 0.2)],
            ..PipelineFacts::default()
        };
        let (nodes, batch) = nodes_of(&facts);

        assert!((nodes[0].gives - 0.5).abs() < 1e-9);
        assert!((nodes[1].takes - 5.0).abs() < 1e-9);
        assert!((batch - 1.0).abs() < 1e-9);
    }

    #[test]
    fn items_that_no_stage_joins_are_joined_by_the_loop() {
        let facts = PipelineFacts {
            stages: vec![stage("decode", 6.0, 1.0)],
            ..PipelineFacts::default()
        };
        assert!((nodes_of(&facts).1 - 6.0).abs() < 1e-9);
    }

    #[test]
    fn stages_without_cpu_time_share_what_the_threads_used() {
        let mut facts = PipelineFacts {
            stages: vec![stage("read", 6.0, 1.0), stage("join", 2.0, 1.0)],
            step_ms: 10.0,
            ..PipelineFacts::default()
        };
        assert_eq!(nodes_of(&facts).0[0].cpu(), None);

        facts.resources.other_threads_cores = Some(0.4);
        let shares = |facts: &PipelineFacts| -> Vec<f64> {
            nodes_of(facts).0.iter().filter_map(Node::cpu).collect()
        };
        assert_eq!(shares(&facts), [0.5, 0.5]);

        facts.stages[1].cpu_pct = Some(100.0);
        assert!((shares(&facts)[0] - 2.0 / 6.0).abs() < 1e-9);
        facts.loader.workers = Some(2);
        assert_eq!(shares(&facts), [1.0], "workers are other processes");
    }

    #[test]
    fn a_stage_with_more_concurrent_calls_than_it_declares_has_a_higher_concurrency() {
        let facts = PipelineFacts {
            stages: vec![stage("read", 21.0, 1.0), stage("join", 10.0, 1.0)],
            step_ms: 10.0,
            ..PipelineFacts::default()
        };
        let concurrency: Vec<f64> = nodes_of(&facts)
            .0
            .iter()
            .map(|node| node.concurrency)
            .collect();
        assert_eq!(concurrency, [3.0, 1.0]);
    }

    #[test]
    fn a_pools_queue_is_after_no_stage() {
        let stages = vec![stage("read", 1.0, 1.0), stage("decode", 1.0, 1.0)];
        let pool = QueueSummary {
            concurrency: Some(4),
            ..queue("decoders", false)
        };
        let queues = vec![pool, queue("a", false), queue("b", true)];

        let names: Vec<_> = queues_around(&stages, &queues, "decode")
            .iter()
            .map(|queue| queue.name.as_str())
            .collect();

        assert_eq!(names, ["a", "b"]);
        assert!(queues_around(&stages, &queues, "resize").is_empty());
    }

    #[test]
    fn a_queue_has_the_name_of_the_stage_that_fills_it() {
        let stages = ["read", "decode", "join"].map(|name| stage(name, 1.0, 1.0));
        let filled_by = |mut queues: [QueueSummary; 2]| {
            set_filling_stages(&mut queues, &stages);
            queues.map(|queue| queue.filled_by.unwrap_or_default())
        };

        let by_ending = [queue("decoded", false), queue("out", true)];
        assert_eq!(filled_by(by_ending), ["decode", "join"]);
        let by_name = [queue("join_queue", false), queue("after read", false)];
        assert_eq!(filled_by(by_name), ["join", "read"]);
    }

    #[test]
    fn a_queue_is_not_after_a_stage_whose_name_is_only_a_part_of_its_name() {
        let stages = ["read", "read_ahead", "join"].map(|name| stage(name, 1.0, 1.0));
        let names = |queues: [&str; 4], stage: &str| -> Vec<String> {
            let queues = queues.map(|name| queue(name, false));
            let around = queues_around(&stages, &queues, stage);
            around.iter().map(|queue| queue.name.clone()).collect()
        };
        let of_spdl = ["src_queue", "read_ahead_queue", "read_queue", "sink_queue"];
        assert_eq!(names(of_spdl, "read"), ["read_queue"]);
        assert_eq!(
            names(of_spdl, "read_ahead"),
            ["read_queue", "read_ahead_queue"]
        );
        let declared = ["tasks", "after read_ahead", "read-only", "joined"];
        assert_eq!(names(declared, "read"), [""; 0]);
        assert_eq!(names(declared, "join"), ["after read_ahead", "joined"]);
    }

    #[test]
    fn queues_are_found_by_number_or_else_by_name() {
        let stages = vec![stage("read", 1.0, 1.0), stage("decode", 1.0, 1.0)];
        let mut facts = PipelineFacts {
            stages,
            queues: vec![queue("a", false), queue("b", true)],
            ..PipelineFacts::default()
        };
        assert_eq!(
            nodes_of(&facts).0[1].before.map(|q| q.name.as_str()),
            Some("a")
        );

        facts.queues = vec![
            queue("x", false),
            queue("read_queue", false),
            queue("s", true),
        ];
        let (nodes, _) = nodes_of(&facts);
        assert_eq!(nodes[0].after.map(|q| q.name.as_str()), Some("read_queue"));
        assert_eq!(nodes[1].after.map(|q| q.name.as_str()), Some("s"));
    }
}
