//! The facts of a loader and of its loop, which Python passes for the records.

use headspace_agent::model::OptionsFrom;
use headspace_agent::model::record::{
    LoaderRecord, Role, SentPartsRecord, StartObstacle, StartObstacleRecord,
};
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
    /// Epochs of the run.
    #[pyo3(default)]
    epochs: Option<u64>,
    /// Batches of the run.
    #[pyo3(default)]
    total_steps: Option<u64>,
    /// Counts the user's units in a batch. Called for some batches.
    #[pyo3(default)]
    pub(crate) count_units: Option<Py<PyAny>>,
    /// The unit that `count_units` counts, if it is not samples.
    #[pyo3(default)]
    pub(crate) unit: Option<String>,
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
    /// What worker processes would get.
    #[pyo3(default)]
    sent: Option<SentParts>,
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
            epochs: self.epochs,
            total_steps: self.total_steps,
            unit: self.unit,
            workers: self.workers,
            prefetch_depth: self.prefetch_depth,
            prefetch_factor: self.prefetch_factor,
            pin_memory: self.pin_memory,
            ranks_with_same_samples: self.ranks_with_same_samples,
            unsplit_stream: self.unsplit_stream,
            split_twice: self.split_twice,
            sent: self.sent.map(SentPartsRecord::from),
            options_from: self.options_from.as_deref().and_then(OptionsFrom::named),
            role: self.role.as_deref().and_then(Role::named),
            chosen: self.chosen,
            batch: None,
            delivered_batch: None,
        }
    }
}

/// What a new process would get: what `check_parts` of `headspace/_processes/pickle_check.py` returns.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SentParts {
    bytes: Option<u64>,
    objects: Option<u64>,
    at_least: bool,
    obstacle: Option<Obstacle>,
    other_obstacles: Vec<String>,
}

/// A part that cannot be pickled, or that processes must not share.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Obstacle {
    part: String,
    type_name: String,
    /// As in the records.
    kind: String,
    file: Option<String>,
    line: Option<u32>,
}

impl From<SentParts> for SentPartsRecord {
    fn from(parts: SentParts) -> Self {
        let obstacle = |found: Obstacle| StartObstacleRecord {
            part: found.part,
            type_name: found.type_name,
            kind: StartObstacle::named(&found.kind).unwrap_or(StartObstacle::Other),
            file: found.file,
            line: found.line,
        };
        Self {
            bytes: parts.bytes,
            objects: parts.objects,
            at_least: parts.at_least,
            obstacle: parts.obstacle.map(obstacle),
            other_obstacles: parts.other_obstacles,
        }
    }
}
