//! A value in cache lines of its own.

use std::ops::{Deref, DerefMut};

/// A value that shares no cache line with other values. If two threads write to one line, each write first moves the line
/// to the core of its thread.
///
/// Processors also prefetch pairs of lines of 64 bytes (Intel's optimization manual, "spatial prefetcher"). So the
/// alignment is 128 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
