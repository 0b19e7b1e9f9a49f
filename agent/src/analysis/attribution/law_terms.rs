//! The terms of the operational laws: what can limit throughput.

use crate::model::record::Resource;

/// Something that can limit throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Term {
    Stage(usize),
    Pool(usize),
    Cores,
    Quota,
    Gil,
    Gc,
    Disk,
    Engines,
    /// The `PCIe` link of the GPU.
    Pcie,
    /// The network file system from which this stage reads.
    Mount(usize),
    Memory,
    Jitter,
    HandOff,
    Compute,
}

impl Term {
    /// The resource of this term; `None` if it is not a resource.
    pub(super) fn resource(self) -> Option<Resource> {
        Some(match self {
            Self::Cores => Resource::Cores,
            Self::Quota => Resource::Quota,
            Self::Gil => Resource::Gil,
            Self::Gc => Resource::Gc,
            Self::Disk => Resource::Disk,
            Self::Engines => Resource::Nvdec,
            Self::Pcie => Resource::Pcie,
            Self::Mount(_) => Resource::Storage,
            Self::Memory => Resource::Memory,
            Self::Stage(_) | Self::Pool(_) | Self::Jitter | Self::HandOff | Self::Compute => {
                return None;
            }
        })
    }
}

/// Whether the value is known and not below `least`.
pub(super) fn at_least(value: Option<f64>, least: f64) -> bool {
    value.is_some_and(|value| value >= least)
}
