//! Starts the agent: its sources, its destinations and its threads.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::agent::{Agent, Inner};
use super::fork::Owner;
use super::limits::Limits;
use super::signal;
use super::wake::Waker;
use crate::analysis::resources::RankCounts;
use crate::delivery::{RecordQueue, export_thread};
use crate::model::record::{GpuRecord, ProbeRecord, RunRecord, SummaryRecord};
use crate::notice::log::PrintNotice;
use crate::notice::{Notice, NoticeLog};
use crate::port::{Clock, Collector, ConsumerThread, Exporter, MonotonicClock, Pace, StackReader};
use crate::recording::recorder;
use crate::recording::stage::{Region, Workers};
use crate::sampling::background_source::background_source;
use crate::sampling::sampler::{Identity, Inputs};
use crate::sampling::stacks::{self, stack_sampling};
use crate::sampling::{LiveRun, MemoryWatch, RankGpu, Sampler, Source, Sources, StageReader};

/// Stack size of the agent's threads. They have no deep recursion, and save address space for the user.
const STACK: usize = 512 * 1024;

/// Why the agent did not start. Training is not affected.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The interval is too short.
    #[error("`interval` is too short: {given:?} (at least 1 ms)")]
    Interval {
        /// The given interval.
        given: Duration,
    },
    /// The system has no thread or descriptor left.
    #[error("the agent's threads cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Receives the final summary and the records of the probes.
pub type OnTerminate = Box<dyn Fn(&SummaryRecord, &[ProbeRecord]) + Send>;

/// Configuration of an agent.
pub struct AgentBuilder {
    /// Interval, memory and time limits.
    pub limits: Limits,
    /// The sources of readings. `run` describes all sources, including those that are off.
    pub collectors: Vec<Box<dyn Collector>>,
    /// The destinations of records.
    pub exporters: Vec<Box<dyn Exporter>>,
    /// The first record.
    pub run: RunRecord,
    /// The GPUs that the process may use. They may be set later, because a driver may be slow. Then the
    /// run's record is written again.
    pub gpus: Arc<OnceLock<Vec<GpuRecord>>>,
    /// The process that writes the records.
    pub identity: Identity,
    /// Prints a notice.
    pub print_notice: PrintNotice,
    /// Called with the final summary when `SIGTERM` ends the process.
    pub on_terminate: OnTerminate,
    /// Seconds between the start of the process and the clock's origin.
    pub process_age_s: Option<f64>,
    /// The clock whose origin is the beginning of the run.
    pub clock: MonotonicClock,
    /// The thread that takes the batches. The loops write it, sources read it.
    pub consumer: ConsumerThread,
    /// The GPU that this rank computes on, for the sources that read GPUs.
    pub rank_gpu: RankGpu,
    /// The slots of this process's stages and queues.
    pub stages: Option<&'static Region>,
    /// Finds the worker processes of this run.
    pub workers: Option<Box<dyn Workers>>,
    /// Reads the stacks of this process and of its workers.
    pub stacks: Option<Box<dyn StackReader>>,
}

