//! The batches that are cached for replay, and what happens if the training loop changes them in place.

/// Facts about the batches that are cached for replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFacts {
    /// Number of batches.
    pub batches: u32,
    /// Bytes that they hold, if their buffers report a size.
    pub bytes: Option<u64>,
    /// Number of batches that were replayed although the loop had changed them in place.
    pub mutated: u32,
    /// Whether the loop changes batches in place, and how the cache handles it.
    pub in_place: InPlace,
}

/// How the cache handles batches that the loop changes in place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InPlace {
    /// The loop changed no batch so far.
    #[default]
    Never,
    /// Batches are copied, so that each replay has the original batch.
    Copied,
    /// Copies would exceed the memory limit of the cache, so no batch is cached.
    TooLarge,
}
