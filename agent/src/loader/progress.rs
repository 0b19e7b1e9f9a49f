//! How far one iteration of a loader has come, and where it must end.
//!
//! A loader with a length keeps it: schedules, progress bars and arithmetic on the last batch rely on
//! `len(loader)`. So a repeated batch takes the place of a live one, and the iteration ends after as
//! many batches as the length says, as if the loop had been left there. What the source still holds is
//! let go. A loader without a length has no such contract: all that its source holds is delivered.

/// One iteration of a loader. Several may go on at once: loops nest, and threads share a loader.
#[derive(Debug, Clone, Default)]
pub struct EpochProgress {
    /// Batches the iteration holds where its loader says so.
    length: Option<u64>,
    /// Batches handed out, live and cached together.
    handed_out: u64,
    /// Cached batches handed out.
    replayed: u64,
    /// Whether it is over, whatever the counts say.
    pub(super) ended: bool,
}

impl EpochProgress {
    /// An iteration that begins. `length` is the loader's, where it has one that must be kept.
    #[must_use]
    pub fn new(length: Option<u64>) -> Self {
        Self {
            length,
            ..Self::default()
        }
    }

    /// A live batch is handed out.
    pub fn deliver(&mut self) {
        self.handed_out += 1;
    }

    /// A cached batch is handed out. Returns how many were before it.
    pub fn replay(&mut self) -> u64 {
        self.handed_out += 1;
        self.replayed += 1;
        self.replayed - 1
    }

    /// `batches` cached batches are handed out, one after another.
    pub fn replay_all(&mut self, batches: u64) {
        self.handed_out = self.handed_out.saturating_add(batches);
        self.replayed = self.replayed.saturating_add(batches);
    }

    /// Batches left until `batches` were handed out; `u64::MAX` without a number.
    #[must_use]
    pub fn left_of(&self, batches: Option<u64>) -> u64 {
        batches.map_or(u64::MAX, |n| n.saturating_sub(self.handed_out))
    }

    /// The loader's length, where it must be kept.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Cached batches handed out so far.
    #[must_use]
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Whether `batches` were handed out; never without a number.
    #[must_use]
    pub fn has_reached(&self, batches: Option<u64>) -> bool {
        batches.is_some_and(|n| self.handed_out >= n)
    }

    /// Whether repeated batches took the place of live ones, and no batch is left to hand out. An
    /// iteration without repeated batches ends where its source ends: a length may be a guess.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.replayed > 0 && self.has_reached(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_batches_take_the_place_of_live_ones_within_the_length() {
        let mut epoch = EpochProgress::new(Some(3));
        epoch.deliver();
        epoch.replay();
        assert!(!epoch.is_full());
        epoch.deliver();
        assert!(epoch.is_full());
    }

    #[test]
    fn a_source_that_holds_more_than_its_length_says_is_not_cut_without_a_repeated_batch() {
        let mut epoch = EpochProgress::new(Some(2));
        (0..5).for_each(|_| epoch.deliver());
        assert!(!epoch.is_full());
    }

    #[test]
    fn without_a_length_nothing_is_let_go() {
        let mut epoch = EpochProgress::new(None);
        (0..100).for_each(|_| _ = epoch.replay());
        assert!(!epoch.is_full());
    }
}
