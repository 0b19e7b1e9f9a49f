//! What goes on under the data: the disks that hold it, and the network that may bring it.
//!
//! [`disk`] finds the block devices of the files in use and reads what they have done. [`network`]
//! adds up the interfaces. Both tell what the machine does, whoever asked for it; what this process
//! asked for is told by the sources `process` and `tree`.

pub mod disk;
mod diskstats;
mod mounts;
pub mod network;
mod open_files;
mod sysblock;

pub use disk::Disk;
pub use network::Network;
