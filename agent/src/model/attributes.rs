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
/// Name of the thread that takes the batches, in the scope `thread`.
pub const CONSUMER: &str = "consumer";
/// Name of the agent's own threads in that scope.
pub const AGENT: &str = "headspace";