impl AgentBuilder {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`StartError`] if a limit is out of range, or the system has no thread or descriptor left.
    pub fn start(self) -> Result<Agent, StartError> {
        if self.limits.interval < Duration::from_millis(1) {
            return Err(StartError::Interval {
                given: self.limits.interval,
            });
        }
        let clock = self.clock;
        let mut run = self.run;
        run.process_started_unix_nano = process_started(&clock, self.process_age_s);
        let step_cost_ns = recorder::cost_per_batch_ns(&clock);
        let mut live_run = LiveRun::new(
            NoticeLog::new(self.print_notice),
            self.gpus,
            self.rank_gpu.clone(),
            RankCounts {
                in_run: run.world_size,
                on_node: run.ranks_on_node,
            },
            self.process_age_s,
            step_cost_ns,
        );
        live_run.memory = MemoryWatch::new(self.limits.interval);
        let inner = Arc::new(Inner {
            owner: Owner::here(),
            clock: clock.clone(),
            queue: Arc::new(RecordQueue::new(self.limits.queue_capacity.clamp(1, 4096))),
            limits: self.limits,
            live_run: Arc::new(live_run),
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
            Arc::clone(&inner.live_run),
            Arc::clone(&inner.queue),
            Arc::new(clock.clone()),
            self.identity,
            run,
            Inputs {
                sources: open_sources(self.collectors, &clock, &inner.live_run.notice_log),
                stages: StageReader::new(self.stages, self.workers),
            },
        );
        let agent = Agent(inner);
        let sampler = sample_stacks(&agent, sampler, self.stacks);
        if let Err(error) = start_threads(&agent, sampler, self.exporters, self.on_terminate) {
            // Threads that did start end by themselves.
            agent.0.lock().stop = true;
            agent.0.sampler.ring();
            agent.0.queue.close();
            return Err(error.into());
        }
        signal::listen(agent.0.terminator.descriptor());
        Ok(agent)
    }
}

/// Starts the thread that reads stacks. Without a thread, there are no stacks.
fn sample_stacks(agent: &Agent, sampler: Sampler, reader: Option<Box<dyn StackReader>>) -> Sampler {
    let Some(reader) = reader else { return sampler };
    let (sampling, thread) =
        stack_sampling(reader, agent.0.consumer.clone(), agent.0.clock.clone());
    let live_run = Arc::clone(&agent.0.live_run);
    let work = Box::new(move || thread.run(&live_run.notice_log));
    match spawn("headspace-stack", work) {
        Ok(_) => sampler.with_stacks(sampling),
        Err(error) => {
            agent.0.live_run.notice_log.post(&Notice::SourceOff {
                source: stacks::NAME,
                reason: error.to_string(),
            });
            sampler
        }
    }
}

/// Start time of the process, in nanoseconds since 1970-01-01 UTC. `age_s` is its age at the clock's origin.
fn process_started(clock: &MonotonicClock, age_s: Option<f64>) -> Option<u64> {
    let age = Duration::try_from_secs_f64(age_s?).ok()? + clock.now();
    let age = u64::try_from(age.as_nanos()).ok()?;
    clock.unix_nanos().checked_sub(age)
}

fn start_threads(
    agent: &Agent,
    sampler: Sampler,
    exporters: Vec<Box<dyn Exporter>>,
    on_terminate: OnTerminate,
) -> std::io::Result<()> {
    let (queue, live_run) = (Arc::clone(&agent.0.queue), Arc::clone(&agent.0.live_run));
    let (sampling, terminating) = (agent.clone(), agent.clone());
    spawn(
        "headspace-export",
        Box::new(move || export_thread::run(&queue, exporters, &live_run.notice_log)),
    )?;
    spawn(
        "headspace-tick",
        Box::new(move || sampling.0.run_sampler(sampler)),
    )?;
    let work = move || terminating.await_termination(&*on_terminate);
    spawn("headspace-term", Box::new(work))?;
    Ok(())
}

fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(work)
}

/// Starts a thread for each background source. A source is retired if the system has no thread left.
fn open_sources(
    collectors: Vec<Box<dyn Collector>>,
    clock: &MonotonicClock,
    notice_log: &NoticeLog,
) -> Sources {
    let mut sources = Vec::with_capacity(collectors.len());
    for collector in collectors {
        let Pace::Background(pace) = collector.pace() else {
            sources.push(Source::Inline(collector));
            continue;
        };
        let name = collector.name();
        let (source, source_thread) = background_source(name, pace);
        let clock = clock.clone();
        let work = Box::new(move || source_thread.run(collector, &clock));
        match spawn(&format!("hs-{name}"), work) {
            Ok(_) => sources.push(Source::Background(source)),
            Err(error) => notice_log.post(&Notice::SourceOff {
                source: name,
                reason: format!("the system cannot create a thread for it: {error}"),
            }),
        }
    }
    Sources::new(sources)
}
