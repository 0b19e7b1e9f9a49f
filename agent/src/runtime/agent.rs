//! The agent's life: start, watch, pause, report, stop.
//!
//! Three threads, and one for each source that wants its own, started by [`AgentBuilder::start`]:
//! the sampler ticks, the exporter delivers, and one sleeps until `SIGTERM`. None of them is ever joined: [`Agent::stop`] waits for a
//! condition with a deadline, and what is stuck then is left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::fork::Owner;
use super::signal::{self, Terminate};
use super::wake::Waker;
use crate::model::Mode;
use crate::model::record::{
    BatchRecord, EndCause, EndRecord, GpuRecord, LoaderRecord, ProbeRecord, RunRecord, RunState,
    SummaryRecord,
};
use crate::notice::Notice;
use crate::pipeline::apart::apart;
use crate::pipeline::notice_log::Say;
use crate::pipeline::sampler::Identity;
use crate::pipeline::{
    LoopEntry, NoticeLog, RecordQueue, Sampler, Schedule, Source, Sources, StageReader, Watched,
    dispatcher,
};
use crate::port::{Clock, Collector, ConsumerThread, Exporter, MonotonicClock, Pace, RankGpu};
use crate::record::stage::{Region, Workers};
use crate::record::{Fold, Recorder, recorder};

/// Stack of a thread of ours: they hold no deep recursion, and address space is the user's.
const STACK: usize = 512 * 1024;

/// How long the records may take to be completed when the process is asked to end.
const TERMINATE_TIMEOUT: Duration = Duration::from_millis(1500);

/// How often the agent looks, and how much it may hold while an exporter is slow.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Time between two ticks. At least 1 ms.
    pub interval: Duration,
    /// Ticks whose records may wait for an exporter, in `[1, 4096]`.
    pub queue_capacity: usize,
    /// How long `stop` waits for the last records. What is still waiting then is lost.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            queue_capacity: 64,
            stop_timeout: Duration::from_secs(2),
        }
    }
}

/// Why the agent did not start. Training has not been touched.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The interval is too short.
    #[error("`interval` is too short: {given:?} (at least 1 ms)")]
    Interval {
        /// What was asked for.
        given: Duration,
    },
    /// The system gave no thread or no descriptor.
    #[error("the agent's threads cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Takes the final summary and what the probes found.
pub type OnTerminate = Box<dyn Fn(&SummaryRecord, &[ProbeRecord]) + Send>;

/// What the agent watches and where its records go.
pub struct AgentBuilder {
    /// How often, and how much.
    pub limits: Limits,
    /// Where readings come from. What is to be told of them, off ones included, is in `run`.
    pub collectors: Vec<Box<dyn Collector>>,
    /// Where records go.
    pub exporters: Vec<Box<dyn Exporter>>,
    /// The first record.
    pub run: RunRecord,
    /// The GPUs that the process may use, once they are known: a driver may be slow. They are in
    /// the run's record from then on.
    pub gpus: Arc<OnceLock<Vec<GpuRecord>>>,
    /// Who writes the records.
    pub identity: Identity,
    /// Says a notice aloud.
    pub say: Say,
    /// Called with the final summary when `SIGTERM` ends the process.
    pub on_terminate: OnTerminate,
    /// Seconds between the start of the process and the clock's origin.
    pub process_age_s: Option<f64>,
    /// The clock whose origin is the beginning of the run.
    pub clock: MonotonicClock,
    /// Written by the loops, for sources that want to know which thread takes the batches.
    pub consumer: ConsumerThread,
    /// The GPU that this rank computes on, for the sources that read GPUs.
    pub rank_gpu: RankGpu,
    /// The slots of this process's own stages and queues.
    pub stages: Option<&'static Region>,
    /// Finds the worker processes whose stages and queues belong to this run.
    pub workers: Option<Box<dyn Workers>>,
}

/// A running agent. Clones are the same agent; dropping it stops nothing.
#[derive(Debug, Clone)]
pub struct Agent(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    owner: Owner,
    clock: MonotonicClock,
    limits: Limits,
    watched: Arc<Watched>,
    queue: Arc<RecordQueue>,
    /// Read by the training thread once a batch.
    watching: Arc<AtomicBool>,
    consumer: ConsumerThread,
    rank_gpu: RankGpu,
    /// A destination tells of single steps.
    sample_steps: bool,
    sampler: Waker,
    terminator: Waker,
    requests: Mutex<Requests>,
    served: Condvar,
}

/// What the sampler was asked to do between two ticks.
#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    flushes: u64,
    flushed: u64,
    stopped: bool,
}

/// How stopping went.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// The run as a whole.
    pub summary: SummaryRecord,
    /// What the probes found.
    pub probes: Vec<ProbeRecord>,
    /// Whether everything was delivered in time.
    pub complete: bool,
    /// How long it took.
    pub took: Duration,
}

