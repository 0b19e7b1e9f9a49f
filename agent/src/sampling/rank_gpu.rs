//! Determines the GPU that a rank computes on, for the sources that read GPUs and for attribution.
//!
//! If `torchrun` starts eight ranks on a node with eight GPUs, each rank may use all of them but computes
//! on one. The bottleneck of the rank is derived from that GPU only. Only the first rank of the node reads
//! the others.
//!
//! A process that is the only rank of its node may compute on several GPUs. It is bound to one only if it has
//! memory on no other. Otherwise it has no GPU of its own, and all GPUs count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::record::{ComputeGpu, GpuRule};

/// The GPU that this process computes on, once it is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct RankGpu {
    rank: RankOnNode,
    /// 0, or the rule's strength in the upper half and the ordinal in the lower one, or [`SEVERAL`].
    bound: Arc<AtomicU64>,
}

/// This process among the ranks of its node.
#[derive(Debug, Clone, Copy, Default)]
enum RankOnNode {
    /// The process is the only rank of its node. It may compute on several GPUs.
    #[default]
    Only,
    /// One of several ranks, with its number on the node.
    Numbered(u32),
    /// One of several ranks, whose number on the node is unknown. `torch.multiprocessing.spawn` starts such
    /// ranks.
    Unnumbered { is_first: bool },
}

/// Value of [`RankGpu::bound`] of an only rank that was seen with memory on several GPUs. It is stronger than
/// every rule: the process stays unbound.
const SEVERAL: u64 = u64::MAX;

impl RankGpu {
    /// The cell for one of several ranks of a node.
    pub fn of_rank(local_rank: u32) -> Self {
        Self::with_rank(RankOnNode::Numbered(local_rank))
    }

    /// The cell for one of several ranks of a run, if its number on its node is unknown. The first rank of
    /// the run is the first one of its node.
    pub fn of_unnumbered_rank(rank: u32) -> Self {
        Self::with_rank(RankOnNode::Unnumbered {
            is_first: rank == 0,
        })
    }

    fn with_rank(rank: RankOnNode) -> Self {
        Self {
            rank,
            bound: Arc::default(),
        }
    }

