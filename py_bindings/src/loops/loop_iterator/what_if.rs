//! `next()` in mode `whatif`: the stages and the requests are changed in turn. While requests are replaced, batches are
//! copies of earlier ones.

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
            return self.next_of_source(py);
        }
        set_in_loop_body(false);
        // Work on the switches before the source is called is not part of the step. Neither are copies of batches.
        let called = recorder.ticks();
        self.begin_request(what_if);
        let received = self.receive(py, what_if);
        let Ok(Some(received)) = received else {
            self.last_receive.store(0, Ordering::Relaxed);
            self.pause_what_if(what_if);
            return received.map(|_| None);
        };
        if !received.is_repeated && self.count_units(received.batch.bind(py), received.receive)? {
            self.hand_over();
        }
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
    fn receive(&self, py: Python<'_>, what_if: &WhatIfRun) -> PyResult<Option<Received>> {
        let recorder = &self.epoch.entry().recorder;
        let requests = what_if.requests();
        // Nothing is repeated after the source has ended, or beyond the loader's length.
        let may_repeat = !self.exhausted.load(Ordering::Relaxed) && !lock(&self.progress).has_all();
        let copy = if may_repeat {
            requests.copy_batch(py)?
        } else {
            None
        };
        let mut is_repeated = copy.is_some();
        let request = recorder.ticks();
        let batch = self.timed(py, || {
            if let Some(batch) = copy {
                return Ok(Next::Batch(batch));
            }
            let requested = requests.request(py, &self.source, may_repeat)?;
            is_repeated = requested.is_repeated;
            Ok(requested.next)
        })?;
        let receive = recorder.ticks();
        let Some(batch) = batch else { return Ok(None) };
        if !is_repeated {
            requests.keep(py, batch.bind(py))?;
        }
        Ok(Some(Received {
            batch,
            is_repeated,
            request,
            receive,
        }))
    }

    /// The loop does not iterate for now.
    pub(super) fn pause_what_if(&self, what_if: &WhatIfRun) {
        what_if.pause();
        self.count_replaced_calls(what_if);
    }

    /// Reports how many calls returned an earlier result, including those in an incomplete window.
    fn count_replaced_calls(&self, what_if: &WhatIfRun) {
        let count = what_if.replaced_calls();
        let entry = self.epoch.entry();
        entry.set_what_if_status(|status| status.inputs_not_trained_on = count);
    }
}
