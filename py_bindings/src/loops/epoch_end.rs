//! Where an epoch ends, and who must know if that is before the end of its source.

use pyo3::prelude::*;

/// The end of an epoch in which repeated batches may replace those of the source.
#[derive(Default)]
pub(crate) struct EpochEnd {
    /// Batches of the epoch, if it keeps the loader's length.
    pub(crate) length: Option<u64>,
    /// If the epoch ends before its source, called twice: with False as its last batch is returned, and with
    /// True as it ends.
    pub(crate) on_cut: Option<Py<PyAny>>,
}

impl EpochEnd {
    /// The end of the next epoch of `loader`, and the loader itself. `may_be_cut`: whether the source may have batches
    /// left at the end.
    ///
    /// # Errors
    ///
    /// An interrupt of the program.
    pub(crate) fn of<'py>(
        loader: &Bound<'py, PyAny>,
        keeps_length: bool,
        may_be_cut: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Self)> {
        let epochs = loader.py().import("headspace._loops.epochs")?;
        let described =
            epochs.call_method1("describe_epoch", (loader, keeps_length, may_be_cut))?;
        let (loader, length, on_cut) = described.extract()?;
        Ok((loader, Self { length, on_cut }))
    }
}
