//! Encodes records as bytes, and decodes them. Pure: this module opens no file or socket.

mod finite;
pub mod json_lines;
mod lines;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod perfetto;
pub mod prometheus;
pub mod reader;
pub mod retention;
pub mod scalars;
#[cfg(feature = "schema")]
pub mod schema;
pub mod snapshot;
pub mod text;
mod tick_series;
pub mod times;
pub mod verdict_text;

#[cfg(test)]
pub(crate) mod samples;
