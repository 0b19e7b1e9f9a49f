//! Storage and network activity: the disks that store the data, and the network that may deliver it.
//!
//! [`disk`] finds the block devices of the files in use and reads their counters. [`network`] adds up
//! the interfaces. Both cover the whole machine. The sources `process` and `tree` report the I/O of
//! this process.

pub mod disk;
mod diskstats;
mod mounts;
pub mod network;
mod sysblock;

pub use disk::Disk;
pub use network::Network;