    /// Binds the process to that GPU, unless a stronger rule has bound it.
    fn bind(&self, ordinal: u32, rule: GpuRule) {
        let new = (strength(rule) << 32) | u64::from(ordinal);
        let _ = self
            .bound
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                (new >> 32 >= old >> 32).then_some(new)
            });
    }

    /// Binds one of several ranks to torch's current device on the thread of the training loop. Device 0 is
    /// torch's default if a rank never calls `set_device`, so it counts for the first rank only.
    ///
    /// An only rank is not bound: a model on several GPUs (`DataParallel`) has a current device, too.
    pub fn bind_by_torch(&self, ordinal: u32) {
        if !self.is_only() && (ordinal > 0 || self.is_first()) {
            self.bind(ordinal, GpuRule::TorchCurrentDevice);
        }
    }

    /// Binds the process by the memory that it and its children hold: `held` has the ordinal and the bytes of
    /// each GPU on which they have a context. `is_complete` says whether all GPUs were searched.
    ///
    /// One of several ranks is bound to the GPU with most bytes. An only rank is bound if it has a context on
    /// exactly one GPU.
    pub fn bind_by_memory(&self, held: &[(u32, f64)], is_complete: bool) {
        let own = match (self.is_only(), held) {
            (false, _) => self.most_memory(held),
            (true, [(ordinal, _)]) => is_complete.then_some(*ordinal),
            (true, []) => None,
            (true, _) => {
                self.bound.store(SEVERAL, Ordering::Relaxed);
                None
            }
        };
        if let Some(ordinal) = own {
            self.bind(ordinal, GpuRule::OwnMemory);
        }
    }

    /// The GPU with most bytes. If several have the same amount, the one to which the rank is already bound.
    fn most_memory(&self, held: &[(u32, f64)]) -> Option<u32> {
        let most = held.iter().map(|gpu| gpu.1).max_by(f64::total_cmp)?;
        let with_most = held.iter().filter(|gpu| gpu.1 >= most);
        let ordinals: Vec<u32> = with_most.map(|gpu| gpu.0).collect();
        match ordinals[..] {
            [ordinal] => Some(ordinal),
            _ => (self.get().map(|own| own.ordinal)).filter(|bound| ordinals.contains(bound)),
        }
    }

    /// Binds the rank to the GPU with its local rank, if the driver shows that many.
    pub fn bind_by_local_rank(&self, devices: usize) {
        if let RankOnNode::Numbered(number) = self.rank
            && (number as usize) < devices
            && devices > 1
        {
            self.bind(number, GpuRule::LocalRank);
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
        self.is_first() || self.get().is_none_or(|own| own.ordinal == ordinal)
    }

    /// Whether the memory of this process may still determine its GPU. torch's device is a stronger rule.
    pub fn is_open_to_memory(&self) -> bool {
        self.get().map(|own| own.rule) != Some(GpuRule::TorchCurrentDevice)
    }

    fn is_only(&self) -> bool {
        matches!(self.rank, RankOnNode::Only)
    }

    /// Whether the process is the first rank of its node, as far as that is known.
    fn is_first(&self) -> bool {
        match self.rank {
            RankOnNode::Only => true,
            RankOnNode::Numbered(number) => number == 0,
            RankOnNode::Unnumbered { is_first } => is_first,
        }
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
        only.bind_by_torch(2);
        assert_eq!(only.get(), None);
        assert!((0..8).all(|ordinal| only.reads(ordinal)));
    }

    #[test]
    fn an_only_rank_is_bound_to_the_one_gpu_that_holds_its_memory_and_still_reads_all() {
        let only = RankGpu::default();
        only.bind_by_memory(&[], true);
        only.bind_by_memory(&[(5, 2e9)], false);
        assert_eq!(
            only.get(),
            None,
            "a GPU that was not searched may hold more"
        );

        only.bind_by_memory(&[(5, 2e9)], true);

        let own = ComputeGpu {
            ordinal: 5,
            rule: GpuRule::OwnMemory,
        };
        assert_eq!(only.get(), Some(own));
        assert!((0..8).all(|ordinal| only.reads(ordinal)));
    }

    #[test]
    fn an_only_rank_with_memory_on_several_gpus_is_never_bound() {
        let only = RankGpu::default();
        only.bind_by_memory(&[(0, 20e9)], true);
        // For example `DataParallel`, which copies the model at its first step.
        only.bind_by_memory(&[(0, 20e9), (1, 0.4e9)], true);
        assert_eq!(only.get(), None);

        only.bind_by_memory(&[(0, 20e9)], true);
        assert_eq!(only.get(), None);
    }

    #[test]
    fn a_rank_of_unknown_number_is_bound_by_memory_and_torch() {
        let rank = RankGpu::of_unnumbered_rank(3);
        rank.bind_by_local_rank(8);
        rank.bind_by_torch(0);
        assert_eq!(rank.get(), None);

        rank.bind_by_memory(&[(0, 0.4e9), (5, 20e9)], true);
        assert_eq!(rank.get().map(|own| own.ordinal), Some(5));
        rank.bind_by_torch(6);
        assert_eq!(rank.get().map(|own| own.ordinal), Some(6));
        assert_eq!([5, 6].map(|ordinal| rank.reads(ordinal)), [false, true]);

        let first = RankGpu::of_unnumbered_rank(0);
        first.bind_by_torch(0);
        assert_eq!(first.get().map(|own| own.ordinal), Some(0));
        assert!((0..8).all(|ordinal| first.reads(ordinal)));
    }

    #[test]
    fn equal_memory_on_several_gpus_does_not_change_the_gpu() {
        let equal = [(1, 2e9), (2, 2e9), (5, 1e9)];
        let rank = RankGpu::of_unnumbered_rank(3);
        rank.bind_by_memory(&equal, true);
        assert_eq!(rank.get(), None);

        let numbered = RankGpu::of_rank(1);
        numbered.bind_by_local_rank(8);
        numbered.bind_by_memory(&equal, true);
        assert_eq!(numbered.get().map(|own| own.ordinal), Some(1));
    }

    #[test]
    fn a_rank_without_a_device_of_its_number_is_not_bound() {
        let hidden = RankGpu::of_rank(5);
        hidden.bind_by_local_rank(1);
        hidden.bind_by_local_rank(4);
        assert_eq!(hidden.get(), None);
    }
}
