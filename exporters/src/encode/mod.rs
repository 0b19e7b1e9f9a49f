//! Encodes records as bytes, and decodes them. Pure: this module opens no file or socket.

mod finite;
pub mod json_lines;
pub mod merge_ticks;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod perfetto;
pub mod prometheus;
pub mod reader;
#[cfg(feature = "schema")]
pub mod schema;
pub mod snapshot;
pub mod sparse_distribution;
pub(crate) mod split_lines;
pub mod stacks;
pub mod terminal_text;
mod tick_line;
pub mod tracker_scalars;
pub mod untrusted_text;
pub mod verdict_text;

#[cfg(test)]
pub(crate) mod test_records;
