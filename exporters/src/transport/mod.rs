//! Delivers records to destinations, one per module. Siblings do not import each other. `background`,
//! `connections`, `host_header` and [`gzip`] are shared by several of them.

pub mod background;
pub mod connections;
pub mod file;
pub mod host_header;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod pipe;
pub mod prometheus;
pub mod textfile;
pub mod tracker_scalars;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses a message, quickly rather than tightly.
fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}
