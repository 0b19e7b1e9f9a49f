//! The switch of a stage, or of a loop's requests, as one process uses it: the results that it keeps, and how long its calls wait.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::port::clock::monotonic_ns;
use headspace_agent::recording::stage::{Setting, Switch, Switches};
use pyo3::prelude::*;

use crate::interpreter::calls::call_method;
use crate::interpreter::interrupts::unless_interrupted;
use crate::stages::loop_body::is_in_loop_body;

/// Results of a stage that a process keeps.
const KEPT_RESULTS: usize = 8;
/// A process keeps fewer of them if they need more memory than this, in bytes.
const KEPT_BYTES: u64 = 64 << 20;
/// Fewest results that differ.
const LEAST_RESULTS: usize = 2;

/// Longest time that a call waits at a gate. Avoids a deadlock if a call that holds a permit depends on the waiting call.
const GATE_TIMEOUT: Duration = Duration::from_secs(2);
/// A waiting call checks the gate again after this time, because a killed process wakes nobody.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The switch of a stage, or of a loop's requests for batches, in one process.
pub(crate) struct LocalSwitch {
    switches: &'static Switches,
    switch: &'static Switch,
    /// The last word that is handled: there is nothing more to do for it.
    handled: AtomicU64,
    /// Whether any result is returned again as it is, because the program says so.
    trusts_results: AtomicBool,
    /// Number of calls that were changed.
    changed: AtomicU64,
    results: Mutex<KeptResults>,
}

#[derive(Default)]
struct KeptResults {
    /// The word for which they are kept.
    word: u64,
    results: Vec<Py<PyAny>>,
    bytes: u64,
    /// The kind of the first result. All results must be of the same kind.
    kind: Option<String>,
}

impl LocalSwitch {
    /// The switch of the stage with this name. None if there is no free one.
    pub(crate) fn claim(switches: &'static Switches, name: &str) -> Option<Self> {
        Some(Self::new(switches, switches.claim(name)?))
    }

    /// One of these switches.
    pub(crate) fn new(switches: &'static Switches, switch: &'static Switch) -> Self {
        Self {
            switches,
            switch,
            handled: AtomicU64::new(0),
            trusts_results: AtomicBool::new(false),
            changed: AtomicU64::new(0),
            results: Mutex::default(),
        }
    }

