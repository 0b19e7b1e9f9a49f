//! `next()` in the modes `probe` and `replay`: a batch comes from the source or from the cache.

use std::sync::atomic::Ordering;

use headspace_agent::batch_source::{Decision, Ended};
use headspace_agent::model::InPlace;
use headspace_agent::model::record::Phase;
use headspace_agent::notice::Notice;
use headspace_agent::recording::Event;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefMethods;

use super::{LoopIterator, this_thread};
use crate::interpreter::calls::release;
use crate::interpreter::thread_times;
use crate::loops::batch_cache::{Answer, BatchCache};
use crate::loops::source_iterator::Next;

/// Time stamps of a batch.
#[derive(Clone, Copy)]
struct Times {
    /// The loop called `next()`.
    called: u64,
    /// The source or the cache was called.
    request: u64,
    receive: u64,
}

impl LoopIterator {
    /// The next batch, from the source or from the cache.
    pub(super) fn next_of_cache_or_source(
        &self,
        py: Python<'_>,
        cache: &BatchCache,
    ) -> PyResult<Option<Py<PyAny>>> {
        if self.exhausted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if self.in_flight.load(Ordering::Relaxed) {
            self.notify_concurrent();
        }
        if cache.is_probe() && !self.epoch.entry().recorder.is_watching() {
            return self.next_paused(py, cache);
        }
        let recorder = &self.epoch.entry().recorder;
        // Work on the cache before the source is called is not part of the step.
        let called = recorder.ticks();
        loop {
            let answer = cache.request(py, &self.progress)?;
            let decision = answer.decision;
            self.change_phase(py, cache, &answer)?;
            if answer.releases_source && decision != Decision::Source {
                self.release_source(py);
            }
            self.requested_by.store(this_thread(), Ordering::Relaxed);
            self.in_flight.store(true, Ordering::Relaxed);
            let request = recorder.request();
            let outcome = match decision {
                Decision::Source => self.source.next(py),
                Decision::Cached(_) => Ok(answer.batch.map_or(Next::End(None), Next::Batch)),
                Decision::End => Ok(Next::End(None)),
            };
            let receive = recorder.ticks();
            self.in_flight.store(false, Ordering::Relaxed);
            match outcome {
                Ok(Next::Batch(batch)) => {
                    let times = Times {
                        called,
                        request,
                        receive,
                    };
                    self.hand_out(py, cache, &batch, decision, times)?;
                    return Ok(Some(batch));
                }
                Ok(Next::End(_)) if self.continues_from_cache(cache, decision) => {}
                Ok(Next::End(value)) => {
                    self.end(true);
                    self.exhausted.store(true, Ordering::Relaxed);
                    if let Some(count) = answer.replaced {
                        self.notify_replaced(count);
                        self.report_cut(py, true)?;
                    }
                    return value.map_or(Ok(None), Err);
                }
                Err(error) => {
                    // The loop may continue with the next batch, as without a probe.
                    self.last_receive.store(0, Ordering::Relaxed);
                    cache.interrupt();
                    self.failed.store(true, Ordering::Relaxed);
                    self.end(false);
                    return Err(error);
                }
            }
        }
    }

    /// Records a batch before the loop receives it, and keeps it if the state machine needs it.
    #[inline]
    fn hand_out(
        &self,
        py: Python<'_>,
        cache: &BatchCache,
        batch: &Py<PyAny>,
        decision: Decision,
        times: Times,
    ) -> PyResult<()> {
        let recorder = &self.epoch.entry().recorder;
        self.failed.store(false, Ordering::Relaxed);
        self.reopen();
        if self.first_batches.has_left() {
            self.first_batches
                .read(batch.bind(py), self.epoch.entry())?;
        }
        let counted =
            decision == Decision::Source && self.count_units(batch.bind(py), times.receive)?;
        recorder.lap(times.request, times.receive);
        self.report_step(cache, times);
        if decision == Decision::Source && cache.delivered(py, batch, &self.progress)? {
            self.last_receive.store(recorder.ticks(), Ordering::Relaxed);
        }
        if counted {
            self.last_receive.store(self.hand_over(), Ordering::Relaxed);
        }
        if self.on_cut.is_some() && cache.is_last(&self.progress) {
            self.report_cut(py, false)?;
        }
        if matches!(decision, Decision::Cached(_)) {
            self.replay_to_the_end(py, cache);
        }
        Ok(())
    }

