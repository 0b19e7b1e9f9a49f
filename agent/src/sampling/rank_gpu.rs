//! Determines the GPU that a rank computes on, for the sources that read GPUs and for attribution.
//!
//! If `torchrun` starts eight ranks on a node with eight GPUs, each rank may use all of them but computes
//! on one. The bottleneck of the rank is derived from that GPU only. Only the first rank of the node reads
//! the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::record::{ComputeGpu, GpuRule};

/// The GPU that this process computes on, once it is known. Clones share it.
///
/// A process that is the only rank of its node may compute on several GPUs: none is bound, and all count.
#[derive(Debug, Clone, Default)]
pub struct RankGpu {
    /// This process's number among the ranks of its node; `None` if it is the only one there.
    local_rank: Option<u32>,
    /// 0, or the rule's strength in the upper half and the ordinal in the lower one.
    bound: Arc<AtomicU64>,
}

impl RankGpu {
    /// The cell for one of several ranks of a node.
    pub fn of_rank(local_rank: u32) -> Self {
        Self {
            local_rank: Some(local_rank),
            bound: Arc::default(),
        }
    }

    /// Binds the rank to that GPU, unless a stronger rule has bound it.
    pub fn bind(&self, ordinal: u32, rule: GpuRule) {
        if self.local_rank.is_none() {
            return;
        }
        let new = (strength(rule) << 32) | u64::from(ordinal);
        let _ = self
            .bound
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                (new >> 32 >= old >> 32).then_some(new)
            });
    }

    /// Binds the rank to torch's current device on the thread of the training loop. Device 0 is torch's
    /// default if a rank never calls `set_device`, so it counts for the first rank only.
    pub fn bind_by_torch(&self, ordinal: u32) {
        if ordinal > 0 || self.local_rank == Some(0) {
            self.bind(ordinal, GpuRule::TorchCurrentDevice);
        }
    }

    /// Binds the rank to the GPU with its local rank, if the driver shows that many.
    pub fn bind_by_local_rank(&self, devices: usize) {
        let own = self.local_rank.filter(|rank| (*rank as usize) < devices);
        if let Some(ordinal) = own.filter(|_| devices > 1) {
            self.bind(ordinal, GpuRule::LocalRank);
        }
    }

    /// The GPU, and the rule that determined it.
    pub fn get(&self) -> Option<ComputeGpu> {
        let bound = self.bound.load(Ordering::Relaxed);
        Some(ComputeGpu {
            rule: RULES.into_iter().find(|r| strength(*r) == bound >> 32)?,
            ordinal: u32::try_from(bound & u64::from(u32::MAX)).ok()?,
        })
    }

    /// Whether this process reads that GPU: the first rank of a node reads all GPUs, the others their own.
    pub fn reads(&self, ordinal: u32) -> bool {
        let is_first = self.local_rank.is_none_or(|rank| rank == 0);
        is_first || self.get().is_none_or(|own| own.ordinal == ordinal)
    }

    /// Whether the memory of this process may still determine its GPU. torch's device is a stronger rule.
    pub fn is_open_to_memory(&self) -> bool {
        let rule = self.get().map(|own| own.rule);
        self.local_rank.is_some() && rule != Some(GpuRule::TorchCurrentDevice)
    }
}

const RULES: [GpuRule; 3] = [
    GpuRule::LocalRank,
    GpuRule::OwnMemory,
    GpuRule::TorchCurrentDevice,
];

/// From 1. The rules are declared from the weakest to the strongest.
fn strength(rule: GpuRule) -> u64 {
    rule as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchs_device_is_stronger_than_memory_and_memory_than_the_local_rank() {
        let gpu = RankGpu::of_rank(3);
        assert_eq!(gpu.get(), None);

        gpu.bind_by_local_rank(8);
        assert_eq!(gpu.get().map(|own| own.ordinal), Some(3));
        gpu.bind(5, GpuRule::OwnMemory);
        gpu.bind_by_local_rank(8);
        assert_eq!(gpu.get().map(|own| own.ordinal), Some(5));
        gpu.clone().bind(6, GpuRule::TorchCurrentDevice);
        gpu.bind(7, GpuRule::OwnMemory);

        let own = ComputeGpu {
            ordinal: 6,
            rule: GpuRule::TorchCurrentDevice,
        };
        assert_eq!(gpu.get(), Some(own));
        assert_eq!([5, 6].map(|ordinal| gpu.reads(ordinal)), [false, true]);
    }

    #[test]
    fn torchs_default_device_binds_only_the_first_rank() {
        let third = RankGpu::of_rank(3);
        third.bind_by_local_rank(8);
        third.bind_by_torch(0);
        assert_eq!(third.get().map(|own| own.ordinal), Some(3));
        third.bind_by_torch(5);
        assert_eq!(third.get().map(|own| own.ordinal), Some(5));

        let first = RankGpu::of_rank(0);
        first.bind_by_torch(0);
        assert_eq!(
            first.get().map(|own| own.rule),
            Some(GpuRule::TorchCurrentDevice)
        );
    }

    #[test]
    fn the_first_rank_reads_all_gpus_and_an_only_rank_is_not_bound() {
        let first = RankGpu::of_rank(0);
        first.bind_by_local_rank(8);
        assert!((0..8).all(|ordinal| first.reads(ordinal)));

        let only = RankGpu::default();
        only.bind_by_local_rank(8);
        only.bind(2, GpuRule::TorchCurrentDevice);
        assert_eq!(only.get(), None);
        assert!((0..8).all(|ordinal| only.reads(ordinal)));
    }

    #[test]
    fn a_rank_without_a_device_of_its_number_is_not_bound() {
        let hidden = RankGpu::of_rank(5);
        hidden.bind_by_local_rank(1);
        hidden.bind_by_local_rank(4);
        assert_eq!(hidden.get(), None);
    }
}
