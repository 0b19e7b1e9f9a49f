//! The running agent: adds loops, pauses, reports and stops.
//!
//! [`AgentBuilder::start`](super::AgentBuilder::start) starts three threads: the sampler ticks, the export
//! thread delivers, and the third one sleeps until `SIGTERM`. A slow source has a thread of its own. No
//! thread is ever joined: [`Agent::stop`] waits for a condition with a deadline, and leaves a stuck thread
//! behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fork::Owner;
use super::limits::Limits;
use super::signal::{self, SignalEffect};
use super::signal_chain::end_process;
use super::wake::Waker;
use crate::delivery::RecordQueue;
use crate::lock::lock;
use crate::model::Mode;
use crate::model::record::{
    BatchRecord, EndCause, EndRecord, LoaderRecord, ProbeRecord, RunState, SummaryRecord,
};
use crate::notice::Notice;
use crate::port::{Clock, ConsumerThread, MonotonicClock};
use crate::recording::{Fold, Recorder};
use crate::sampling::{LiveRun, LoopEntry, MemoryWatch, RankGpu, Sampler, Schedule};

/// Time limit for the last records after `SIGTERM`.
const TERMINATE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A running agent. Clones refer to the same agent. A drop does not stop it.
#[derive(Debug, Clone)]
pub struct Agent(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) owner: Owner,
    pub(super) clock: MonotonicClock,
    pub(super) limits: Limits,
    pub(super) live_run: Arc<LiveRun>,
    pub(super) queue: Arc<RecordQueue>,
    /// The training thread reads it once for each batch.
    pub(super) watching: Arc<AtomicBool>,
    pub(super) consumer: ConsumerThread,
    pub(super) rank_gpu: RankGpu,
    /// Whether a destination exports single steps.
    pub(super) sample_steps: bool,
    pub(super) sampler: Waker,
    pub(super) terminator: Waker,
    pub(super) requests: Mutex<Requests>,
    pub(super) served: Condvar,
}

/// Requests to the sampler between two ticks.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) stop: bool,
    flushes: u64,
    flushed: u64,
    stopped: bool,
}

/// Result of a stop.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// The run as a whole.
    pub summary: SummaryRecord,
    /// The records of the probes.
    pub probes: Vec<ProbeRecord>,
    /// Whether all records were delivered in time.
    pub complete: bool,
    /// Duration of the stop.
    pub took: Duration,
}

impl Inner {
    pub(super) fn lock(&self) -> MutexGuard<'_, Requests> {
        lock(&self.requests)
    }

    pub(super) fn run_sampler(&self, mut sampler: Sampler) {
        let mut schedule = Schedule::new(self.clock.now(), self.limits.interval);
        let mut was_watching = true;
        loop {
            let watching = self.watching.load(Ordering::Relaxed);
            if watching && !was_watching {
                sampler.forget();
            }
            was_watching = watching;
            let due = schedule.until_due(self.clock.now());
            if !(due.is_zero() && watching) {
                self.sampler.sleep(watching.then_some(due));
            }
            let (stop, flushes) = {
                let requests = self.lock();
                (requests.stop, requests.flushes)
            };
            if stop {
                sampler.tick(Duration::ZERO, true);
                self.queue.close();
                self.lock().stopped = true;
                self.served.notify_all();
                return;
            }
            if flushes != self.lock().flushed {
                sampler.tick(Duration::ZERO, false);
                self.lock().flushed = flushes;
                self.served.notify_all();
            }
            let now = self.clock.now();
            if schedule.until_due(now).is_zero() {
                let late = schedule.begin_tick(now);
                if self.watching.load(Ordering::Relaxed) {
                    sampler.tick(late, false);
                }
            } else {
                // The sampler was woken because a ring is half full.
                self.live_run.drain();
            }
        }
    }

    /// Waits at most `timeout` until `done` returns true. Returns whether it did.
    fn wait(&self, timeout: Duration, done: impl Fn(&Requests) -> bool) -> bool {
        let (requests, _) = self
            .served
            .wait_timeout_while(self.lock(), timeout, |requests| !done(requests))
            .unwrap_or_else(PoisonError::into_inner);
        done(&requests)
    }
}

impl Agent {
    /// Adds a loop to watch.
    pub fn add_loop(&self, loader: LoaderRecord, mode: Mode) -> Arc<LoopEntry> {
        let inner = &self.0;
        let wake = {
            let (waker, owner) = (inner.sampler.clone(), inner.owner);
            Arc::new(move || {
                if owner.is_here() {
                    waker.ring();
                }
            })
        };
        let recorder = Recorder::new(
            loader.name.clone(),
            inner.clock.clone(),
            Arc::clone(&inner.watching),
            inner.consumer.clone(),
            wake,
        );
        if inner.sample_steps {
            recorder.fold(Fold::sample_steps);
        }
        let entry = LoopEntry::new(recorder, loader, mode);
        if inner.owner.is_here() && inner.live_run.add(Arc::clone(&entry)) {
            // The run's record is written at once: the run may end before its first tick.
            inner.lock().flushes += 1;
            inner.sampler.ring();
        }
        entry
    }

    /// Stores the contents of a batch of the loop with that name. Returns whether it is the first batch.
    pub fn describe_batch(&self, name: &str, batch: BatchRecord) -> bool {
        self.is_here() && self.0.live_run.set_batch(name, batch)
    }

    /// Stores the CPU time, in milliseconds, that it takes to pass a mebibyte of shared memory on this
    /// machine.
    pub fn set_shared_mib_ms(&self, ms: f64) {
        self.0.live_run.set_shared_mib_ms(ms);
    }

