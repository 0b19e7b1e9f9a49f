//! `next()` in mode `whatif`: every batch comes from the source, while stages are changed in turn.

use std::sync::atomic::Ordering;

use headspace_agent::model::record::Phase;
use headspace_agent::recording::Event;
use pyo3::prelude::*;

use super::LoopIterator;
use crate::loops::what_if_run::WhatIfRun;
use crate::stages::changed_calls::set_in_loop_body;

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
            return self.timed(py, || self.source.next(py));
        }
        set_in_loop_body(false);
        // Work on the switches before the source is called is not part of the step.
        let called = recorder.ticks();
        let (window, phase) = what_if.request(self.epoch.entry());
        if let Some(window) = window {
            self.epoch.entry().add_what_if_window(window);
        }
        if phase == Phase::Changed {
            self.count_replaced_calls(what_if);
        }
        if self.phase.swap(phase as u64, Ordering::Relaxed) != phase as u64 {
            recorder.mark(Event::Phase(phase));
        }
        let request = recorder.ticks();
        let batch = self.timed(py, || self.source.next(py));
        let receive = recorder.ticks();
        if let Ok(Some(_)) = batch {
            set_in_loop_body(true);
            let last = self.last_receive.swap(receive, Ordering::Relaxed);
            let clock = recorder.clock();
            what_if.delivered((last != 0).then(|| {
                (
                    clock.nanos_between(last, called),
                    clock.nanos_between(request, receive),
                )
            }));
            if what_if.is_over() {
                set_in_loop_body(false);
                self.epoch.entry().finish_what_if();
            }
        } else {
            self.last_receive.store(0, Ordering::Relaxed);
            self.pause_what_if(what_if);
        }
        batch
    }

    /// The loop does not iterate for now.
    pub(super) fn pause_what_if(&self, what_if: &WhatIfRun) {
        what_if.pause();
        self.count_replaced_calls(what_if);
    }

    fn count_replaced_calls(&self, what_if: &WhatIfRun) {
        let entry = self.epoch.entry();
        entry.set_inputs_not_trained_on(what_if.replaced_calls());
    }
}
