//! Sources of readings: the usage of the process, and the limits that the machine sets.
//!
//! Each module is one source behind one feature, and implements
//! [`Collector`](headspace_agent::port::Collector). Siblings do not import each other. A source
//! reads; it does not decide when (the agent does), nor where readings go (exporters do), and it
//! changes nothing on the machine.
//!
//! A value that cannot be read is omitted: a reading of zero is a measured zero. Files are opened at
//! each tick and closed at once. So no forked worker inherits our descriptors, and no program can close
//! them under us. Perf counters have to stay open; `perf` documents how it handles that.
//!
//! ```
//! # #[cfg(feature = "process")] {
//! use std::time::Duration;
//!
//! use headspace_agent::port::{CollectError, Collector};
//! use headspace_collectors::process::Process;
//!
//! let mut source = Process::new()?;
//! let mut readings = Vec::new();
//! source.collect(Duration::ZERO, &mut readings)?;
//!
//! for reading in &readings {
//!     println!("{} = {} {}", reading.key(), reading.value, reading.metric.unit);
//! }
//! assert!(readings.iter().any(|reading| reading.key() == "process.thread.count"));
//! # }
//! # Ok::<(), headspace_agent::port::CollectError>(())
//! ```

pub mod catalog;
#[cfg(feature = "host")]
pub mod data_set;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "io")]
pub mod io;
pub mod log_target;
#[cfg(any(feature = "opentelemetry", feature = "tracing"))]
mod numbered_slot;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
#[cfg(feature = "perf")]
pub mod perf;
#[cfg(feature = "process")]
pub mod process;
// Each source uses its part of it.
#[cfg_attr(not(feature = "default"), allow(dead_code))]
mod procfs;
pub mod shared_memory;
#[cfg(feature = "stacks")]
pub mod stacks;
#[cfg(feature = "tracing")]
pub mod tracing;
#[cfg(feature = "tree")]
pub mod tree;
#[cfg(feature = "workers")]
pub mod workers;
