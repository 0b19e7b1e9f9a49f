//! Destinations, one a module. Siblings do not import each other; `apart` and `host` are what several
//! of them do alike.

pub mod apart;
pub mod file;
pub mod host;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod pipe;
pub mod prometheus;
pub mod scalars;
pub mod textfile;
