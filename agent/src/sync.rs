//! Atomics, mutexes and condition variables: those of the standard library, or those of loom in a model.
//!
//! Code that shares data between threads takes these types from here, so that `make loom` can check it. Loom runs
//! a model once for each order in which its threads can interleave, and lets a load return each value that the
//! memory orderings permit. In every other build, this module only re-exports the standard library.
//!
//! Loom's types are larger than the words that they stand for. A word that the kernel (a futex) or another process
//! reads at its address stays a type of the standard library, or a model creates it in its own memory.

pub(crate) use std::sync::atomic::Ordering;

#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicU64 as OwnedU64, fence},
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::thread::yield_now;

#[cfg(not(all(test, loom)))]
pub(crate) use crate::lock::lock;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, loom))]
pub(crate) use self::model::{
    AtomicI64, AtomicU8, AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, OwnedU64, check,
    check_bounded, fence, lock, yield_now,
};

/// Whether this is a model. A model has small buffers, so that loom reaches all of their states.
pub(crate) const IN_MODEL: bool = cfg!(all(test, loom));
