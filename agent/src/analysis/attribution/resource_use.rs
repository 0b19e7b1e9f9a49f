//! Computes how much of each shared resource is in use.

use super::facts::PipelineFacts;
use super::law_terms::at_least;
use super::stage_order::Node;
use crate::analysis::resources::gpu_busy_share;
use crate::analysis::thresholds::Thresholds;
use crate::model::record::ResourcesRecord;

/// Utilization of the shared resources, as a share of the supply; `None` if not measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    pub(super) cores: Option<f64>,
    pub(super) disk: Option<f64>,
    pub(super) engines: Option<f64>,
    /// Share of the time in which the GPU executes kernels or copies.
    pub(super) gpu: Option<f64>,
    /// Cores' worth of work that may need the interpreter lock, if threads wait for it.
    pub(super) gil: Option<f64>,
}

impl Uses {
    /// Time per step in which the GPU executes kernels or copies.
    pub(super) fn gpu_ms(&self, step_ms: f64) -> Option<f64> {
        self.gpu.map(|busy| busy * step_ms)
    }
}

/// The utilization of the resources in the facts.
pub(super) fn resource_uses(facts: &PipelineFacts, nodes: &[Node<'_>], t: &Thresholds) -> Uses {
    let r = &facts.resources;
    let waits = at_least(r.gil_wait_ms, t.long_gil_wait_ms);
    let of_one_process = nodes
        .iter()
        .filter(|node| node.stage.processes <= 1)
        .map(|node| node.active(facts.step_ms) * node.measured_cpu().unwrap_or(0.0))
        .sum::<f64>();
    Uses {
        cores: r
            .cores_used
            .zip(cores_of_rank(r))
            .filter(|(_, usable)| *usable > 0.0)
            .map(|(used, usable)| used / usable),
        disk: r.disk_utilization_pct.map(|pct| (pct / 100.0).min(1.0)),
        engines: decoders(r).map(|(engines, busy)| (busy / f64::from(engines)).min(1.0)),
        gpu: gpu_busy_share(r, facts.ranks_in_run),
        gil: waits.then_some(of_one_process),
    }
}

/// This rank's share of the cores that it may use. The ranks of a machine share them, and use equally many.
pub(super) fn share_of_cores(resources: &ResourcesRecord) -> f64 {
    let own = resources.cores_used.filter(|own| *own > 0.0);
    let parts = own.zip(resources.other_ranks_cores);
    parts.map_or(1.0, |(own, others)| own / (own + others))
}

/// Number of cores in this share.
pub(super) fn cores_of_rank(resources: &ResourcesRecord) -> Option<f64> {
    Some(share_of_cores(resources) * resources.cores_usable?)
}

/// Number of video decoders of the rank's GPUs, and how many of them are busy on average. `None` if either is not
/// known.
pub(super) fn decoders(resources: &ResourcesRecord) -> Option<(u32, f64)> {
    let gpus = || resources.own_gpus();
    let engines: u32 = gpus().filter_map(|gpu| gpu.nvdec_engines).sum();
    let busy = gpus().filter_map(|gpu| gpu.nvdec_busy);
    let busy = busy.reduce(|a, b| a + b)?;
    (engines > 0).then_some((engines, busy))
}
