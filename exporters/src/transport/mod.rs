//! Destinations, one a module. Siblings do not import each other.

pub mod apart;
pub mod file;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod pipe;
pub mod prometheus;
pub mod scalars;
pub mod textfile;
