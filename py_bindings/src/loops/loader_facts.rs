//! The facts of a loader and of its loop, which Python passes for the records.

use headspace_agent::model::OptionsFrom;
use headspace_agent::model::record::{LoaderRecord, Role};
use pyo3::prelude::*;

/// The facts of a loader and of its loop: a mapping. Only `type_name` is required.
#[derive(FromPyObject, Default)]
#[pyo3(from_item_all)]
pub(crate) struct LoaderFacts {
    /// The loader's type, with its module.
    type_name: String,
    /// Batches of an epoch.
    #[pyo3(default)]
    batches: Option<u64>,
    /// Samples per batch.
    #[pyo3(default)]
    batch_size: Option<u64>,
    #[pyo3(default)]
    workers: Option<u32>,
    /// Most batches that it prefetches.
    #[pyo3(default)]
    pub(crate) prefetch_depth: Option<u32>,
    /// Batches that each worker prefetches.
    #[pyo3(default)]
    prefetch_factor: Option<u32>,
    #[pyo3(default)]
    pin_memory: Option<bool>,
    /// Ranks that each load all samples, and keep only their part.
    #[pyo3(default)]
    ranks_with_same_samples: Option<u32>,
    /// Whether the loader does not split a stream among its worker processes.
    #[pyo3(default)]
    unsplit_stream: bool,
    /// Whether the samples are split among the ranks twice.
    #[pyo3(default)]
    split_twice: bool,
    /// Counts the samples of a batch, or returns None. Called for the first batches of each epoch if
    /// `batch_size` is unknown.
    #[pyo3(default)]
    pub(crate) count_samples: Option<Py<PyAny>>,
    /// Returns a digest of a batch's contents, or None. Called for the first batches of each epoch.
    #[pyo3(default)]
    pub(crate) digest_batch: Option<Py<PyAny>>,
    /// Counts the parts of a batch: the fields of a `BatchRecord`, in their order. Called for one batch.
    #[pyo3(default)]
    pub(crate) count_parts: Option<Py<PyAny>>,
    /// Returns the bytes of a batch. Called for slow batches, and for those that follow them.
    #[pyo3(default)]
    pub(crate) count_bytes: Option<Py<PyAny>>,
    /// The purpose of the loop, as in the records.
    #[pyo3(default)]
    role: Option<String>,
    /// Whether the user named it as the training loop.
    #[pyo3(default)]
    chosen: bool,
    /// Where the user sets the plan, as in the records.
    #[pyo3(default)]
    options_from: Option<String>,
}

impl LoaderFacts {
    /// The record of a loop over this loader.
    pub(crate) fn into_record(self, name: String) -> LoaderRecord {
        LoaderRecord {
            name,
            type_name: self.type_name,
            batches: self.batches,
            batch_size: self.batch_size,
            workers: self.workers,
            prefetch_depth: self.prefetch_depth,
            prefetch_factor: self.prefetch_factor,
            pin_memory: self.pin_memory,
            ranks_with_same_samples: self.ranks_with_same_samples,
            unsplit_stream: self.unsplit_stream,
            split_twice: self.split_twice,
            options_from: self.options_from.as_deref().and_then(OptionsFrom::named),
            role: self.role.as_deref().and_then(Role::named),
            chosen: self.chosen,
            batch: None,
            delivered_batch: None,
        }
    }
}
