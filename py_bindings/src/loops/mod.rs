//! Loops over a loader: the iterator that training calls, its cache of batches for replay, and what it
//! records.

pub(crate) mod batch_cache;
pub(crate) mod cached_batch;
pub(crate) mod fast_next;
pub(crate) mod iterator;
pub(crate) mod loader_facts;
pub(crate) mod plan;
pub(crate) mod recorded_loops;
pub(crate) mod samples;
pub(crate) mod source;
pub(crate) mod tape;
pub(crate) mod wrapped_loader;
