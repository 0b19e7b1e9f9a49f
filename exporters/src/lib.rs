//! Encodes records as bytes, and delivers the bytes to destinations.
//!
//! [`encode`] converts records to bytes and back, without access to files or sockets. [`transport`]
//! delivers the bytes, with one module per destination. [`run_folder`] defines the layout of a run on
//! disk: the names of its files, and their combined content. [`catalog`] is the list of destinations
//! besides the run folder.
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
pub mod log_target;
pub mod run_folder;
pub mod transport;
