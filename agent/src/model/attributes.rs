//! Values of the attributes that tell a metric's values apart: one spelling for those who read them
//! and those who look them up. Names and values are OpenTelemetry's.

use super::reading::Attributes;

/// CPU time in the program's own code.
pub const CPU_USER: Attributes = &[("cpu.mode", "user")];
/// CPU time in the kernel, for the program.
pub const CPU_SYSTEM: Attributes = &[("cpu.mode", "system")];
/// Bytes from storage.
pub const DISK_READ: Attributes = &[("disk.io.direction", "read")];
/// Bytes to storage.
pub const DISK_WRITE: Attributes = &[("disk.io.direction", "write")];
/// Bytes that come in.
pub const NETWORK_RECEIVE: Attributes = &[("network.io.direction", "receive")];
/// Bytes that go out.
pub const NETWORK_TRANSMIT: Attributes = &[("network.io.direction", "transmit")];
/// The thread gave the core away, to wait for something.
pub const SWITCH_VOLUNTARY: Attributes = &[("process.context_switch.type", "voluntary")];
/// The core was taken away from the thread.
pub const SWITCH_INVOLUNTARY: Attributes = &[("process.context_switch.type", "involuntary")];
/// Page faults without a read from storage.
pub const FAULT_MINOR: Attributes = &[("system.paging.fault.type", "minor")];
/// Page faults with one.
pub const FAULT_MAJOR: Attributes = &[("system.paging.fault.type", "major")];
/// Name of the thread, in the scope of threads, that takes the batches.
pub const CONSUMER: &str = "consumer";
/// Name of the agent's own threads there.
pub const AGENT: &str = "headspace";
