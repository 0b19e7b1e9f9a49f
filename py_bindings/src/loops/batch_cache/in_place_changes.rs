//! Detects that the training loop changed a cached batch in place. Then drops it, and copies all later
//! batches.
//!
//! A replay must return each batch as the source returned it. The loop has containers of its own
//! ([`batch_copies`](super::batch_copies)), but shares the values in them with the cache. So a change of the
//! values (`images.div_(255)`) also changes the cached batch. `headspace/_caching/fingerprint.py` computes a
//! fingerprint of each batch, which shows the change.
//!
//! | when, outside timed steps | which batches are compared with their fingerprints |
//! |---|---|
//! | the loop requests the next batch | the batch that it received last, if that is cached |
//! | a window of cached batches begins | all |
//! | a window of cached batches has ended | all: a change means that replayed steps saw changed batches |
//!
//! A changed batch is dropped in the first two cases. From then on the cache copies the values of each batch
//! ([`InPlace::Copied`]), up to [`MAX_COPIED_BYTES`]. If the copies need more, the cache keeps no batch
//! ([`InPlace::TooLarge`]), and the verdict prints the reason instead of a number.

use headspace_agent::model::CacheFacts;
use headspace_agent::model::InPlace;
use pyo3::prelude::*;

use super::batch_copies::CachedBatch;
use super::{BatchCache, State};

/// Most bytes that copies of batches may need. Ten batches of 100 MB fit. A cache that needs much more could
/// end the user's run.
const MAX_COPIED_BYTES: u64 = 1 << 30;

impl BatchCache {
    /// Compares the batch that the loop received last with its fingerprint, when the loop requests the next
    /// one. A changed batch is dropped.
    pub(super) fn drop_last_if_changed(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock();
        let slot = state.unverified.take();
        let last = slot.and_then(|slot| state.batches.get(slot));
        let last = last.map(|cached| cached.clone_ref(py));
        drop(state);
        self.drop_changed_of(py, last)
    }

    /// Drops all changed batches, before a window of cached batches begins.
    pub(super) fn drop_changed(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared(py);
        self.drop_changed_of(py, shared)?;
        let mut state = self.lock();
        let left = state.batches.len();
        state.machine.keep_only(left);
        Ok(())
    }

    fn drop_changed_of(
        &self,
        py: Python<'_>,
        batches: impl IntoIterator<Item = CachedBatch>,
    ) -> PyResult<()> {
        let changed = self.changed_of(py, batches)?;
        if !changed.is_empty() {
            let dropped = self.lock().drop_changed(&changed);
            drop(dropped);
        }
        Ok(())
    }

    /// The facts of the cache for the records, with the number of batches that the loop changed while they
    /// were replayed. None without a batch. Called after a window of cached batches, and before a replay
    /// without end.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<Option<CacheFacts>> {
        let state = self.lock();
        if state.batches.is_empty() {
            return Ok((state.in_place == InPlace::TooLarge).then(|| state.facts()));
        }
        drop(state);
        let changed = self.changed_of(py, self.shared(py))?.len();
        let changed = u32::try_from(changed).unwrap_or(u32::MAX);
        let mut state = self.lock();
        state.mutated = state.mutated.max(changed);
        Ok(Some(state.facts()))
    }

    /// The batches whose values the loop may hold.
    fn shared(&self, py: Python<'_>) -> Vec<CachedBatch> {
        let state = self.lock();
        let shared = state.batches.iter().filter(|cached| cached.is_shared());
        shared.map(|cached| cached.clone_ref(py)).collect()
    }

    fn changed_of(
        &self,
        py: Python<'_>,
        batches: impl IntoIterator<Item = CachedBatch>,
    ) -> PyResult<Vec<CachedBatch>> {
        let mut changed = Vec::new();
        for cached in batches {
            if self.copier.is_changed(py, &cached)? {
                changed.push(cached);
            }
        }
        Ok(changed)
    }
}

impl State {
    /// Drops the changed batches and returns them. Later batches are copied.
    fn drop_changed(&mut self, changed: &[CachedBatch]) -> Vec<CachedBatch> {
        if self.in_place == InPlace::Never {
            self.in_place = InPlace::Copied;
        }
        self.keep_where(|cached| !changed.iter().any(|other| other.batch.is(&cached.batch)))
    }

    /// If the copies need more than [`MAX_COPIED_BYTES`], drops all batches and returns them. No batch is
    /// kept from then on.
    pub(super) fn drop_too_large(&mut self) -> Vec<CachedBatch> {
        if self.bytes().is_none_or(|bytes| bytes <= MAX_COPIED_BYTES) {
            return Vec::new();
        }
        self.in_place = InPlace::TooLarge;
        self.keep_where(|_| false)
    }
}