    /// Time since the run began.
    pub fn now(&self) -> Duration {
        self.0.clock.now()
    }

    /// Counts of Python objects during the run.
    pub fn memory(&self) -> &MemoryWatch {
        &self.0.live_run.memory
    }

    /// Whether this is the process in which the agent was started, and not a forked child.
    pub fn is_here(&self) -> bool {
        self.0.owner.is_here()
    }

    /// Shows a notice to the user, once.
    pub fn notice(&self, notice: &Notice) {
        if self.is_here() {
            self.0.live_run.notice_log.post(notice);
        }
    }

    /// Stores torch's current device on the thread of the training loop at the start of an epoch.
    pub fn report_torch_device(&self, ordinal: u32) {
        self.0.rank_gpu.bind_by_torch(ordinal);
    }

    /// Pauses the agent: batches are not counted, and sources are not read.
    pub fn pause(&self) {
        self.0.watching.store(false, Ordering::Relaxed);
    }

    /// Resumes the agent after a pause.
    pub fn resume(&self) {
        self.0.watching.store(true, Ordering::Relaxed);
        if self.is_here() {
            self.0.sampler.ring();
        }
    }

    /// The summary of the run so far, and the records of its probes.
    pub fn report(&self) -> (SummaryRecord, Vec<ProbeRecord>) {
        self.0
            .live_run
            .report(self.0.clock.now(), RunState::Running)
    }

    /// Writes an extra tick. Returns whether it was delivered within `timeout`.
    pub fn flush(&self, timeout: Duration) -> bool {
        if !self.is_here() {
            return true;
        }
        let start = self.0.clock.now();
        let requested = {
            let mut requests = self.0.lock();
            requests.flushes += 1;
            requests.flushes
        };
        self.0.sampler.ring();
        self.0.wait(timeout, |requests| {
            requests.flushed >= requested || requests.stopped
        }) && self.0.queue.wait_empty(self.remaining(start, timeout))
    }

    /// Stores an uncaught exception that ends the program, for the final summary. Posts a notice if the
    /// exception ended an epoch with repeated batches or changed stages and `is_error`. Ctrl-C is no error.
    pub fn ended_by_exception(&self, exception: &str, is_error: bool) {
        if !self.is_here() {
            return;
        }
        let live_run = &self.0.live_run;
        live_run.set_ended_by(EndRecord {
            cause: EndCause::Exception,
            name: exception.to_owned(),
        });
        for entry in live_run.loops().iter().filter(|_| is_error) {
            if let Some(repeated) = entry.repeated_in_epoch() {
                self.notice(&Notice::ExceptionInProbe {
                    loop_name: entry.loader.name.clone(),
                    mode: entry.mode,
                    exception: exception.to_owned(),
                    repeated,
                    from: entry.loader.options_from.unwrap_or_default(),
                });
            }
            let changed = entry.recorder.fold(|fold| fold.changed_in_epoch());
            if changed > 0 {
                self.notice(&Notice::ExceptionInWhatIf {
                    loop_name: entry.loader.name.clone(),
                    exception: exception.to_owned(),
                    changed,
                    from: entry.loader.options_from.unwrap_or_default(),
                });
            }
        }
    }

    /// Stops the agent: writes a last tick and the final summary, and waits until they are delivered, all
    /// within the limit `stop_timeout`. A second stop, or a stop in a forked child, does nothing.
    pub fn stop(&self) -> Option<Stopped> {
        self.stop_within(self.0.limits.stop_timeout)
    }

    fn stop_within(&self, timeout: Duration) -> Option<Stopped> {
        let inner = &self.0;
        if !inner.owner.is_here() || std::mem::replace(&mut inner.lock().stop, true) {
            return None;
        }
        let start = inner.clock.now();
        inner.watching.store(false, Ordering::Relaxed);
        inner.sampler.ring();
        let complete = inner.wait(timeout, |requests| requests.stopped)
            && inner.queue.wait_empty(self.remaining(start, timeout));
        if !complete {
            let waited_s = timeout.as_secs_f64();
            self.notice(&Notice::StopTimedOut { waited_s });
        }
        signal::unlisten(inner.terminator.descriptor());
        inner.terminator.ring();
        let now = inner.clock.now();
        let (summary, probes) = inner.live_run.report(now, RunState::Finished);
        Some(Stopped {
            summary,
            probes,
            complete,
            took: now.saturating_sub(start),
        })
    }

    fn remaining(&self, start: Duration, timeout: Duration) -> Duration {
        timeout.saturating_sub(self.0.clock.now().saturating_sub(start))
    }

    /// Runs the `headspace-term` thread: sleeps until the agent stops or `SIGTERM` arrives.
    pub(super) fn await_termination(&self, on_terminate: &dyn Fn(&SummaryRecord, &[ProbeRecord])) {
        loop {
            self.0.terminator.sleep(None);
            match signal::arrived() {
                Some(SignalEffect::EndProcess) => {
                    self.0.live_run.set_ended_by(EndRecord {
                        cause: EndCause::Signal,
                        name: "SIGTERM".to_owned(),
                    });
                    if let Some(stopped) = self.stop_within(TERMINATE_TIMEOUT) {
                        on_terminate(&stopped.summary, &stopped.probes);
                    }
                    end_process();
                    return;
                }
                Some(SignalEffect::WriteRecords) => {
                    self.flush(TERMINATE_TIMEOUT);
                }
                None if self.0.lock().stop => return,
                None => {}
            }
        }
    }
}
