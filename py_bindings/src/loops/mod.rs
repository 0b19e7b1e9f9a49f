//! Loops over a wrapped loader: the iterator that the training loop calls, the cache of batches for replay,
//! and the records of each epoch.

pub(crate) mod batch_cache;
pub(crate) mod batch_parts;
pub(crate) mod batch_requests;
pub(crate) mod batch_sizes;
pub(crate) mod batch_units;
pub(crate) mod epoch_end;
pub(crate) mod epoch_recording;
pub(crate) mod fast_next;
pub(crate) mod first_batches;
pub(crate) mod loader_facts;
pub(crate) mod loader_identity;
pub(crate) mod loop_iterator;
pub(crate) mod loop_plan;
pub(crate) mod native_loop;
pub(crate) mod rest_of_epoch;
pub(crate) mod source_iterator;
pub(crate) mod what_if_run;
