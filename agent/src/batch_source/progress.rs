//! Counts the batches of one iteration of a loader, and determines where the iteration ends.
//!
//! An epoch keeps the loader's length: schedules, progress bars and code for the last batch rely on
//! `len(loader)`. So a repeated batch replaces a live one, and the iteration ends after `len(loader)`
//! batches, as if the loop had been left there. The source's remaining batches are not delivered. If a
//! loader has no length, all batches of its source are delivered.

/// One iteration of a loader. Several may be active: loops nest, and threads share a loader.
#[derive(Debug, Clone, Default)]
pub struct EpochProgress {
    /// Number of batches in the iteration, if the loader has a length.
    length: Option<u64>,
    /// Delivered batches, live and cached.
    handed_out: u64,
    /// Delivered cached batches.
    replayed: u64,
    /// Whether the source is exhausted and no cached batches follow.
    pub(super) ended: bool,
}

impl EpochProgress {
    /// A new iteration. `length` is the loader's length, if the iteration must keep it.
    pub fn new(length: Option<u64>) -> Self {
        Self {
            length,
            ..Self::default()
        }
    }

    /// Counts a live batch.
    pub fn deliver(&mut self) {
        self.handed_out += 1;
    }

    /// Counts a cached batch. Returns the number of cached batches before it.
    pub fn replay(&mut self) -> u64 {
        self.handed_out += 1;
        self.replayed += 1;
        self.replayed - 1
    }

    /// Counts `batches` cached batches.
    pub fn replay_all(&mut self, batches: u64) {
        self.handed_out = self.handed_out.saturating_add(batches);
        self.replayed = self.replayed.saturating_add(batches);
    }

    /// Number of batches until `batches` are delivered; `u64::MAX` without a number.
    pub fn left_of(&self, batches: Option<u64>) -> u64 {
        batches.map_or(u64::MAX, |n| n.saturating_sub(self.handed_out))
    }

    /// The loader's length, if the iteration must keep it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Cached batches delivered so far.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Whether `batches` are delivered; false without a number.
    pub fn has_reached(&self, batches: Option<u64>) -> bool {
        batches.is_some_and(|n| self.handed_out >= n)
    }

    /// Whether it has as many batches as the loader's length. False without a length.
    pub fn has_all(&self) -> bool {
        self.has_reached(self.length)
    }

    /// Whether repeated batches replace live ones, so that it is [full](Self::is_full) at its length.
    pub fn may_become_full(&self) -> bool {
        self.replayed > 0 && self.length.is_some()
    }

    /// Whether repeated batches replaced live ones, and the length is reached. An iteration without
    /// repeated batches ends where its source ends, because a length may be a guess.
    pub fn is_full(&self) -> bool {
        self.replayed > 0 && self.has_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_batches_replace_live_ones_within_the_length() {
        let mut epoch = EpochProgress::new(Some(3));
        epoch.deliver();
        epoch.replay();
        assert!(!epoch.is_full());
        epoch.deliver();
        assert!(epoch.is_full());
    }

    #[test]
    fn a_source_longer_than_its_length_is_cut_only_with_repeated_batches() {
        let mut epoch = EpochProgress::new(Some(2));
        (0..5).for_each(|_| epoch.deliver());
        assert!(!epoch.is_full());
    }

    #[test]
    fn an_iteration_without_a_length_is_never_full() {
        let mut epoch = EpochProgress::new(None);
        (0..100).for_each(|_| _ = epoch.replay());
        assert!(!epoch.is_full());
    }
}
