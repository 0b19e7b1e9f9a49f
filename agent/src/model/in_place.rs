//! Whether a training loop changes its batches in place, and what becomes of the cached ones.

use std::fmt;

/// What becomes of a cache whose batches the loop changes in place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InPlace {
    /// The loop was not seen to change a batch.
    #[default]
    Never,
    /// Batches are copied, so that each is replayed as it came.
    Copied,
    /// The copies would take more memory than the cache may take, so no batch is kept.
    TooLarge,
}

impl fmt::Display for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "the cached batches are as they came",
            Self::Copied => "a replayed step gets a copy of a cached batch as it came",
            Self::TooLarge => "copies of the batches would take more than 1 GiB, so none is cached",
        })
    }
}
