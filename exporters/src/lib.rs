//! Where records go: how they become bytes, and how the bytes travel.
//!
//! [`encode`] turns records into bytes and back, without touching a file or a socket.
//! [`transport`] delivers the bytes, one destination a module. [`run_folder`] knows how a run lies
//! on disk: what its files are called, and what they say together. [`catalog`] is the list of
//! destinations besides it.
//!
//! ```
//! use headspace_agent::port::Exporter;
//! use headspace_exporters::run_folder::{self, Run};
//! use headspace_exporters::transport::file::{FileExporter, FileLimits};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let base = tempfile::tempdir()?;
//! # let base = base.path();
//! let folder = run_folder::create(base, 1_795_253_412_000_000_000, std::process::id())?;
//! let mut exporter = FileExporter::create(&folder, 0, FileLimits::default())?;
//! exporter.export(&[])?;
//!
//! let run = Run::read(&folder)?;
//! assert_eq!(run.ranks.len(), 1);
//! # Ok(())
//! # }
//! ```

pub mod catalog;
pub mod encode;
pub mod run_folder;
pub mod transport;
