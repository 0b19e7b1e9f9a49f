//! One batch in the cache: how it is copied, handed out, and found changed.

use pyo3::prelude::*;

use crate::interpreter::interrupts::unless_interrupted;

/// `(digest, bytes)` of a batch, where they can be told.
type Fingerprint = Option<(u64, u64)>;

/// A batch that may be replayed.
pub(crate) struct Kept {
    pub(crate) batch: Py<PyAny>,
    form: Form,
    /// As it was when it came.
    fingerprint: Fingerprint,
}

/// What is handed out in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The batch itself: it is no container.
    Itself,
    /// Containers of its own around the same values.
    Containers,
    /// A copy of all of it.
    Copy,
}

/// Functions of the package that look into batches. Their errors are no fault of the loop; an
/// interrupt of the program that comes meanwhile is returned.
pub(crate) struct Keeper {
    /// `headspace._caching.fingerprint.fingerprint`.
    fingerprint: Py<PyAny>,
    /// `headspace._caching.copies.copy_containers`.
    copy_containers: Py<PyAny>,
    /// `headspace._caching.copies.copy_values`.
    copy_values: Py<PyAny>,
}

impl Kept {
    /// The batch itself, not looked at yet.
    pub(crate) fn unseen(batch: Py<PyAny>) -> Self {
        Self {
            batch,
            form: Form::Itself,
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
        self.form != Form::Copy
    }

    /// Whether a replay hands out the object that is kept.
    pub(crate) fn is_itself(&self) -> bool {
        self.form == Form::Itself
    }

    /// Bytes of its buffers, where they say so.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.fingerprint.map(|(_, bytes)| bytes)
    }
}

impl Keeper {
    pub(crate) fn import(py: Python<'_>) -> PyResult<Self> {
        let copies = py.import("headspace._caching.copies")?;
        let fingerprints = py.import("headspace._caching.fingerprint")?;
        Ok(Self {
            fingerprint: fingerprints.getattr("fingerprint")?.unbind(),
            copy_containers: copies.getattr("copy_containers")?.unbind(),
            copy_values: copies.getattr("copy_values")?.unbind(),
        })
    }

    /// The batch as it is to be kept: a whole copy, or new containers. One that cannot be copied is kept
    /// itself.
    pub(crate) fn keep(
        &self,
        py: Python<'_>,
        batch: &Py<PyAny>,
        copies_values: bool,
    ) -> PyResult<Kept> {
        let (copier, form) = if copies_values {
            (&self.copy_values, Form::Copy)
        } else {
            (&self.copy_containers, Form::Containers)
        };
        let (batch, form) = match unless_interrupted(py, copier.call1(py, (batch,)))? {
            Some(copy) if copies_values || !copy.is(batch) => (copy, form),
            _ => (batch.clone_ref(py), Form::Itself),
        };
        Ok(Kept {
            fingerprint: self.fingerprint(py, &batch)?,
            batch,
            form,
        })
    }

    /// A kept batch as the loop may have it.
    pub(crate) fn hand_out(&self, py: Python<'_>, kept: Kept) -> PyResult<Py<PyAny>> {
        let copier = match kept.form {
            Form::Itself => return Ok(kept.batch),
            Form::Containers => &self.copy_containers,
            Form::Copy => &self.copy_values,
        };
        let copy = unless_interrupted(py, copier.call1(py, (&kept.batch,)))?;
        Ok(copy.unwrap_or(kept.batch))
    }

    /// Whether the batch is no longer as it came.
    pub(crate) fn is_changed(&self, py: Python<'_>, kept: &Kept) -> PyResult<bool> {
        Ok(self.fingerprint(py, &kept.batch)? != kept.fingerprint)
    }

    /// A batch whose fingerprint cannot be taken is not checked.
    fn fingerprint(&self, py: Python<'_>, batch: &Py<PyAny>) -> PyResult<Fingerprint> {
        let digest = self.fingerprint.call1(py, (batch,));
        unless_interrupted(py, digest.and_then(|digest| digest.extract(py)))
    }
}
