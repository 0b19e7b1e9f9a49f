//! Reads each source as a session does, and measures the time.
//!
//! Sources that the tick reads are read here in rounds, as a tick does. Sources with their own thread
//! get one here too, and a deadline: a driver that hangs affects only its own line.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use headspace_agent::model::Reading;
use headspace_agent::model::record::{SourceRecord, SourceState};
use headspace_agent::port::catch_panics::contain;
use headspace_agent::port::clock::thread_cpu_time;
use headspace_agent::port::{CollectError, Collector, Pace};
use headspace_agent::sampling::background_source::rest;
use headspace_collectors::catalog::Entry;

/// The default interval of a session.
const INTERVAL: Duration = Duration::from_secs(1);

/// A source counts as disabled after this many consecutive transient failures.
const TRIES: usize = 3;

/// How long and how often to read.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Number of ticks.
    pub(super) rounds: usize,
    /// Pause between two ticks.
    pub(super) pause: Duration,
    /// Maximum number of reads of a source with its own thread.
    pub(super) reads: usize,
    /// How long such a source is read after its first answer.
    pub(super) window: Duration,
    /// Total time that such sources have to answer.
    pub(super) deadline: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            rounds: 31,
            pause: Duration::from_millis(50),
            reads: 5,
            window: Duration::from_millis(1500),
            deadline: Duration::from_secs(5),
        }
    }
}

/// A source and its results.
pub(super) struct Examined {
    pub(super) record: SourceRecord,
    /// Median time that a tick needs to read it, in microseconds; `None` if no tick reads it.
    pub(super) tick_us: Option<f64>,
    /// CPU time per second on threads other than the tick's, in microseconds; `None` if it has no
    /// thread.
    pub(super) own_cpu_us_per_s: Option<f64>,
}

/// Reads every source that opened.
pub(super) fn examine(entries: Vec<Entry>, patience: Patience) -> Vec<Examined> {
    let (answers, answered) = channel();
    let begin = Instant::now();
    let mut examined = Vec::with_capacity(entries.len());
    let (mut inline, mut apart) = (Vec::new(), Vec::new());
    for (index, entry) in entries.into_iter().enumerate() {
        examined.push(Examined {
            record: entry.to_record(),
            tick_us: None,
            own_cpu_us_per_s: None,
        });
        let Ok(source) = entry.opened else { continue };
        match source.pace() {
            Pace::Tick => inline.push(Inline::new(index, source)),
            Pace::Background(pace) => {
                let answers = answers.clone();
                let cpu_rest = source.cpu_rest();
                let work = move || attend(index, source, pace, patience, &answers);
                if thread::Builder::new().spawn(work).is_ok() {
                    apart.push(Apart {
                        index,
                        pace,
                        cpu_rest,
                        ..Apart::default()
                    });
                } else {
                    let reason = "the system cannot create a thread for it".to_owned();
                    switch_off(&mut examined[index], reason, None);
                }
            }
        }
    }
    drop(answers);
    let cpu_before: Vec<_> = inline.iter().map(|one| one.source.cpu_time()).collect();
    let ticking = Instant::now();
    for round in 0..patience.rounds {
        if round > 0 {
            thread::sleep(patience.pause);
        }
        inline.iter_mut().for_each(Inline::read);
    }
    let seconds = ticking.elapsed().as_secs_f64();
    for (one, before) in inline.into_iter().zip(cpu_before) {
        let used = one.source.cpu_time().saturating_sub(before);
        let found = &mut examined[one.index];
        if used > Duration::ZERO {
            found.own_cpu_us_per_s = Some(micros(used) / seconds);
        }
        found.tick_us = median(&one.took_us);
        one.outcome.apply(found);
    }
    let left = patience.deadline.saturating_sub(begin.elapsed());
    gather(&mut apart, &answered, left);
    for one in apart {
        let index = one.index;
        one.apply(&mut examined[index], patience.deadline);
    }
    examined
}

/// The state of reading a source.
#[derive(Default)]
struct Outcome {
    read: bool,
    /// Number of consecutive failures before the first success.
    failures: usize,
    /// Why it is disabled.
    error: Option<CollectError>,
}

impl Outcome {
    fn add(&mut self, result: Result<(), CollectError>) {
        match result {
            Ok(()) => {
                self.read = true;
                self.error = None;
            }
            // It was read before, so a session would continue.
            Err(CollectError::Transient(_)) if self.read => {}
            Err(error) => {
                self.failures += 1;
                self.error = Some(error);
            }
        }
    }

    /// Whether another read would add no information.
    fn is_final(&self) -> bool {
        match self.error {
            Some(CollectError::Unsupported { .. }) => true,
            Some(CollectError::Transient(_)) => self.failures >= TRIES,
            None => false,
        }
    }

    fn apply(self, found: &mut Examined) {
        match self.error {
            Some(CollectError::Unsupported { reason, remedy }) => switch_off(found, reason, remedy),
            Some(CollectError::Transient(reason)) => switch_off(found, reason, None),
            None => {}
        }
    }
}

