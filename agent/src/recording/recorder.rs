//! Writes the events of one loop into its ring, on the training thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::cache_padded::CachePadded;
use super::event::{Decoder, Event, pack};
use super::fold::Fold;
use super::ring::{Pushed, Ring};
use crate::port::catch_panics::contain;
use crate::port::{ConsumerThread, MonotonicClock};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

#[cfg(all(test, loom))]
mod loom_tests;

/// Shorter waits are not slow, in nanoseconds.
const MIN_SLOW_NS: f64 = 1e6;

/// Wakes the sampler, so that it reads the rings before its next tick. Called once for each half of a ring,
/// that is, every 8,192 batches.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Records one loop's batches.
///
/// One thread at a time calls [`lap`](Self::lap) and [`mark`](Self::mark) (in Python, whoever
/// holds the interpreter lock); the sampler calls [`fold`](Self::fold).
pub struct Recorder {
    ring: Ring,
    clock: MonotonicClock,
    /// Outer padding: the training thread writes to the other fields for each batch. Inner padding: it also tries the
    /// lock if the ring is full, while another thread uses the reader.
    reader: CachePadded<Mutex<CachePadded<Reader>>>,
    /// Time of receipt of the last batch. 0 if the reader does not know it: then the next batch is not
    /// packed.
    last: AtomicU64,
    wake: Wake,
    /// False while the agent is paused. Read once for each batch.
    watching: Arc<AtomicBool>,
    /// Set at the beginning of each epoch.
    consumer: ConsumerThread,
    /// Whether the loop waits for a batch now. Only readers of stacks use it.
    waiting: AtomicBool,
    /// Start of the epoch in progress, or 0 between epochs. Only readers of stacks use it.
    epoch_begun: AtomicU64,
    /// A wait of more ticks is slow. `u64::MAX` until it is known how long usual steps are.
    slow_wait: AtomicU64,
    /// Whether something was not recorded since the last event.
    gap: AtomicBool,
    /// Number of batches that were not recorded since the last gap mark.
    unrecorded: AtomicU64,
    /// Time of receipt of the last of them.
    last_unrecorded: AtomicU64,
    dropped: AtomicU64,
}

/// What a reader of the ring needs.
#[derive(Debug)]
struct Reader {
    /// A copy of the recorder's clock, because the training thread writes to the cache lines of that one.
    clock: MonotonicClock,
    decoder: Decoder,
    fold: Fold,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder for the loop of that name. `watching` is shared by all loops of a session.
    pub fn new(
        name: String,
        clock: MonotonicClock,
        watching: Arc<AtomicBool>,
        consumer: ConsumerThread,
        wake: Wake,
    ) -> Self {
        Self {
            ring: Ring::new(),
            reader: CachePadded::new(Mutex::new(CachePadded::new(Reader {
                clock: clock.clone(),
                decoder: Decoder::default(),
                fold: Fold::new(name),
            }))),
            clock,
            last: AtomicU64::new(0),
            wake,
            watching,
            consumer,
            waiting: AtomicBool::new(false),
            epoch_begun: AtomicU64::new(0),
            slow_wait: AtomicU64::new(u64::MAX),
            gap: AtomicBool::new(false),
            unrecorded: AtomicU64::new(0),
            last_unrecorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// A time stamp for [`lap`](Self::lap).
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.clock.ticks()
    }

    /// Marks the loop as waiting for a batch, until the next event. Returns the time stamp of the request.
    #[inline]
    pub fn request(&self) -> u64 {
        self.waiting.store(true, Ordering::Relaxed);
        self.clock.ticks()
    }

    /// Whether the loop waits for a batch now.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Start of the epoch in progress, as a time stamp; `None` between epochs.
    pub(crate) fn epoch_begun(&self) -> Option<u64> {
        Some(self.epoch_begun.load(Ordering::Relaxed)).filter(|begun| *begun > 0)
    }

    /// Whether batches are recorded.
    pub fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }

    /// The clock of this loop's time stamps.
    pub fn clock(&self) -> &MonotonicClock {
        &self.clock
    }

