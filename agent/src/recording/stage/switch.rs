//! Switches that change the calls of a stage in all processes at once, for what-ifs.
//!
//! The trainer writes one word per stage to memory that it shares with its workers. Each call reads that word, without
//! ordering: a change takes effect within a few calls. Each process caches the last word that it has handled, so an
//! unchanged call only compares two numbers.
//!
//! A change is valid only for a limited time, which the trainer extends at each request for a batch. So a stage does not
//! stay changed if the trainer is killed, or stops iterating.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use super::slot::SlotName;
use crate::model::stage::cut_name;
use crate::sync::{self, IN_MODEL};

#[cfg(all(test, loom))]
mod loom_tests;

/// Number of switches. Further stages cannot be changed.
pub const SWITCHES: usize = if IN_MODEL { 2 } else { 64 };

/// How often a process looks again for the name of an entry that another process has just claimed.
const WAITS_FOR_NAME: usize = if IN_MODEL { 1 } else { 100 };

/// The bits of a word: the setting, its amount, and a number that differs from one setting to the next.
const KIND_BITS: u32 = 4;
const AMOUNT_BITS: u32 = 40;
const AMOUNT: u64 = (1 << AMOUNT_BITS) - 1;

/// How calls of a stage behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// As without a switch.
    Unchanged,
    /// The same. Each call is counted in the switch, and the first results are kept.
    Watch,
    /// The same. The next results are kept.
    Keep,
    /// One of `every` calls returns a kept result, without work.
    Replace {
        /// 1: all calls. 2: every second call.
        every: u32,
    },
    /// At most `calls` calls are in progress. Further calls wait.
    Gate {
        /// At least 1.
        calls: u32,
    },
    /// A call waits before it begins.
    Delay {
        /// Mean delay in nanoseconds.
        nanos: u64,
    },
    /// As without a switch. Kept results are released.
    Release,
}

impl Setting {
    fn encode(self) -> u64 {
        let (kind, amount) = match self {
            Self::Unchanged => (0, 0),
            Self::Watch => (1, 0),
            Self::Keep => (2, 0),
            Self::Replace { every } => (3, u64::from(every)),
            Self::Gate { calls } => (4, u64::from(calls)),
            Self::Delay { nanos } => (5, nanos),
            Self::Release => (6, 0),
        };
        amount.min(AMOUNT) << KIND_BITS | kind
    }

    /// Whether calls take another time than usual.
    pub fn changes_calls(self) -> bool {
        matches!(
            self,
            Self::Replace { .. } | Self::Gate { .. } | Self::Delay { .. }
        )
    }

    /// The setting of a word. Words of a newer version change nothing.
    pub fn decode(word: u64) -> Self {
        let amount = word >> KIND_BITS & AMOUNT;
        let small = u32::try_from(amount).unwrap_or(u32::MAX).max(1);
        match word & ((1 << KIND_BITS) - 1) {
            1 => Self::Watch,
            2 => Self::Keep,
            3 => Self::Replace { every: small },
            4 => Self::Gate { calls: small },
            5 => Self::Delay { nanos: amount },
            6 => Self::Release,
            _ => Self::Unchanged,
        }
    }
}

/// The switch of one stage, and what its processes report. A free switch is all zeros.
#[repr(C)]
#[derive(Debug)]
pub struct Switch {
    /// 1 once a process has claimed it. The name follows at once.
    claimed: sync::AtomicU32,
    /// Name of the stage.
    name: SlotName,
    /// 1 if a call had a result that cannot be returned again, or if the program said so.
    pub not_replaceable: AtomicU32,
    /// 1 if its calls cannot be delayed, because they interleave on one thread.
    pub not_delayable: AtomicU32,
    word: sync::AtomicU64,
    /// Calls in progress that the switch has counted.
    pub active: AtomicU32,
    /// The highest of these numbers.
    pub most_active: AtomicU32,
    /// Calls that ended while the setting was [`Setting::Watch`], and their duration in nanoseconds.
    pub watched_calls: AtomicU64,
    /// See `watched_calls`.
    pub watched_ns: AtomicU64,
    /// Results that processes keep.
    pub kept: AtomicU64,
    /// Calls that returned a kept result.
    pub replaced_calls: AtomicU64,
    /// Calls that did their work although the setting was [`Setting::Replace`].
    pub worked_calls: AtomicU64,
    /// Calls that began although the gate was closed, because they had waited too long.
    pub timed_out_calls: AtomicU64,
    /// The word of a gate that is open for the rest of its window, because a call waited too long.
    opened_gate: AtomicU64,
}

