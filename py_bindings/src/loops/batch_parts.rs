//! The tuple that `count_parts` of `headspace/_loops/batch_parts.py` returns.

use headspace_agent::model::record::BatchRecord;
use pyo3::prelude::*;

/// Tensors, bytes in them, other objects, bytes in strings and arrays among those, and tensors on a device.
#[derive(FromPyObject)]
pub(crate) struct BatchParts(u64, u64, u64, u64, u64);

impl From<BatchParts> for BatchRecord {
    fn from(parts: BatchParts) -> Self {
        let BatchParts(tensors, tensor_bytes, objects, object_bytes, device_tensors) = parts;
        Self {
            tensors,
            tensor_bytes,
            objects,
            object_bytes,
            device_tensors,
        }
    }
}
