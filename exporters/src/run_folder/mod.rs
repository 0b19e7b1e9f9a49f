//! Defines the layout of a run on disk, and reads and follows runs.
//!
//! ```text
//! headspace-runs/                      the base, HEADSPACE_DIR
//! └── 2026-11-21T09-30-12-4711/        a run: UTC time of its start, and the process's id
//!     ├── rank0.001.jsonl              the oldest records of rank 0, their ticks merged
//!     ├── rank0.002.jsonl
//!     ├── rank0.jsonl                  its newest records, appended to
//!     └── rank1.jsonl
//! ```

mod end_of_file;
mod follow_rotation;
mod follow_run;
mod names;
mod open_file;
mod resolve_path;
mod run;

pub use end_of_file::has_ended;
pub use follow_run::{Follower, Polled};
pub use names::{FolderError, RankFile, create, files, part_path, rank_path, runs};
pub use open_file::open_file;
pub use resolve_path::{PathKind, newest};
pub use run::{RankRun, ReadError, ReadEvent, Run};
