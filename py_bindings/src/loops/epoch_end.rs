//! Where an epoch ends, and who must know if that is before the end of its source.

use std::sync::Mutex;

use headspace_agent::batch_source::EpochProgress;
use pyo3::prelude::*;

use crate::interpreter::calls::call_method;

/// How far one iteration has come. With a batch cache, locked only while the cache's own lock is held, and as briefly.
pub(crate) type Progress = Mutex<EpochProgress>;

/// The end of an epoch in which repeated batches may replace those of the source.
#[derive(Default)]
pub(crate) struct EpochEnd {
    /// Batches of the epoch, if it keeps the loader's length.
    pub(crate) length: Option<u64>,
    /// If the epoch ends before its source, called twice: with False as its last batch is returned, and with
    /// True as it ends.
    pub(crate) on_cut: Option<Py<PyAny>>,
}

/// The loader itself, if `loader` stands for another object, and the end of its next epoch. `may_be_cut`: whether the
/// source may have batches left at the end.
///
/// # Errors
///
/// An interrupt of the program.
pub(crate) fn find_epoch_end<'py>(
    loader: &Bound<'py, PyAny>,
    keeps_length: bool,
    may_be_cut: bool,
) -> PyResult<(Bound<'py, PyAny>, EpochEnd)> {
    let epochs = loader.py().import("headspace._loops.epochs")?;
    let described = call_method(
        &epochs,
        "describe_epoch",
        (loader, keeps_length, may_be_cut),
    )?;
    let (loader, length, on_cut) = described.extract()?;
    Ok((loader, EpochEnd { length, on_cut }))
}