    /// Whether the wait between these time stamps is as long as a step that is far slower than usual.
    #[inline]
    pub fn is_slow(&self, request: u64, receive: u64) -> bool {
        receive.saturating_sub(request) > self.slow_wait.load(Ordering::Relaxed)
    }

    /// Records a batch that was requested at `request` and received at `receive`.
    #[inline]
    pub fn lap(&self, request: u64, receive: u64) {
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(receive, Ordering::Relaxed);
        self.waiting.store(false, Ordering::Relaxed);
        match pack(last, request, receive) {
            Some(word) if self.watching.load(Ordering::Relaxed) => {
                if !self.keep([word]) {
                    self.drop_one(Some(receive));
                }
            }
            _ => self.mark(Event::Lap { request, receive }),
        }
    }

    /// Records an event that is no batch, or a batch that cannot be packed.
    #[cold]
    pub fn mark(&self, event: Event) {
        self.waiting.store(false, Ordering::Relaxed);
        match event {
            Event::EpochBegin { at } => self.epoch_begun.store(at.max(1), Ordering::Relaxed),
            Event::Step { at } => drop(self.epoch_begun.compare_exchange(
                0,
                at.max(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )),
            Event::EpochEnd { .. } => self.epoch_begun.store(0, Ordering::Relaxed),
            _ => {}
        }
        let first = matches!(event, Event::Step { .. }) && self.consumer.get().is_none();
        if first || matches!(event, Event::EpochBegin { .. }) {
            self.consumer.set_here();
        }
        let received = match event {
            Event::Lap { receive, .. } => Some(receive),
            Event::Step { at } => Some(at),
            _ => None,
        };
        if received.is_some() && !self.watching.load(Ordering::Relaxed) {
            self.forget(received);
            return;
        }
        let kept =
            (!self.gap.load(Ordering::Relaxed) || self.keep_gap()) && self.keep(event.encode());
        self.gap.store(!kept, Ordering::Relaxed);
        if !kept {
            self.drop_one(received);
        }
    }

    /// Records that events before this moment were not recorded.
    fn keep_gap(&self) -> bool {
        let [batches, last] =
            [&self.unrecorded, &self.last_unrecorded].map(|word| word.load(Ordering::Relaxed));
        let kept = self.keep(Event::Gap { batches, last }.encode());
        if kept {
            self.unrecorded.store(0, Ordering::Relaxed);
        }
        kept
    }

    /// Notes that an event was not recorded: the next one follows a gap mark, and is not packed. `received` is the time of
    /// receipt, if the event was a batch.
    fn forget(&self, received: Option<u64>) {
        if let Some(at) = received {
            self.unrecorded.fetch_add(1, Ordering::Relaxed);
            self.last_unrecorded.store(at, Ordering::Relaxed);
        }
        self.last.store(0, Ordering::Relaxed);
        self.gap.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn drop_one(&self, received: Option<u64>) {
        let batches = u64::from(received.is_some());
        self.dropped.fetch_add(batches, Ordering::Relaxed);
        self.forget(received);
    }

    /// Writes one event. Returns false if the ring is full.
    #[inline]
    fn keep<const N: usize>(&self, words: [u64; N]) -> bool {
        match self.ring.push(words) {
            Pushed::Kept => true,
            Pushed::KeptHalfFull => {
                (self.wake)();
                true
            }
            Pushed::Full => self.make_room() && self.ring.push(words) != Pushed::Full,
        }
    }

    /// Reads the ring on this thread because the sampler is late, unless another thread reads it now.
    #[cold]
    fn make_room(&self) -> bool {
        let Ok(mut reader) = self.reader.try_lock() else {
            return false;
        };
        // A fault in the fold must not reach the training thread.
        contain(|| reader.drain(&self.ring)).is_ok()
    }

    /// Reads the ring, then calls `each` with the totals. The training thread never calls it.
    pub fn fold<R>(&self, each: impl FnOnce(&mut Fold) -> R) -> R {
        let mut reader = lock(&self.reader);
        reader.drain(&self.ring);
        if let Some(slow_ns) = reader.fold.slow_step_ns() {
            self.set_slow_wait(slow_ns.max(MIN_SLOW_NS));
        }
        each(&mut reader.fold)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number far below the limit"
    )]
    fn set_slow_wait(&self, ns: f64) {
        let ticks = (ns / self.clock.nanos_per_tick()) as u64;
        self.slow_wait.store(ticks, Ordering::Relaxed);
    }

    /// Number of steps that were not recorded because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Reader {
    /// Adds all events in the ring to the totals.
    fn drain(&mut self, ring: &Ring) {
        let mut words = ring.read();
        while let Some(event) = self.decoder.next(&mut words) {
            self.fold.add(event, &self.clock);
        }
    }
}

/// Time that recording one batch costs the training thread on this machine, in nanoseconds: two time stamps
/// and one event, the best of four rounds. The measurement takes about 0.2 ms.
pub fn cost_per_batch_ns(clock: &MonotonicClock) -> f64 {
    const BATCHES: u64 = 1000;
    let watching = Arc::new(AtomicBool::new(true));
    let recorder = Recorder::new(
        String::new(),
        clock.clone(),
        watching,
        ConsumerThread::default(),
        Arc::new(|| ()),
    );
    let round = || {
        let start = clock.nanos(clock.ticks());
        for _ in 0..BATCHES {
            let request = recorder.ticks();
            recorder.lap(request, recorder.ticks());
        }
        (clock.nanos(clock.ticks()) - start) as f64 / BATCHES as f64
    };
    (0..4).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::ring::CAPACITY;
    use super::*;

    fn recorder() -> (Recorder, Arc<AtomicBool>, Arc<AtomicUsize>) {
        let watching = Arc::new(AtomicBool::new(true));
        let woken = Arc::new(AtomicUsize::new(0));
        let wake: Wake = {
            let woken = Arc::clone(&woken);
            Arc::new(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            })
        };
        let recorder = Recorder::new(
            "train".into(),
            MonotonicClock::new(),
            Arc::clone(&watching),
            ConsumerThread::default(),
            wake,
        );
        (recorder, watching, woken)
    }

