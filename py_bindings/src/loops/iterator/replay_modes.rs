//! Batches where a machine decides where they come from: the modes `probe` and `replay`.

use std::sync::atomic::Ordering;

use headspace_agent::loader::{Decision, Ended};
use headspace_agent::model::InPlace;
use headspace_agent::model::record::Phase;
use headspace_agent::notice::Notice;
use headspace_agent::record::Event;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefMethods;

use super::{LoopIterator, this_thread};
use crate::interpreter::interrupts::unless_interrupted;
use crate::interpreter::thread_times;
use crate::loops::batch_cache::{Answer, Cached};
use crate::loops::source::Next;

/// Time stamps of a batch.
#[derive(Clone, Copy)]
struct Times {
    /// The loop asked for it.
    asked: u64,
    /// Whoever gives it was asked.
    request: u64,
    receive: u64,
}

impl LoopIterator {
    /// The next batch where a machine decides.
    pub(super) fn next_decided(
        &self,
        py: Python<'_>,
        cached: &Cached,
    ) -> PyResult<Option<Py<PyAny>>> {
        if self.exhausted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if self.in_flight.load(Ordering::Relaxed) {
            self.say_concurrent();
        }
        if cached.is_probe() && !self.epoch.entry().recorder.is_watching() {
            return self.next_paused(py, cached);
        }
        let recorder = &self.epoch.entry().recorder;
        // What is done with the cache before the source is asked is no part of the step.
        let asked = recorder.ticks();
        loop {
            let answer = cached.request(py, &self.progress)?;
            let decision = answer.decision;
            self.change_phase(py, cached, &answer)?;
            if answer.releases_source && decision != Decision::Source {
                self.release_source(py);
            }
            self.asked_by.store(this_thread(), Ordering::Relaxed);
            self.in_flight.store(true, Ordering::Relaxed);
            let request = recorder.ticks();
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
                        asked,
                        request,
                        receive,
                    };
                    self.hand_out(py, cached, &batch, decision, times)?;
                    return Ok(Some(batch));
                }
                Ok(Next::End(_)) if self.goes_on_from_cache(cached, decision) => {}
                Ok(Next::End(value)) => {
                    self.end(true);
                    self.exhausted.store(true, Ordering::Relaxed);
                    if let Some(count) = answer.replaced {
                        self.say_replaced(count);
                        self.tell_cut(py, cached, true)?;
                    }
                    return value.map_or(Ok(None), Err);
                }
                Err(error) => {
                    // The loop may go on with the next batch, as it may without us.
                    self.last_receive.store(0, Ordering::Relaxed);
                    cached.interrupt();
                    self.failed.store(true, Ordering::Relaxed);
                    self.end(false);
                    return Err(error);
                }
            }
        }
    }

    /// A batch goes to the loop: it is counted, told to the machine, and kept where that wants it.
    #[inline]
    fn hand_out(
        &self,
        py: Python<'_>,
        cached: &Cached,
        batch: &Py<PyAny>,
        decision: Decision,
        times: Times,
    ) -> PyResult<()> {
        let recorder = &self.epoch.entry().recorder;
        self.failed.store(false, Ordering::Relaxed);
        self.reopen();
        if self.samples.has_left() {
            self.samples.count(batch.bind(py), recorder)?;
        }
        recorder.lap(times.request, times.receive);
        self.tell_machine(cached, times);
        if decision == Decision::Source && cached.delivered(py, batch, &self.progress)? {
            self.last_receive.store(recorder.ticks(), Ordering::Relaxed);
        }
        self.tell_cut(py, cached, false)?;
        if matches!(decision, Decision::Cached(_)) {
            self.replay_to_the_end(py, cached);
        }
        Ok(())
    }

    /// Where the source has come to its end: whether the epoch goes on all the same.
    fn goes_on_from_cache(&self, cached: &Cached, decision: Decision) -> bool {
        if decision != Decision::Source {
            return false;
        }
        // A source that ends with an error, as a generator does, has not come to its end.
        let failed = self.failed.load(Ordering::Relaxed);
        match cached.source_ended(&self.progress) {
            Ended::Replay { early } if !failed => {
                if early {
                    self.say_early(cached);
                }
                true
            }
            Ended::Replay { .. } | Ended::Epoch => false,
        }
    }

    /// If all that is left of the epoch is replayed, nothing need be decided any more.
    fn replay_to_the_end(&self, py: Python<'_>, cached: &Cached) {
        if let Some(tape) = cached.tape(py, &self.progress)
            && let Ok(mut place) = self.tape.try_lock()
        {
            *place = Some(tape);
            self.has_tape.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the loader of an epoch that ends before its source does, where it must know. The loop gets
    /// its batches whatever comes of it.
    fn tell_cut(&self, py: Python<'_>, cached: &Cached, is_over: bool) -> PyResult<()> {
        if let Some(on_cut) = &self.on_cut
            && (is_over || cached.is_last(&self.progress))
        {
            unless_interrupted(py, on_cut.call1(py, (is_over,)))?;
        }
        Ok(())
    }

    /// While the watch is off a probe stands still: every batch is the source's, and no step
    /// reaches across.
    #[cold]
    fn next_paused(&self, py: Python<'_>, cached: &Cached) -> PyResult<Option<Py<PyAny>>> {
        self.last_receive.store(0, Ordering::Relaxed);
        cached.interrupt();
        let batch = self.timed(py, || self.source.next(py));
        match batch {
            Ok(Some(_)) => cached.passed(&self.progress),
            _ => _ = cached.source_ended(&self.progress),
        }
        batch
    }

    /// The step that this batch ends, told to the machine.
    fn tell_machine(&self, cached: &Cached, times: Times) {
        let last = self.last_receive.swap(times.receive, Ordering::Relaxed);
        if last == 0 {
            return;
        }
        let clock = self.epoch.entry().recorder.clock();
        let nanos = |from, to| clock.nanos(to).saturating_sub(clock.nanos(from));
        let step = cached.timed(
            nanos(last, times.asked),
            nanos(times.request, times.receive),
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
            cached.read(times);
        }
    }

    /// Batches come from elsewhere: the records are told, and the cache is checked here, where no
    /// step is timed. It is let go of when the probe is over.
    fn change_phase(&self, py: Python<'_>, cached: &Cached, answer: &Answer) -> PyResult<()> {
        let &Answer {
            decision, phase, ..
        } = answer;
        if decision != Decision::End {
            if self.phase.swap(phase as u64, Ordering::Relaxed) == phase as u64 {
                return Ok(());
            }
            self.epoch.entry().recorder.mark(Event::Phase(phase));
        }
        if !answer.is_over && (phase == Phase::Settle || decision == Decision::End) {
            return Ok(());
        }
        let Some(facts) = cached.check(py)? else {
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
        if let (Phase::Replay, Some((live, _))) = (phase, cached.replay_progress()) {
            self.notice(&Notice::ReplayBegins {
                loop_name: loop_name(),
                cached: facts.batches as usize,
                live,
            });
        }
        if answer.is_over {
            cached.release_batches();
        }
        Ok(())
    }

    fn say_replaced(&self, count: u64) {
        let loop_name = self.epoch.loop_name();
        let from = self.epoch.options_from();
        self.notice(&Notice::BatchesReplaced {
            loop_name,
            count,
            from,
        });
    }

    fn say_early(&self, cached: &Cached) {
        if let Some((delivered, asked)) = cached.replay_progress() {
            let loop_name = self.epoch.loop_name();
            self.notice(&Notice::SourceEndedEarly {
                loop_name,
                delivered,
                asked,
                from: self.epoch.options_from(),
            });
        }
    }

    /// Replay needs the source no more: its threads and processes are let go, also where the
    /// loader keeps its iterator for the next epoch (torch's persistent workers do).
    fn release_source(&self, py: Python<'_>) {
        let Some(iterator) = self.source.release(py) else {
            return;
        };
        let loader = self.loader.as_ref();
        if let Some(loader) = loader.and_then(|loader| loader.bind(py).upgrade()) {
            let kept = loader
                .getattr("_iterator")
                .is_ok_and(|kept| kept.is(&iterator));
            if kept {
                let _ = loader.setattr("_iterator", py.None());
            }
        }
        drop(iterator);
    }
}
