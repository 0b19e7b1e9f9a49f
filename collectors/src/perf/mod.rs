//! Reads the usage and the waits of each thread of this process.
//!
//! There are three sources, because each can be missing independently:
//! - [`Threads`] (`core_switches`): context switches and waiting for a core, from `/proc/self/task`;
//! - [`Perf`] (`perf`): CPU time and page faults, from the kernel's own events;
//! - [`PerfHardware`] (`perf_hardware`): instructions, cycles and cache misses, from the processor's
//!   counters, which most virtual machines do not have.
//!
//! A program may have hundreds of threads, but a record must be small. Threads are therefore grouped by
//! the name that they share ([`names`]), and only the groups with the highest usage are listed
//! ([`groups`]).

pub mod core_switches;
mod counter;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod groups;
pub mod hardware;
mod names;
mod refused_events;
pub mod thread_cpu;
mod thread_list;
mod watch;

use std::time::Duration;

pub use core_switches::Threads;
pub use hardware::PerfHardware;
pub use thread_cpu::Perf;

/// Minimum interval between two readings of each of the three sources.
const PACE: Duration = Duration::from_secs(2);
