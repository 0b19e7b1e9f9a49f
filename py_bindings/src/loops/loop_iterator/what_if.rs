//! `next()` in mode `whatif`: stages are changed in turn, or the hand-off. Then a batch is a copy of an earlier one.

use std::sync::atomic::Ordering;

use headspace_agent::lock::lock;
use headspace_agent::model::record::Phase;
use headspace_agent::recording::Event;
use pyo3::prelude::*;

use super::LoopIterator;
use crate::loops::source_iterator::Next;
use crate::loops::what_if_run::WhatIfRun;
use crate::stages::loop_body::set_in_loop_body;

/// A batch that the loop receives.
struct Received {
    batch: Py<PyAny>,
    /// Whether it is a copy of an earlier batch.
    is_repeated: bool,
    /// Time stamps of the request for it, and of its end.
    request: u64,
    receive: u64,
}

impl LoopIterator {
    /// The what-if, if it is not over.
    #[inline]
    pub(super) fn open_what_if(&self) -> Option<&WhatIfRun> {
        let is_open = |what_if: &&WhatIfRun| !what_if.is_over() && what_if.is_here();
        self.what_if.as_deref().filter(is_open)
    }

    pub(super) fn next_in_what_if(
        &self,
        py: Python<'_>,
        what_if: &WhatIfRun,
    ) -> PyResult<Option<Py<PyAny>>> {
        let recorder = &self.epoch.entry().recorder;
        if !recorder.is_watching() {
            // The session is paused.
            what_if.pause();
            self.last_receive.store(0, Ordering::Relaxed);
            let batch = self.timed(py, || self.source.next(py))?;
            if batch.is_some() {
                self.count_batch(py, false)?;
            }
            return Ok(batch);
        }
        set_in_loop_body(false);
        // Work on the switches before the source is called is not part of the step. Neither are copies of batches.
        let called = recorder.ticks();
        self.begin_request(what_if);
        let batch = self.hand_over(py, what_if);
        let Ok(Some(received)) = batch else {
            self.last_receive.store(0, Ordering::Relaxed);
            self.pause_what_if(what_if);
            return batch.map(|_| None);
        };
        let last = self.last_receive.swap(recorder.ticks(), Ordering::Relaxed);
        let clock = recorder.clock();
        what_if.delivered((last != 0).then(|| {
            (
                clock.nanos_between(last, called),
                clock.nanos_between(received.request, received.receive),
            )
        }));
        set_in_loop_body(!what_if.is_over());
        if what_if.is_over() {
            self.epoch.entry().finish_what_if();
        }
        self.count_batch(py, received.is_repeated)?;
        Ok(Some(received.batch))
    }

    /// Sets the switches for the next batch, and records the window that has ended.
    fn begin_request(&self, what_if: &WhatIfRun) {
        let entry = self.epoch.entry();
        let (window, phase) = what_if.request(entry);
        if let Some(window) = window {
            entry.add_what_if_window(window);
        }
        if phase == Phase::Changed {
            self.count_replaced_calls(what_if);
        }
        if self.phase.swap(phase as u64, Ordering::Relaxed) != phase as u64 {
            entry.recorder.mark(Event::Phase(phase));
        }
    }

    /// The next batch. `None` at the end of the source.
    fn hand_over(&self, py: Python<'_>, what_if: &WhatIfRun) -> PyResult<Option<Received>> {
        let recorder = &self.epoch.entry().recorder;
        let hand_off = what_if.hand_off();
        // A source that has more batches than its length would be cut.
        let may_repeat = !lock(&self.progress).has_all();
        let copy = if may_repeat {
            hand_off.copy_batch(py)?
        } else {
            None
        };
        let mut is_repeated = copy.is_some();
        let request = recorder.ticks();
        let batch = self.timed(py, || {
            if let Some(batch) = copy {
                return Ok(Next::Batch(batch));
            }
            let handed_over = hand_off.request(py, &self.source, may_repeat)?;
            is_repeated = handed_over.is_repeated;
            Ok(handed_over.next)
        })?;
        let receive = recorder.ticks();
        let Some(batch) = batch else { return Ok(None) };
        if !is_repeated {
            hand_off.keep(py, batch.bind(py))?;
        }
        Ok(Some(Received {
            batch,
            is_repeated,
            request,
            receive,
        }))
    }

    /// Counts a batch of an epoch that repeated batches may cut.
    pub(super) fn count_batch(&self, py: Python<'_>, is_repeated: bool) -> PyResult<()> {
        let is_full = {
            let mut progress = lock(&self.progress);
            if is_repeated {
                progress.replay();
            } else {
                progress.deliver();
            }
            progress.is_full()
        };
        if is_full {
            self.report_cut(py, false)?;
        }
        Ok(())
    }

    /// Ends an epoch that has as many batches as its loader, some of them repeated. The rest of the source is not delivered.
    #[cold]
    pub(super) fn end_of_cut_epoch(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.exhausted.swap(true, Ordering::Relaxed) {
            self.end(true);
            self.report_cut(py, true)?;
        }
        Ok(None)
    }

    /// The loop does not iterate for now.
    pub(super) fn pause_what_if(&self, what_if: &WhatIfRun) {
        what_if.pause();
        self.count_replaced_calls(what_if);
    }

    fn count_replaced_calls(&self, what_if: &WhatIfRun) {
        // Also in a window that is not complete.
        let count = what_if.replaced_calls();
        let entry = self.epoch.entry();
        entry.set_what_if_status(|status| status.inputs_not_trained_on = count);
    }
}
