//! Computes how much of each shared resource is in use.

use super::facts::PipelineFacts;
use super::law_terms::at_least;
use super::stage_order::Node;
use crate::analysis::pcie::used_share;
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
    /// Share of the `PCIe` link of the rank's GPU, in the busier direction.
    pub(super) pcie: Option<f64>,
    /// Cores' worth of work that may need the interpreter lock, if threads wait for it.
    pub(super) gil: Option<f64>,
}

impl Uses {
    /// Time per step in which the GPU, or its link, has work.
    pub(super) fn device_ms(&self, step_ms: f64) -> Option<f64> {
        let both = [self.gpu, self.pcie].into_iter().flatten();
        Some(both.reduce(f64::max)? * step_ms)
    }

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
        .filter(|node| node.stage.runs_in_training_process())
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
        pcie: (r.own_gpus().filter_map(used_share)).reduce(f64::max),
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

#[cfg(test)]
mod tests {
    use super::super::facts::PipelineFacts;
    use super::super::{Attribution, Evidence, Limit, attribute};
    use crate::model::record::{GpuUse, PcieLink, RemedyCode, Resource, ResourcesRecord};

    /// The attribution of a loop whose GPU receives these bytes per second over 8 lanes of generation 4, which carry
    /// 15.75 GB/s.
    fn attribute_with_link(bytes_per_s: f64) -> Attribution {
        attribute(&PipelineFacts {
            step_ms: 10.0,
            wait_ms: 0.1,
            resources: ResourcesRecord {
                gpus: vec![GpuUse {
                    pcie_receive_bytes_per_s: Some(bytes_per_s),
                    pcie_link: Some(PcieLink {
                        generation: 4,
                        width: 8,
                    }),
                    ..GpuUse::default()
                }],
                ..ResourcesRecord::default()
            },
            ..PipelineFacts::default()
        })
    }

    #[test]
    fn a_busy_link_of_the_gpu_is_the_bottleneck() {
        let found = attribute_with_link(12.6e9);

        let bottleneck = found.bottleneck.unwrap();
        assert_eq!(bottleneck.limit, Limit::Resource(Resource::Pcie));
        assert!((bottleneck.limit_ms.unwrap() - 8.0).abs() < 0.01);
        let Evidence::Pcie {
            used,
            bytes_per_step,
            ..
        } = bottleneck.evidence
        else {
            panic!("{bottleneck:?}");
        };
        assert!((used - 0.8).abs() < 1e-3, "{used}");
        assert!((bytes_per_step - 12.6e7).abs() < 1.0, "{bytes_per_step}");
        let codes: Vec<_> = found.remedies.iter().map(|one| one.action.code()).collect();
        assert_eq!(codes, [RemedyCode::FewerGpuBytes]);
    }

    #[test]
    fn a_link_that_is_half_used_is_no_bottleneck() {
        let found = attribute_with_link(8e9);

        assert_eq!(found.bottleneck.unwrap().limit, Limit::Compute);
    }
}