impl AgentBuilder {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`StartError`] for limits out of range, or a system that gives no thread.
    pub fn start(self) -> Result<Agent, StartError> {
        if self.limits.interval < Duration::from_millis(1) {
            return Err(StartError::Interval {
                given: self.limits.interval,
            });
        }
        let clock = self.clock;
        let mut run = self.run;
        run.process_started_unix_nano = self.process_age_s.and_then(|age_s| {
            let age = Duration::try_from_secs_f64(age_s).ok()? + clock.now();
            let age = u64::try_from(age.as_nanos()).ok()?;
            clock.unix_nanos().checked_sub(age)
        });
        let step_cost_ns = recorder::cost_per_batch_ns(&clock);
        let watched = Watched::new(
            NoticeLog::new(self.say),
            self.gpus,
            self.rank_gpu.clone(),
            self.process_age_s,
            step_cost_ns,
        );
        let inner = Arc::new(Inner {
            owner: Owner::here(),
            clock: clock.clone(),
            queue: Arc::new(RecordQueue::new(self.limits.queue_capacity.clamp(1, 4096))),
            limits: self.limits,
            watched: Arc::new(watched),
            watching: Arc::new(AtomicBool::new(true)),
            consumer: self.consumer,
            rank_gpu: self.rank_gpu,
            sample_steps: self.exporters.iter().any(|exporter| exporter.wants_steps()),
            sampler: Waker::new()?,
            terminator: Waker::new()?,
            requests: Mutex::default(),
            served: Condvar::new(),
        });
        let sampler = Sampler::new(
            Arc::clone(&inner.watched),
            Arc::clone(&inner.queue),
            Arc::new(clock.clone()),
            self.identity,
            run,
            attend(self.collectors, &clock, &inner.watched.notice_log),
            StageReader::new(self.stages, self.workers),
        );
        let (queue, watched, exporters) = (
            Arc::clone(&inner.queue),
            Arc::clone(&inner.watched),
            self.exporters,
        );
        let agent = Agent(inner);
        let (sampling, terminating) = (agent.clone(), agent.clone());
        let on_terminate = self.on_terminate;
        let started = spawn(
            "headspace-export",
            Box::new(move || dispatcher::run(&queue, exporters, &watched.notice_log)),
        )
        .and_then(|_| {
            spawn(
                "headspace-tick",
                Box::new(move || sampling.0.run_sampler(sampler)),
            )
        })
        .and_then(|_| {
            let work = move || terminating.await_termination(&*on_terminate);
            spawn("headspace-term", Box::new(work))
        });
        if let Err(error) = started {
            // Those that did start end by themselves.
            agent.0.lock().stop = true;
            agent.0.sampler.ring();
            agent.0.queue.close();
            return Err(error.into());
        }
        signal::listen(agent.0.terminator.descriptor());
        Ok(agent)
    }
}

fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(work)
}

/// Gives a thread to each source that wants one of its own. One that gets none is retired.
fn attend(
    collectors: Vec<Box<dyn Collector>>,
    clock: &MonotonicClock,
    notice_log: &NoticeLog,
) -> Sources {
    let mut sources = Vec::with_capacity(collectors.len());
    for collector in collectors {
        let Pace::Apart(pace) = collector.pace() else {
            sources.push(Source::Inline(collector));
            continue;
        };
        let name = collector.name();
        let (apart, attendant) = apart(name, pace);
        let clock = clock.clone();
        let work = Box::new(move || attendant.run(collector, &clock));
        match spawn(&format!("hs-{name}"), work) {
            Ok(_) => sources.push(Source::Apart(apart)),
            Err(error) => notice_log.post(&Notice::SourceOff {
                source: name,
                reason: format!("the system gives no thread for it: {error}"),
            }),
        }
    }
    Sources::new(sources)
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_sampler(&self, mut sampler: Sampler) {
        let mut schedule = Schedule::new(self.clock.now(), self.limits.interval);
        let mut watched = true;
        loop {
            let watching = self.watching.load(Ordering::Relaxed);
            if watching && !std::mem::replace(&mut watched, watching) {
                sampler.forget();
            }
            watched = watching;
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
                let late = schedule.take(now);
                if self.watching.load(Ordering::Relaxed) {
                    sampler.tick(late, false);
                }
            } else {
                // Woken early: a ring is half full.
                self.watched.drain();
            }
        }
    }

    /// Waits until `done`, at most until `timeout` has passed. Returns whether it is.
    fn wait(&self, timeout: Duration, done: impl Fn(&Requests) -> bool) -> bool {
        let (requests, _) = self
            .served
            .wait_timeout_while(self.lock(), timeout, |requests| !done(requests))
            .unwrap_or_else(PoisonError::into_inner);
        done(&requests)
    }
}

