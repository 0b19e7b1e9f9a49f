//! Copies a batch for the cache, and again for each replay, so that the loop cannot change the cached one.
//!
//! The copies are new containers around the same values, or copies of the values as well
//! ([`in_place_changes`](super::in_place_changes) decides).

use pyo3::prelude::*;

use crate::interpreter::calls::call;
use crate::interpreter::interrupts::unless_interrupted;

/// Digest and bytes of a batch. None if it cannot be computed: such a batch counts as unchanged.
type Fingerprint = Option<(u64, u64)>;

/// A batch that may be replayed.
pub(crate) struct CachedBatch {
    pub(crate) batch: Py<PyAny>,
    depth: CopyDepth,
    /// The fingerprint of the batch as the source returned it.
    fingerprint: Fingerprint,
}

/// Which parts of a cached batch are copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyDepth {
    /// None: the batch is no container.
    Nothing,
    /// Only the containers.
    Containers,
    /// Containers and values.
    Values,
}

/// Functions of the package that copy and compare batches. Their errors do not reach the loop. An interrupt
/// of the program during such a function is returned.
pub(crate) struct BatchCopier {
    /// `headspace._caching.fingerprint.fingerprint`.
    fingerprint: Py<PyAny>,
    /// `headspace._caching.copies.copy_containers`.
    copy_containers: Py<PyAny>,
    /// `headspace._caching.copies.copy_values`.
    copy_values: Py<PyAny>,
}

impl CachedBatch {
    /// Reserves the slot of a batch while it is copied.
    pub(crate) fn placeholder(batch: Py<PyAny>) -> Self {
        Self {
            batch,
            depth: CopyDepth::Nothing,
            fingerprint: None,
        }
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            batch: self.batch.clone_ref(py),
            ..*self
        }
    }

    /// Whether the loop may hold values of it.
    pub(crate) fn is_shared(&self) -> bool {
        self.depth != CopyDepth::Values
    }

    /// Whether a replay returns the cached object itself.
    pub(crate) fn is_itself(&self) -> bool {
        self.depth == CopyDepth::Nothing
    }

    /// Bytes of its buffers, if known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.fingerprint.map(|(_, bytes)| bytes)
    }
}

impl BatchCopier {
    pub(crate) fn import(py: Python<'_>) -> PyResult<Self> {
        let copies = py.import("headspace._caching.copies")?;
        let fingerprints = py.import("headspace._caching.fingerprint")?;
        Ok(Self {
            fingerprint: fingerprints.getattr("fingerprint")?.unbind(),
            copy_containers: copies.getattr("copy_containers")?.unbind(),
            copy_values: copies.getattr("copy_values")?.unbind(),
        })
    }

    /// Copies a batch for the cache. A batch that cannot be copied is kept itself.
    pub(crate) fn copy(
        &self,
        py: Python<'_>,
        batch: &Py<PyAny>,
        copies_values: bool,
    ) -> PyResult<CachedBatch> {
        let (copier, depth) = if copies_values {
            (&self.copy_values, CopyDepth::Values)
        } else {
            (&self.copy_containers, CopyDepth::Containers)
        };
        let (batch, depth) = match unless_interrupted(py, call(copier.bind(py), (batch,)))? {
            Some(copy) if copies_values || !copy.is(batch) => (copy.unbind(), depth),
            _ => (batch.clone_ref(py), CopyDepth::Nothing),
        };
        Ok(CachedBatch {
            fingerprint: self.fingerprint(py, &batch)?,
            batch,
            depth,
        })
    }

    /// The object that a replay returns for a cached batch.
    pub(crate) fn copy_for_loop(&self, py: Python<'_>, cached: CachedBatch) -> PyResult<Py<PyAny>> {
        let copier = match cached.depth {
            CopyDepth::Nothing => return Ok(cached.batch),
            CopyDepth::Containers => &self.copy_containers,
            CopyDepth::Values => &self.copy_values,
        };
        let copy = unless_interrupted(py, call(copier.bind(py), (&cached.batch,)))?;
        Ok(copy.map_or(cached.batch, Bound::unbind))
    }

    /// Whether the batch differs from what the source returned.
    pub(crate) fn is_changed(&self, py: Python<'_>, cached: &CachedBatch) -> PyResult<bool> {
        Ok(self.fingerprint(py, &cached.batch)? != cached.fingerprint)
    }

    fn fingerprint(&self, py: Python<'_>, batch: &Py<PyAny>) -> PyResult<Fingerprint> {
        let digest = call(self.fingerprint.bind(py), (batch,));
        unless_interrupted(py, digest.and_then(|digest| digest.extract()))
    }
}
