//! Storage and network activity: the disks that store the data, and the network that may deliver it.
//!
//! [`disk`] finds the block devices of the files in use and reads their counters. [`network`] adds up
//! the interfaces. [`network_mounts`] reads what the kernel counts for the network file systems of the files in use. They cover
//! the whole machine. The sources `process` and `tree` report the I/O of
//! this process.

pub mod disk;
mod diskstats;
mod files_in_use;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod mounts;
mod mountstats;
pub mod network;
mod network_kind;
pub mod network_mounts;
mod sysblock;

pub use disk::Disk;
pub use network::Network;
pub use network_mounts::NetworkMounts;