    fn laps(recorder: &Recorder, count: usize) {
        for _ in 0..count {
            let request = recorder.ticks();
            recorder.lap(request, recorder.ticks());
        }
    }

    #[test]
    fn no_step_is_lost_when_the_sampler_sleeps_through_a_full_ring() {
        let (recorder, _, woken) = recorder();
        recorder.mark(Event::EpochBegin {
            at: recorder.ticks(),
        });
        laps(&recorder, 3 * CAPACITY);

        assert_eq!(recorder.fold(|fold| fold.steps()), 3 * CAPACITY as u64);
        assert_eq!(recorder.dropped(), 0);
        assert!(woken.load(Ordering::Relaxed) >= 5);
    }

    #[test]
    fn a_full_ring_that_is_being_read_drops_the_newest_and_counts_it() {
        let (recorder, _, _) = recorder();
        let held = recorder.reader.lock().unwrap();
        // The first lap takes three words.
        laps(&recorder, CAPACITY - 2 + 5);
        drop(held);

        assert_eq!(recorder.dropped(), 5);
        assert_eq!(recorder.fold(|fold| fold.steps()), CAPACITY as u64 - 2);
    }

    #[test]
    fn no_step_spans_a_pause() {
        let (recorder, watching, _) = recorder();
        recorder.mark(Event::EpochBegin {
            at: recorder.ticks(),
        });
        laps(&recorder, 3);
        watching.store(false, Ordering::Relaxed);
        laps(&recorder, 100);
        watching.store(true, Ordering::Relaxed);
        laps(&recorder, 3);

        let (steps, timed) = recorder.fold(|fold| (fold.steps(), fold.take_tick()[0].step.count));

        assert_eq!(steps, 6);
        assert_eq!(timed, 4);
        assert_eq!(recorder.fold(|fold| fold.totals().unrecorded), 100);
    }
}
