//! The hand-off of batches to a loop that has a what-if. Its requests are changed as calls of a stage are.
//!
//! Copying a batch is not part of the step that is measured, except for `half`: there, the loader works during the copy.

use headspace_agent::recording::stage::{Setting, Switches};
use pyo3::prelude::*;

use crate::loops::source_iterator::{Next, SourceIterator};
use crate::stages::local_switch::{LocalSwitch, contain};

/// The hand-off of one loop.
pub(crate) struct HandOff(LocalSwitch);

/// What a request for a batch leads to.
pub(crate) struct HandedOver {
    pub(crate) next: Next,
    /// Whether the batch is a copy of an earlier one.
    pub(crate) is_repeated: bool,
}

impl HandOff {
    /// The hand-off of a loop whose what-if begins.
    pub(crate) fn new(switches: &'static Switches) -> Self {
        let hand_off = LocalSwitch::new(switches, &switches.hand_off);
        hand_off.allow_replacing();
        Self(hand_off)
    }

    /// A copy of an earlier batch, if each request gets one. Called before the request is timed.
    ///
    /// # Errors
    ///
    /// An interrupt of the program.
    pub(crate) fn copy_batch(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.0.word_of_call().map(Setting::decode) {
            Some(Setting::Replace { every: 1 }) => contain(|| self.0.replacement(py, 1)),
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
    ) -> PyResult<HandedOver> {
        let word = self.0.word_of_call().unwrap_or_default();
        match Setting::decode(word) {
            Setting::Replace { every } => {
                if may_repeat
                    && every > 1
                    && let Some(batch) = contain(|| self.0.replacement(py, every))?
                {
                    return Ok(HandedOver {
                        next: Next::Batch(batch),
                        is_repeated: true,
                    });
                }
                self.0.count_worked();
            }
            Setting::Delay { nanos } => self.0.delay(py, nanos),
            Setting::Release => self.0.release(word),
            Setting::Unchanged | Setting::Watch | Setting::Keep | Setting::Gate { .. } => {}
        }
        Ok(HandedOver {
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
        let Some(word) = self.0.word_of_call().filter(|_| self.0.is_due()) else {
            return Ok(());
        };
        match Setting::decode(word) {
            Setting::Watch | Setting::Keep | Setting::Replace { .. } => {
                contain(|| self.0.keep(py, word, batch))
            }
            _ => {
                self.0.mark_handled(word);
                Ok(())
            }
        }
    }
}
