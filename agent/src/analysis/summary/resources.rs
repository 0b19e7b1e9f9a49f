//! The use of the machine's resources, and what makes the memory grow.

use super::RunFacts;
use crate::analysis::attribution::items_per_batch;
use crate::analysis::findings::{Finding, findings};
use crate::analysis::loop_facts::LoopFacts;
use crate::analysis::memory_cause::{FillingQueue, MemoryGrowth, growth_cause};
use crate::analysis::resources::{Part, RankNode, resources, sm_utilization_pct};
use crate::analysis::stages::filling_queue;
use crate::model::Scope;
use crate::model::metric::HOST_CPU_UTILIZATION;
use crate::model::record::{BatchRecord, MemoryGrowthRecord, SummaryRecord};

/// Sets the fields about resources in `part`, and returns the findings.
pub(super) fn fill_resources(
    summary: &mut SummaryRecord,
    run: &RunFacts<'_>,
    main: Option<&LoopFacts>,
    part: Part,
) -> Vec<Finding> {
    let Some(history) = run.history else {
        return Vec::new();
    };
    let cpu = history
        .between(0.0, run.elapsed_s)
        .of(&HOST_CPU_UTILIZATION, &Scope::Host, &[])
        .mean();
    summary.cpu_utilization_pct = cpu.map(|share| 100.0 * share);
    let node = RankNode {
        compute_gpu: (run.node.compute_gpu).filter(|_| run.node.gpus.len() > 1),
        ..run.node
    };
    let sm_pct = |from_s, to_s| sm_utilization_pct(history, (from_s, to_s), node.compute_gpu);
    summary.sm_utilization_pct = sm_pct(0.0, run.elapsed_s);
    if summary.steady_steps > 0 {
        summary.steady_sm_utilization_pct = sm_pct(part.from_s, part.to_s);
    }
    summary.resources = resources(history, part, node);
    summary.resources.memory_growth_cause =
        memory_growth_cause(summary, run, main, part).map(Box::new);
    findings(&summary.resources)
}

/// What makes the memory grow.
fn memory_growth_cause(
    summary: &SummaryRecord,
    run: &RunFacts<'_>,
    main: Option<&LoopFacts>,
    part: Part,
) -> Option<MemoryGrowthRecord> {
    let growth = MemoryGrowth {
        bytes_per_step: summary.resources.memory_growth_per_step?,
        scope: summary.resources.memory_growth_of?,
        steps_per_s: part.steps_per_s?,
    };
    let queue = || {
        let (capacity, items_per_s) = filling_queue(run.stages?, part, summary)?;
        let batch_bytes = summary.delivered_batch.and_then(BatchRecord::host_bytes)?;
        Some(FillingQueue {
            capacity,
            items_per_step: items_per_s / growth.steps_per_s,
            item_bytes: batch_bytes / items_per_batch(summary, &main?.loader)?,
        })
    };
    growth_cause(growth, run.examinations, queue)
}