    /// Whether a call must look at the switch. This is all that an unchanged call costs.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.switch.word() != self.handled.load(Ordering::Relaxed)
    }

    /// Counts a call that did its work although the switch replaces results.
    pub(crate) fn count_worked(&self) {
        self.switch.worked_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call of a watched stage that begins.
    pub(crate) fn begin_watched(&self) {
        self.switch.begin();
    }

    /// Calls of the stage interleave on one thread, so they cannot be delayed.
    pub(crate) fn forbid_delaying(&self) {
        self.switch.not_delayable.store(1, Ordering::Relaxed);
    }

    /// Whether calls take another time than usual.
    pub(crate) fn is_changed(&self) -> bool {
        Setting::decode(self.switch.word()).changes_calls()
    }

    /// Sets what the program says about its results.
    pub(crate) fn set_replayable(&self, replayable: Option<bool>) {
        self.trusts_results
            .store(replayable == Some(true), Ordering::Relaxed);
        if replayable == Some(false) {
            self.forbid_replacing();
        }
    }

    /// Results can be returned again, until one is found that cannot.
    pub(crate) fn allow_replacing(&self) {
        self.switch.not_replaceable.store(0, Ordering::Relaxed);
    }

    /// Results of the stage cannot be returned again.
    pub(crate) fn forbid_replacing(&self) {
        self.switch.not_replaceable.store(1, Ordering::Relaxed);
    }

    fn is_replaceable(&self) -> bool {
        self.switch.not_replaceable.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn mark_handled(&self, word: u64) {
        self.handled.store(word, Ordering::Relaxed);
    }

    /// A copy of a kept result, if this call is one of those that do no work.
    pub(crate) fn replacement(&self, py: Python<'_>, every: u32) -> PyResult<Option<Py<PyAny>>> {
        let number = self.changed.fetch_add(1, Ordering::Relaxed);
        if !self.is_replaceable() || !number.is_multiple_of(u64::from(every)) {
            return Ok(None);
        }
        let kept = {
            let kept = lock(&self.results);
            let count = kept.results.len() as u64;
            if kept.results.len() < LEAST_RESULTS {
                return Ok(None);
            }
            let at = (number / u64::from(every)).checked_rem(count);
            at.and_then(|at| kept.results.get(usize::try_from(at).ok()?))
                .map(|result| result.clone_ref(py))
        };
        let Some(kept) = kept else { return Ok(None) };
        let copied = if self.trusts_results.load(Ordering::Relaxed) {
            Some(kept.into_bound(py))
        } else {
            let copied = module(py).and_then(|module| call_method(&module, "copy_kept", (kept,)));
            unless_interrupted(py, copied)?
        };
        if copied.is_some() {
            self.switch.replaced_calls.fetch_add(1, Ordering::Relaxed);
        }
        Ok(copied.map(Bound::unbind))
    }

    /// Keeps the result of a call, if there is room.
    pub(crate) fn keep(
        &self,
        py: Python<'_>,
        word: u64,
        result: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let setting = Setting::decode(word);
        let done = |local: &Self| {
            // Each call of a watched or replaced stage must look at the switch.
            if setting == Setting::Keep {
                local.mark_handled(word);
            }
        };
        let is_needed = || match setting {
            // A process that began in this window keeps its first results.
            Setting::Replace { .. } => !self.has_older_results(word),
            _ => true,
        };
        if !self.is_replaceable() || self.has_enough(word) || !is_needed() {
            done(self);
            return Ok(());
        }
        let copied = if self.trusts_results.load(Ordering::Relaxed) {
            Some((result.clone().unbind(), 0, String::new()))
        } else {
            let copied =
                module(py).and_then(|module| call_method(&module, "copy_to_keep", (result,)));
            let copied =
                copied.and_then(|copied| copied.extract::<Option<(Py<PyAny>, u64, String)>>());
            unless_interrupted(py, copied)?.flatten()
        };
        let Some((copied, bytes, kind)) = copied else {
            self.forbid_replacing();
            done(self);
            return Ok(());
        };
        let mut kept = lock(&self.results);
        if kept.kind.get_or_insert_with(|| kind.clone()) != &kind {
            // Several functions share the stage, or a function returns values of several types.
            drop(kept);
            self.forbid_replacing();
            done(self);
            return Ok(());
        }
        let mut dropped = Vec::new();
        if kept.word != word {
            dropped = std::mem::take(&mut kept.results);
            kept.bytes = 0;
            kept.word = word;
        }
        kept.results.push(copied);
        kept.bytes += bytes;
        drop(kept);
        drop(dropped);
        self.switch.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn has_enough(&self, word: u64) -> bool {
        let kept = lock(&self.results);
        let count = kept.results.len();
        kept.word == word
            && (count >= KEPT_RESULTS || count >= LEAST_RESULTS && kept.bytes >= KEPT_BYTES)
    }

    /// Whether it keeps results that it has kept for another word.
    fn has_older_results(&self, word: u64) -> bool {
        let kept = lock(&self.results);
        kept.word != word && !kept.results.is_empty()
    }

    pub(crate) fn release(&self, word: u64) {
        self.drop_results();
        self.mark_handled(word);
    }

    /// Drops all kept results.
    pub(crate) fn drop_results(&self) {
        let dropped = std::mem::take(&mut *lock(&self.results));
        drop(dropped);
    }

    /// Waits for a random time with this mean, without the interpreter lock.
    pub(crate) fn delay(&self, py: Python<'_>, mean_nanos: u64) {
        let number = self.changed.fetch_add(1, Ordering::Relaxed);
        py.detach(|| std::thread::sleep(random_delay(mean_nanos, number)));
    }

    /// Waits for a permit of a gate. `None` if the gate is open, or its window has ended.
    pub(crate) fn wait_at_gate(&self, word: u64, calls: u32) -> Option<Permit> {
        let begun = Instant::now();
        loop {
            if self.switch.word() != word || self.switch.is_open_gate(word) {
                return None;
            }
            match self.switch.begin_below(calls) {
                Ok(()) => {
                    return Some(Permit {
                        switch: self.switch,
                        word,
                    });
                }
                Err(active) if begun.elapsed() < GATE_TIMEOUT => {
                    self.switch.wait_while(active, RECHECK_INTERVAL);
                }
                Err(_) => {
                    self.switch.open_gate(word);
                    return None;
                }
            }
        }
    }

    /// Counts a call of a watched stage.
    pub(crate) fn watched(&self, word: u64, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.switch.watched_ns.fetch_add(nanos, Ordering::Relaxed);
        self.switch.watched_calls.fetch_add(1, Ordering::Relaxed);
        self.switch.end(word);
    }

    /// The word that says how this call behaves. `None` if it is not changed: it is part of the loop's body, or the
    /// trainer has stopped iterating.
    pub(crate) fn word_of_call(&self) -> Option<u64> {
        let word = self.switch.word();
        let is_valid = || self.switches.is_valid_at(monotonic_ns());
        let changes = Setting::decode(word).changes_calls();
        (!is_in_loop_body() && (!changes || is_valid())).then_some(word)
    }
}

/// The module that copies results.
fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("headspace._caching.kept_results")
}

/// A delay from 0 to twice the mean, so that it does not fall into step with the pipeline (splitmix64: Steele, Lea and
/// Flood, OOPSLA 2014).
fn random_delay(mean_nanos: u64, number: u64) -> Duration {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 31;
    let most = mean_nanos.saturating_mul(2).saturating_add(1);
    Duration::from_nanos(mixed % most)
}

/// A permit of a gate. Dropping it lets another call go on.
pub(crate) struct Permit {
    switch: &'static Switch,
    word: u64,
}

impl Permit {
    /// Whether the gate's window has not ended.
    pub(crate) fn is_valid(&self) -> bool {
        self.switch.word() == self.word
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.switch.end_at_gate(self.word);
    }
}