impl Agent {
    /// Watches one more loop.
    #[must_use]
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
        if inner.owner.is_here() {
            inner.watched.add(Arc::clone(&entry));
            if inner.watched.len() == 1 {
                // What runs here is written at once, for a run that does not live to its first tick.
                inner.lock().flushes += 1;
                inner.sampler.ring();
            }
        }
        entry
    }

    /// A batch of the loop of that name was looked at. Whether it is the first.
    #[must_use]
    pub fn describe_batch(&self, name: &str, batch: BatchRecord) -> bool {
        self.is_here() && self.0.watched.set_batch(name, batch)
    }

    /// Milliseconds of CPU time to hand over a mebibyte of shared memory on this machine.
    pub fn set_shared_mib_ms(&self, ms: f64) {
        self.0.watched.set_shared_mib_ms(ms);
    }

    /// Whether this is the process the agent was started in.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.0.owner.is_here()
    }

    /// Tells the user something, once.
    pub fn notice(&self, notice: &Notice) {
        if self.is_here() {
            self.0.watched.notice_log.post(notice);
        }
    }

    /// torch's current device on the thread of the training loop, as an epoch begins.
    pub fn report_torch_device(&self, ordinal: u32) {
        self.0.rank_gpu.bind_by_torch(ordinal);
    }

    /// Switches the watch off: batches pass uncounted and nothing is read.
    pub fn pause(&self) {
        self.0.watching.store(false, Ordering::Relaxed);
    }

    /// Switches the watch on again.
    pub fn resume(&self) {
        self.0.watching.store(true, Ordering::Relaxed);
        if self.is_here() {
            self.0.sampler.ring();
        }
    }

    /// The run so far, with the probes that have ended or go on.
    #[must_use]
    pub fn report(&self) -> (SummaryRecord, Vec<ProbeRecord>) {
        self.0.watched.report(self.0.clock.now(), RunState::Running)
    }

    /// Writes down what there is, as an extra tick. Returns whether it was delivered within
    /// `timeout`.
    #[expect(clippy::must_use_candidate, reason = "what counts is the effect")]
    pub fn flush(&self, timeout: Duration) -> bool {
        if !self.is_here() {
            return true;
        }
        let start = self.0.clock.now();
        let asked = {
            let mut requests = self.0.lock();
            requests.flushes += 1;
            requests.flushes
        };
        self.0.sampler.ring();
        self.0.wait(timeout, |requests| {
            requests.flushed >= asked || requests.stopped
        }) && self.0.queue.wait_empty(self.remaining(start, timeout))
    }

    /// An exception that nothing caught ends the program. Written down at the end of the watch; where
    /// batches were repeated in the epoch that it ended, the user is told, if it `is_error`: Ctrl-C
    /// is none.
    pub fn ended_by_exception(&self, exception: &str, is_error: bool) {
        if !self.is_here() {
            return;
        }
        let watched = &self.0.watched;
        watched.set_ended_by(EndRecord {
            cause: EndCause::Exception,
            name: exception.to_owned(),
        });
        for entry in watched.loops().iter().filter(|_| is_error) {
            if let Some(repeated) = entry.repeated_in_epoch() {
                self.notice(&Notice::ExceptionInProbe {
                    loop_name: entry.loader.name.clone(),
                    mode: entry.mode,
                    exception: exception.to_owned(),
                    repeated,
                    from: entry.loader.options_from.unwrap_or_default(),
                });
            }
        }
    }

    /// Ends the watch: a last tick, the final summary, and everything delivered, all within the
    /// limits' `stop_timeout`. Stopping twice, or in a forked child, does nothing.
    #[expect(clippy::must_use_candidate, reason = "what counts is the effect")]
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
            inner
                .watched
                .notice_log
                .post(&Notice::StopTimedOut { waited_s });
        }
        let alarm = inner.terminator.descriptor();
        signal::unlisten(alarm);
        inner.terminator.ring();
        let now = inner.clock.now();
        let (summary, probes) = inner.watched.report(now, RunState::Finished);
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

    /// The terminating thread: sleeps until the agent stops or the process is asked to end.
    fn await_termination(&self, on_terminate: &dyn Fn(&SummaryRecord, &[ProbeRecord])) {
        loop {
            self.0.terminator.sleep(None);
            match signal::arrived() {
                Some(Terminate::Yes) => {
                    self.0.watched.set_ended_by(EndRecord {
                        cause: EndCause::Signal,
                        name: "SIGTERM".to_owned(),
                    });
                    if let Some(stopped) = self.stop_within(TERMINATE_TIMEOUT) {
                        on_terminate(&stopped.summary, &stopped.probes);
                    }
                    signal::end_process();
                    return;
                }
                Some(Terminate::Perhaps) => {
                    self.flush(TERMINATE_TIMEOUT);
                }
                None if self.0.lock().stop => return,
                None => {}
            }
        }
    }
}
