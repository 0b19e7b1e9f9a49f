//! Detects that a later epoch of a loop iterates another loader object.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

/// The identity of a loader. A new loader at the address of a deleted one has another identity, if the type
/// supports weak references.
pub(crate) enum LoaderIdentity {
    Weak(Py<PyWeakrefReference>),
    /// The address, for a type without weak references, such as a list. A program that iterates such a
    /// loader in several epochs keeps it alive between them.
    Address(usize),
}

impl LoaderIdentity {
    pub(crate) fn new(loader: &Bound<'_, PyAny>) -> Self {
        match PyWeakrefReference::new(loader) {
            Ok(weak) => Self::Weak(weak.unbind()),
            Err(_) => Self::Address(loader.as_ptr().addr()),
        }
    }

    pub(crate) fn is(&self, loader: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Weak(weak) => weak
                .bind(loader.py())
                .upgrade()
                .is_some_and(|known| known.is(loader)),
            Self::Address(known) => *known == loader.as_ptr().addr(),
        }
    }
}
