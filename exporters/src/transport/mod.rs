//! Destinations, one per module. Siblings do not import each other; `background` and `host_header` contain what
//! several of them share.

pub mod background;
pub mod file;
pub mod host_header;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod pipe;
pub mod prometheus;
pub mod scalars;
pub mod textfile;