/// Marks a source as disabled that opened but returns no readings.
fn switch_off(found: &mut Examined, reason: String, remedy: Option<String>) {
    found.record.state = SourceState::Off;
    found.record.reason = Some(reason);
    found.record.remedy = remedy;
    found.tick_us = None;
    found.own_cpu_us_per_s = None;
}

/// A source that the tick reads.
struct Inline {
    index: usize,
    source: Box<dyn Collector>,
    outcome: Outcome,
    readings: Vec<Reading>,
    took_us: Vec<f64>,
    begin: Instant,
}

impl Inline {
    fn new(index: usize, source: Box<dyn Collector>) -> Self {
        Self {
            index,
            source,
            outcome: Outcome::default(),
            readings: Vec::new(),
            took_us: Vec::new(),
            begin: Instant::now(),
        }
    }

    fn read(&mut self) {
        if self.outcome.is_final() {
            return;
        }
        let begin = Instant::now();
        let result = collect(&mut *self.source, begin - self.begin, &mut self.readings);
        let took = begin.elapsed();
        if result.is_ok() {
            self.took_us.push(micros(took));
        }
        self.outcome.add(result);
    }
}

/// One read of a source on its own thread.
struct Read {
    index: usize,
    result: Result<(), CollectError>,
    took: Duration,
    cpu: Duration,
    last: bool,
}

/// A source on its own thread, with its answers so far.
#[derive(Default)]
struct Apart {
    index: usize,
    pace: Duration,
    cpu_rest: u32,
    outcome: Outcome,
    done: bool,
    took_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Apart {
    fn add(&mut self, read: Read) {
        self.done |= read.last;
        if read.result.is_ok() {
            self.took_us.push(micros(read.took));
            self.cpu_us.push(micros(read.cpu));
        }
        self.outcome.add(read.result);
    }

    fn apply(self, found: &mut Examined, deadline: Duration) {
        if !self.outcome.read && self.outcome.error.is_none() {
            let reason = format!("it did not answer within {} s", deadline.as_secs_f64());
            switch_off(found, reason, None);
            return;
        }
        if let (Some(cpu_us), Some(took_us)) = (median(&self.cpu_us), median(&self.took_us)) {
            // As often as a session reads it. Stacks are an exception: a session reads them more often
            // (`agent/src/sampling/stack_pace.rs`).
            let of_micros = |micros: f64| Duration::from_secs_f64(micros / 1e6);
            let rest_us = micros(rest(of_micros(cpu_us), of_micros(took_us), self.cpu_rest));
            let every_us = micros(self.pace.max(INTERVAL)).max(rest_us);
            found.own_cpu_us_per_s = Some(cpu_us * 1e6 / every_us);
        }
        self.outcome.apply(found);
    }
}

/// The body of a source's own thread.
fn attend(
    index: usize,
    mut source: Box<dyn Collector>,
    pace: Duration,
    patience: Patience,
    answers: &Sender<Read>,
) {
    let (begin, mut outcome, mut readings) = (Instant::now(), Outcome::default(), Vec::new());
    for read in 1.. {
        let (start, cpu_before) = (Instant::now(), own_cpu_time(&*source));
        let result = collect(&mut *source, start - begin, &mut readings);
        let took = start.elapsed();
        let cpu = own_cpu_time(&*source).saturating_sub(cpu_before);
        outcome.add(result.clone());
        let late = begin.elapsed() + pace > patience.window;
        let last = outcome.is_final() || read >= patience.reads || (outcome.read && late);
        let read = Read {
            index,
            result,
            took,
            cpu,
            last,
        };
        if answers.send(read).is_err() || last {
            break;
        }
        thread::sleep(pace.max(Duration::from_millis(50)));
    }
    // A source that panicked may panic again on drop.
    let _ = contain(|| drop(source));
}

/// Receives answers until all have arrived, or until `time` has passed.
fn gather(apart: &mut [Apart], answered: &Receiver<Read>, time: Duration) {
    let begin = Instant::now();
    while apart.iter().any(|one| !one.done) {
        let Ok(read) = answered.recv_timeout(time.saturating_sub(begin.elapsed())) else {
            return;
        };
        if let Some(one) = apart.iter_mut().find(|one| one.index == read.index) {
            one.add(read);
        }
    }
}

fn collect(
    source: &mut dyn Collector,
    at: Duration,
    readings: &mut Vec<Reading>,
) -> Result<(), CollectError> {
    readings.clear();
    contain(|| source.collect(at, readings))
        .unwrap_or_else(|panic| Err(CollectError::unsupported(panic)))
}

fn own_cpu_time(source: &dyn Collector) -> Duration {
    thread_cpu_time().unwrap_or_default() + source.cpu_time()
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The median of `values` (the upper of two); `None` if there are none.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests;