impl Switch {
    /// The word that says how calls behave.
    #[inline]
    pub fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// Changes how calls behave. The new word differs from the last one, also for an equal setting.
    pub fn set(&self, setting: Setting) {
        let number = (self.word() >> (KIND_BITS + AMOUNT_BITS)).wrapping_add(1);
        let word = number << (KIND_BITS + AMOUNT_BITS) | setting.encode();
        // Permits that a killed process holds become free.
        self.active.store(0, Ordering::Relaxed);
        self.word.store(word, Ordering::Relaxed);
        let _ = futex::wake(&self.active, futex::Flags::empty(), i32::MAX.unsigned_abs());
    }

    /// Name of the stage. `None` if the switch is free.
    pub fn name(&self) -> Option<String> {
        self.name.get()
    }

    /// Counts a call that begins.
    pub fn begin(&self) {
        let active = self.active.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_active.fetch_max(active, Ordering::Relaxed);
    }

    /// Counts a call that begins, if fewer than `limit` calls are in progress. Otherwise returns their number.
    ///
    /// # Errors
    ///
    /// The number of calls in progress, if there is no place.
    pub fn begin_below(&self, limit: u32) -> Result<(), u32> {
        let below = |active| (active < limit).then_some(active + 1);
        (self.active)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, below)
            .map(drop)
    }

    /// Waits until the number of calls in progress is no longer `active`, or the setting changes, for some time at most.
    pub fn wait_while(&self, active: u32, at_most: Duration) {
        let timeout = Timespec::try_from(at_most).ok();
        // An interrupt ends the wait. The caller looks again.
        let _ = futex::wait(
            &self.active,
            futex::Flags::empty(),
            active,
            timeout.as_ref(),
        );
    }

    /// Counts a call that ends, if the setting is still that of `word`, under which it began.
    pub fn end(&self, word: u64) {
        if self.word() == word {
            let less = |active: u32| active.checked_sub(1);
            let _ = (self.active).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// [`end`](Self::end), and lets one call go on that waits at the gate.
    pub fn end_at_gate(&self, word: u64) {
        self.end(word);
        let _ = futex::wake(&self.active, futex::Flags::empty(), 1);
    }

    /// Opens the gate of `word` for the rest of its window.
    pub fn open_gate(&self, word: u64) {
        self.timed_out_calls.fetch_add(1, Ordering::Relaxed);
        self.opened_gate.store(word, Ordering::Relaxed);
    }

    /// Whether the gate of `word` was opened.
    pub fn is_open_gate(&self, word: u64) -> bool {
        self.opened_gate.load(Ordering::Relaxed) == word
    }

    /// Sets what was counted during the warm-up to zero.
    pub fn reset_counts(&self) {
        self.most_active.store(0, Ordering::Relaxed);
        for counter in [&self.watched_calls, &self.watched_ns, &self.kept] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// The switches of a trainer: of its loop's requests for batches, and of the stages, in the order in which they were first
/// called. Empty ones are all zeros.
#[repr(C)]
#[derive(Debug)]
pub struct Switches {
    /// The word of a switch that is claimed.
    first_word: sync::AtomicU64,
    /// Time until which changes are valid, in nanoseconds of the system's monotonic clock.
    valid_until_ns: AtomicU64,
    /// Of the loop's requests. It has no name.
    pub requests: Switch,
    by_stage: [Switch; SWITCHES],
}

impl Switches {
    /// The switch of that stage. A new stage claims a free one. `None` if there is none.
    pub fn claim(&self, name: &str) -> Option<&Switch> {
        let name = cut_name(name);
        for switch in &self.by_stage {
            let claimed = &switch.claimed;
            let is_new = claimed
                .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
            if is_new {
                self.begin(switch, name);
                return Some(switch);
            }
            // The process that claimed it may have been killed before it wrote the name.
            let known = (0..WAITS_FOR_NAME).find_map(|_| {
                let known = switch.name();
                if known.is_none() {
                    sync::yield_now();
                }
                known
            });
            if known.is_some_and(|known| known == name) {
                return Some(switch);
            }
        }
        None
    }

    /// Shows a claimed switch to the trainer, with the setting that it has for all stages.
    fn begin(&self, switch: &Switch, name: &str) {
        let word = self.first_word.load(Ordering::Relaxed);
        switch.word.store(word, Ordering::Relaxed);
        switch.name.set(name);
        // The trainer may change all stages meanwhile. Of these two fences, one is first: either the trainer sees the name
        // and sets the word, or this load returns the new setting. A word that the trainer has set is left as it is.
        sync::fence(Ordering::SeqCst);
        let now = self.first_word.load(Ordering::Relaxed);
        if now != word {
            let _ = (switch.word).compare_exchange(word, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Extends the time in which changes are valid.
    pub fn extend(&self, valid_until_ns: u64) {
        self.valid_until_ns.store(valid_until_ns, Ordering::Relaxed);
    }

    /// Whether changes are valid at this time of the system's monotonic clock.
    pub fn is_valid_at(&self, now_ns: u64) -> bool {
        now_ns <= self.valid_until_ns.load(Ordering::Relaxed)
    }

    /// Changes the requests and all stages, also those that are first called later.
    pub fn set_all(&self, setting: Setting) {
        self.first_word.store(setting.encode(), Ordering::Relaxed);
        // See `begin`.
        sync::fence(Ordering::SeqCst);
        self.requests.set(setting);
        for (_, switch) in self.of_stages() {
            switch.set(setting);
        }
    }

    /// The switches in use: of the requests and of the stages.
    pub fn in_use(&self) -> impl Iterator<Item = &Switch> {
        std::iter::once(&self.requests).chain(self.claimed())
    }

    fn claimed(&self) -> impl Iterator<Item = &Switch> {
        let is_claimed = |switch: &&Switch| switch.claimed.load(Ordering::Relaxed) == 1;
        self.by_stage.iter().take_while(is_claimed)
    }

    /// The switches of the stages, with their names, in the order of the first calls.
    pub fn of_stages(&self) -> impl Iterator<Item = (String, &Switch)> {
        self.claimed()
            .filter_map(|switch| Some((switch.name()?, switch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches() -> Box<Switches> {
        // SAFETY: all fields are atomic integers, for which zeros are valid.
        unsafe { Box::<Switches>::new_zeroed().assume_init() }
    }

    #[test]
    fn a_setting_is_read_as_it_was_set_and_two_words_differ() {
        let switches = switches();
        let switch = switches.claim("decode").unwrap();
        assert_eq!(Setting::decode(switch.word()), Setting::Unchanged);

        let mut words = vec![switch.word()];
        for setting in [
            Setting::Watch,
            Setting::Keep,
            Setting::Keep,
            Setting::Replace { every: 2 },
            Setting::Gate { calls: 3 },
            Setting::Delay { nanos: 5_000_000 },
            Setting::Release,
        ] {
            switch.set(setting);
            assert_eq!(Setting::decode(switch.word()), setting);
            assert!(!words.contains(&switch.word()));
            words.push(switch.word());
        }
    }

    #[test]
    fn each_stage_has_one_switch_in_the_order_of_the_first_calls() {
        let switches = switches();
        for name in ["read", "decode", "read"] {
            switches.claim(name).unwrap();
        }

        let names: Vec<String> = switches.of_stages().map(|(name, _)| name).collect();
        assert_eq!(names, ["read", "decode"]);
    }

    #[test]
    fn a_stage_that_is_first_called_later_has_the_setting_of_all() {
        let switches = switches();
        let read = switches.claim("read").unwrap();
        switches.set_all(Setting::Watch);
        let decode = switches.claim("decode").unwrap();
        for switch in [read, decode] {
            assert_eq!(Setting::decode(switch.word()), Setting::Watch);
        }
    }

    #[test]
    fn a_call_at_a_gate_goes_on_when_another_one_ends_or_the_setting_changes() {
        let switches = switches();
        let switch = switches.claim("decode").unwrap();
        let long = Duration::from_secs(60);
        for free in [
            |switch: &Switch| switch.end_at_gate(switch.word()),
            |switch: &Switch| switch.set(Setting::Keep),
        ] {
            switch.set(Setting::Gate { calls: 1 });
            switch.begin_below(1).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while let Err(active) = switch.begin_below(1) {
                        switch.wait_while(active, long);
                    }
                });
                free(switch);
            });
            assert_eq!(switch.active.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn a_stage_without_a_free_switch_is_not_changed() {
        let switches = switches();
        for number in 0..SWITCHES {
            assert!(switches.claim(&number.to_string()).is_some());
        }
        assert!(switches.claim("one more").is_none());
        assert!(switches.claim("0").is_some());
    }

    #[test]
    fn a_gate_admits_its_number_of_calls_and_a_new_setting_frees_lost_places() {
        let switches = switches();
        let switch = switches.claim("decode").unwrap();
        switch.set(Setting::Gate { calls: 2 });
        assert_eq!(switch.begin_below(2), Ok(()));
        assert_eq!(switch.begin_below(2), Ok(()));
        assert_eq!(switch.begin_below(2), Err(2));
        let before = switch.word();
        switch.end(before);
        assert_eq!(switch.begin_below(2), Ok(()));

        switch.set(Setting::Gate { calls: 2 });
        assert_eq!(switch.begin_below(2), Ok(()));
        // A permit of the window before frees no place in this one.
        switch.end(before);
        assert_eq!(switch.begin_below(2), Ok(()));
        assert_eq!(switch.begin_below(2), Err(2));
    }
}
