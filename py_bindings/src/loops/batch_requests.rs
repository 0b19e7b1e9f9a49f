//! A loop's requests for batches during a what-if. They are changed as calls of a stage are.
//!
//! Copying a batch is not part of the step that is measured, except for `half`: there, the loader works during the copy.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use headspace_agent::lock::lock;
use headspace_agent::recording::stage::{Setting, Switches};
use pyo3::prelude::*;

use crate::interpreter::panics::contain;
use crate::loops::loader_identity::LoaderIdentity;
use crate::loops::source_iterator::{Next, SourceIterator};
use crate::stages::local_switch::LocalSwitch;

/// The requests of one loop.
pub(crate) struct BatchRequests {
    switch: LocalSwitch,
    /// The loader whose batches are kept.
    loader: Mutex<Option<LoaderIdentity>>,
    /// Whether epochs end at the loader's length.
    keeps_length: AtomicBool,
}

/// What a request leads to.
pub(crate) struct Requested {
    pub(crate) next: Next,
    /// Whether the batch is a copy of an earlier one.
    pub(crate) is_repeated: bool,
}

impl BatchRequests {
    /// The requests of a loop whose what-if begins.
    pub(crate) fn new(switches: &'static Switches, keep_data: bool) -> Self {
        let switch = LocalSwitch::new(switches, &switches.requests);
        if keep_data {
            switch.forbid_replacing();
        } else {
            switch.allow_replacing();
        }
        Self {
            switch,
            loader: Mutex::default(),
            keeps_length: AtomicBool::new(false),
        }
    }

    /// An epoch of `loader` begins, with this number of batches, if it keeps the loader's length. Batches of another loader
    /// are dropped.
    pub(crate) fn begin_epoch(&self, loader: &Bound<'_, PyAny>, length: Option<u64>) {
        self.keeps_length.store(length.is_some(), Ordering::Relaxed);
        let mut known = lock(&self.loader);
        let is_same = known.as_ref().is_some_and(|known| known.is(loader));
        let before = (!is_same).then(|| known.replace(LoaderIdentity::new(loader)));
        drop(known);
        if before.is_some() {
            self.switch.drop_results();
        }
    }

    /// Whether epochs end at the loader's length.
    pub(crate) fn keeps_length(&self) -> bool {
        self.keeps_length.load(Ordering::Relaxed)
    }

    /// A copy of an earlier batch, if each request gets one. Called before the request is timed.
    ///
    /// # Errors
    ///
    /// An interrupt of the program.
    pub(crate) fn copy_batch(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.switch.word_of_call().map(Setting::decode) {
            Some(Setting::Replace { every: 1 }) => contain(|| self.switch.replacement(py, 1)),
            _ => Ok(None),
        }
    }

    /// Requests a batch of the source, or returns an earlier one if `may_repeat`.
    ///
    /// # Errors
    ///
    /// An error of the source, and an interrupt of the program.
    pub(crate) fn request(
        &self,
        py: Python<'_>,
        source: &SourceIterator,
        may_repeat: bool,
    ) -> PyResult<Requested> {
        let word = self.switch.word_of_call().unwrap_or_default();
        match Setting::decode(word) {
            Setting::Replace { every } => {
                if may_repeat
                    && every > 1
                    && let Some(batch) = contain(|| self.switch.replacement(py, every))?
                {
                    return Ok(Requested {
                        next: Next::Batch(batch),
                        is_repeated: true,
                    });
                }
                self.switch.count_worked();
            }
            Setting::Delay { nanos } => self.switch.delay(py, nanos),
            Setting::Release => self.switch.release(word),
            Setting::Unchanged | Setting::Watch | Setting::Keep | Setting::Gate { .. } => {}
        }
        Ok(Requested {
            next: source.next(py)?,
            is_repeated: false,
        })
    }

    /// Keeps a batch of the source, if copies are needed. Called after the request is timed.
    ///
    /// # Errors
    ///
    /// An interrupt of the program.
    pub(crate) fn keep(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.switch.is_due() {
            return Ok(());
        }
        let Some(word) = self.switch.word_of_call() else {
            return Ok(());
        };
        match Setting::decode(word) {
            Setting::Watch | Setting::Keep | Setting::Replace { .. } => {
                contain(|| self.switch.keep(py, word, batch))
            }
            _ => {
                self.switch.mark_handled(word);
                Ok(())
            }
        }
    }
}
