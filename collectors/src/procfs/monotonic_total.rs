//! Keeps a total that never decreases, from a kernel counter that may decrease.
//!
//! 32-bit counters wrap (a disk's milliseconds after 49 days). Counters also restart when their object
//! is created again (an interface, a control group).

use std::ops::RangeInclusive;

/// A counter that drops from this range to a value below it is a 32-bit counter that has wrapped.
const UPPER_HALF: RangeInclusive<u64> = 1 << 31..=u32::MAX as u64;

/// Follows one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carry {
    total: u64,
    last: u64,
}

impl Carry {
    /// Includes everything that the counter has counted so far.
    pub(crate) fn from_start(raw: u64) -> Self {
        Self {
            total: raw,
            last: raw,
        }
    }

    /// Includes only what the counter counts from now on.
    pub(crate) fn from_now(raw: u64) -> Self {
        Self {
            total: 0,
            last: raw,
        }
    }

    /// The total, given the counter's current value `raw`.
    pub(crate) fn follow(&mut self, raw: u64) -> u64 {
        let more = match raw.checked_sub(self.last) {
            Some(more) => more,
            None if UPPER_HALF.contains(&self.last) && raw < *UPPER_HALF.start() => {
                raw + (1 << 32) - self.last
            }
            // The counter restarted.
            None => raw,
        };
        self.last = raw;
        self.total = self.total.saturating_add(more);
        self.total
    }

    /// Keeps the total, and from now on follows another counter, whose current value is `raw`.
    pub(crate) fn switch_to(&mut self, raw: u64) {
        self.last = raw;
    }

    /// The total as of the last reading.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_total_continues_when_a_32_bit_counter_wraps() {
        let mut carry = Carry::from_start(u64::from(u32::MAX) - 9);

        assert_eq!(carry.follow(20), (1 << 32) + 20);
    }

    #[test]
    fn a_restarted_counter_adds_its_new_count() {
        let mut carry = Carry::from_start(1_000);

        assert_eq!(carry.follow(30), 1_030);
        assert_eq!(carry.follow(35), 1_035);
    }

    #[test]
    fn from_now_and_switch_to_ignore_earlier_counts() {
        let mut carry = Carry::from_now(500);
        assert_eq!(carry.follow(510), 10);

        carry.switch_to(7);

        assert_eq!(carry.follow(8), 11);
        assert_eq!(carry.total(), 11);
    }

    proptest! {
        #[test]
        fn the_total_never_decreases(raws in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut carry = Carry::from_start(raws[0]);
            let mut before = carry.total();
            for raw in raws {
                let now = carry.follow(raw);
                prop_assert!(now >= before);
                before = now;
            }
        }
    }
}