    /// Whether the epoch continues with cached batches after the source has ended.
    fn continues_from_cache(&self, cache: &BatchCache, decision: Decision) -> bool {
        if decision != Decision::Source {
            return false;
        }
        // A source that ends after an error, as a generator does, has no more batches, but has not finished.
        let failed = self.failed.load(Ordering::Relaxed);
        match cache.source_ended(&self.progress) {
            Ended::Replay { early } if !failed => {
                if early && let Some((delivered, expected)) = cache.replay_progress() {
                    self.notice(&Notice::SourceEndedEarly {
                        loop_name: self.epoch.loop_name(),
                        delivered,
                        expected,
                        from: self.epoch.options_from(),
                    });
                }
                true
            }
            Ended::Replay { .. } | Ended::Epoch => false,
        }
    }

    /// If all remaining batches of the epoch are replayed, no further decision is needed.
    fn replay_to_the_end(&self, py: Python<'_>, cache: &BatchCache) {
        if let Some(rest) = cache.rest_of_epoch(py, &self.progress)
            && let Ok(mut place) = self.rest_of_epoch.try_lock()
        {
            *place = Some(rest);
            self.only_replays.store(true, Ordering::Relaxed);
        }
    }

    /// While the session is paused, the probe pauses too: all batches come from the source, and no step
    /// includes the pause.
    #[cold]
    fn next_paused(&self, py: Python<'_>, cache: &BatchCache) -> PyResult<Option<Py<PyAny>>> {
        self.last_receive.store(0, Ordering::Relaxed);
        cache.interrupt();
        let batch = self.timed(py, || self.source.next(py));
        match batch {
            Ok(Some(_)) => cache.passed(&self.progress),
            _ => _ = cache.source_ended(&self.progress),
        }
        batch
    }

    /// Passes the times of the step that this batch ends to the state machine.
    fn report_step(&self, cache: &BatchCache, times: Times) {
        let last = self.last_receive.swap(times.receive, Ordering::Relaxed);
        if last == 0 {
            return;
        }
        let clock = self.epoch.entry().recorder.clock();
        let step = cache.timed(
            clock.nanos_between(last, times.called),
            clock.nanos_between(times.request, times.receive),
        );
        if let Some(window) = step.window {
            self.epoch.entry().add_window(window);
        }
        if step.finished {
            self.epoch.entry().finish_probe();
        }
        if step.wants_reading
            && let Some(times) = thread_times::read()
        {
            cache.read(times);
        }
    }

    /// Records that the phase changes, and checks the cache, because no step is timed here. When the probe
    /// has finished, the cached batches are released.
    fn change_phase(&self, py: Python<'_>, cache: &BatchCache, answer: &Answer) -> PyResult<()> {
        let (decision, phase) = (answer.decision, answer.phase);
        if decision != Decision::End {
            if self.phase.swap(phase as u64, Ordering::Relaxed) == phase as u64 {
                return Ok(());
            }
            self.epoch.entry().recorder.mark(Event::Phase(phase));
        }
        if !answer.is_over && (phase == Phase::Settle || decision == Decision::End) {
            return Ok(());
        }
        let Some(facts) = cache.check(py)? else {
            return Ok(());
        };
        self.epoch.entry().set_cache(facts);
        let loop_name = || self.epoch.loop_name();
        if facts.in_place != InPlace::Never {
            self.notice(&Notice::BatchesMutated {
                loop_name: loop_name(),
                in_place: facts.in_place,
            });
        }
        if let (Phase::Replay, Some((live, _))) = (phase, cache.replay_progress()) {
            self.notice(&Notice::ReplayBegins {
                loop_name: loop_name(),
                cached: facts.batches as usize,
                live,
            });
        }
        if answer.is_over {
            cache.release_batches();
        }
        Ok(())
    }

    fn notify_replaced(&self, count: u64) {
        self.notice(&Notice::BatchesReplaced {
            loop_name: self.epoch.loop_name(),
            count,
            from: self.epoch.options_from(),
        });
    }

    /// Releases the threads and processes of the source, which replay no longer needs, even if the loader
    /// keeps its iterator for the next epoch (torch's persistent workers do).
    fn release_source(&self, py: Python<'_>) {
        let Some(iterator) = self.source.take(py) else {
            return;
        };
        let loader = self.loader.as_ref();
        if let Some(loader) = loader.and_then(|loader| loader.bind(py).upgrade())
            && let Ok(kept) = loader.getattr("_iterator")
            && kept.is(&iterator)
        {
            let _ = loader.setattr("_iterator", py.None());
        }
        release(iterator);
    }
}
