//! Traits that adapters implement (sources, destinations, clock), each with its error.

pub mod catch_panics;
pub mod clock;
pub mod collector;
pub mod consumer;
pub mod exporter;
pub mod stacks;
pub mod thread;

pub use clock::{Clock, MonotonicClock};
pub use collector::{CollectError, Collector, Pace};
pub use consumer::ConsumerThread;
pub use exporter::{ExportError, Exporter, Lost};
pub use stacks::StackReader;
