//! Attributes that distinguish the values of a metric, shared by collectors and analysis. Names and values
//! are those of OpenTelemetry.

use super::reading::Attributes;

/// CPU time in the program's own code.
pub const CPU_USER: Attributes = &[("cpu.mode", "user")];
/// CPU time in the kernel on behalf of the program.
pub const CPU_SYSTEM: Attributes = &[("cpu.mode", "system")];
/// Bytes read from storage.
pub const DISK_READ: Attributes = &[("disk.io.direction", "read")];
/// Bytes written to storage.
pub const DISK_WRITE: Attributes = &[("disk.io.direction", "write")];
/// Received bytes.
pub const NETWORK_RECEIVE: Attributes = &[("network.io.direction", "receive")];
/// Transmitted bytes.
pub const NETWORK_TRANSMIT: Attributes = &[("network.io.direction", "transmit")];
/// The thread released the core to wait.
pub const SWITCH_VOLUNTARY: Attributes = &[("process.context_switch.type", "voluntary")];
/// The kernel gave the core to another thread.
pub const SWITCH_INVOLUNTARY: Attributes = &[("process.context_switch.type", "involuntary")];
/// Page faults without a read from storage.
pub const FAULT_MINOR: Attributes = &[("system.paging.fault.type", "minor")];
/// Page faults with a read from storage.
pub const FAULT_MAJOR: Attributes = &[("system.paging.fault.type", "major")];
/// The share of time in which a GPU runs at least one kernel.
pub const GPU_GENERAL: Attributes = &[("hw.gpu.task", "general")];
/// A GPU's video decoders.
pub const GPU_DECODER: Attributes = &[("hw.gpu.task", "decoder")];
/// A GPU's video encoders.
pub const GPU_ENCODER: Attributes = &[("hw.gpu.task", "encoder")];
/// The part of a GPU that belongs to this process and its descendants.
pub const OWNER_OWN: Attributes = &[("owner", "own")];
/// The part of a GPU that belongs to other processes.
pub const OWNER_OTHERS: Attributes = &[("owner", "others")];
/// Memory errors that the hardware could not correct.
pub const ECC_UNCORRECTED: Attributes = &[("severity", "uncorrected")];
/// Some work waited for a core.
pub const STALLED_CPU: Attributes = &[("resource", "cpu"), ("stalled", "some")];
/// Some work waited for storage.
pub const STALLED_IO: Attributes = &[("resource", "io"), ("stalled", "some")];
/// Some work waited for memory.
pub const STALLED_MEMORY: Attributes = &[("resource", "memory"), ("stalled", "some")];
/// Memory of the machine that is used for nothing.
pub const MEMORY_FREE: Attributes = &[("system.memory.state", "free")];
/// Memory of the machine that holds the page cache.
pub const MEMORY_CACHED: Attributes = &[("system.memory.state", "cached")];
/// Pages that come from swap.
pub const PAGING_IN: Attributes = &[("system.paging.direction", "in")];
/// Pages that are moved to swap.
pub const PAGING_OUT: Attributes = &[("system.paging.direction", "out")];
/// From sending a request to its answer.
pub const PART_ROUND_TRIP: Attributes = &[("part", "round_trip")];
/// From the creation of a request to its end.
pub const PART_EXECUTE: Attributes = &[("part", "execute")];
/// Name of the thread that takes the batches, in the scope `thread`.
pub const CONSUMER: &str = "consumer";
/// Name of the agent's own threads in that scope.
pub const AGENT: &str = "headspace";
