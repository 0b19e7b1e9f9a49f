//! Samples the stacks of threads that are in a stage, on a thread of its own.
//!
//! The sampler passes the processes at each tick, and takes the samples since the tick before. Samples of a
//! tick with replayed steps are not used: the loader works differently then.
//!
//! The pause after a reading is a multiple of its CPU time, so the cost per process is bounded whatever the
//! number of threads. Pauses vary, so that no period of the program coincides with them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::stack::{StackSample, ThreadStack};
use crate::notice::Notice;
use crate::notice::log::NoticeLog;
use crate::port::CollectError;
use crate::port::catch_panics::contain;
use crate::port::clock::{ThreadTime, thread_cpu_time};
use crate::port::stacks::StackReader;
use crate::record::stage::Region;
use crate::record::stage::thread::stage_of;

/// Pause after a reading, as a multiple of its CPU time: 0.4 % of a core for each process.
const CPU_REST: u32 = 250;

/// Shortest and longest pause between two readings of all processes.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Maximum time that one sample stands for, in seconds.
const MAX_SECONDS: f64 = 2.0;

/// Name of this source in notices.
const NAME: &str = "stacks";

/// A process whose stacks are read.
#[derive(Debug, Clone, Copy)]
pub struct StackTarget {
    /// ID of the process.
    pub pid: u32,
    /// Where its threads show which stage they are in.
    pub region: &'static Region,
}

/// The sampler's side.
#[derive(Debug, Clone)]
pub struct StackSampling(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    closed: Condvar,
    cpu: ThreadTime,
}

#[derive(Debug, Default)]
struct State {
    targets: Vec<StackTarget>,
    samples: Vec<StackSample>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the thread that reads.
pub struct StackThread {
    shared: Arc<Shared>,
    reader: Box<dyn StackReader>,
    /// When each process was read last. Processes that cannot be read have no time.
    read_at: HashMap<u32, Option<Instant>>,
    /// State of the generator of pauses.
    random: u64,
}

/// Both sides of a reader of stacks.
pub fn stack_sampling(reader: Box<dyn StackReader>) -> (StackSampling, StackThread) {
    let shared = Arc::<Shared>::default();
    let thread = StackThread {
        shared: Arc::clone(&shared),
        reader,
        read_at: HashMap::new(),
        random: 0x9e37_79b9_7f4a_7c15,
    };
    (StackSampling(shared), thread)
}

impl StackSampling {
    /// Sets the processes to read, and returns the samples since the previous call.
    pub(crate) fn exchange(&self, targets: Vec<StackTarget>) -> Vec<StackSample> {
        let mut state = self.0.lock();
        state.targets = targets;
        std::mem::take(&mut state.samples)
    }

    /// CPU time of the thread that reads.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.0.cpu.get()
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
        self.0.closed.notify_all();
    }
}

impl StackThread {
    /// Reads until the sampler's side closes it.
    pub fn run(mut self, notice_log: &NoticeLog) {
        let mut pause = PAUSE.0;
        loop {
            let wait = self.vary(pause);
            let state = self.shared.lock();
            let (state, _) = (self.shared.closed)
                .wait_timeout_while(state, wait, |state| !state.closed)
                .unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return;
            }
            let targets = state.targets.clone();
            drop(state);
            let mut longest = Duration::ZERO;
            for target in &targets {
                let before = thread_cpu_time().unwrap_or_default();
                match contain(|| self.sample(target, notice_log)) {
                    Ok(()) => {}
                    Err(reason) => {
                        notice_log.post(&Notice::SourceOff {
                            source: NAME,
                            reason,
                        });
                        return;
                    }
                }
                let used = thread_cpu_time().unwrap_or_default().saturating_sub(before);
                longest = longest.max(used);
            }
            self.forget_all_but(&targets);
            self.shared.cpu.note();
            pause = (longest * CPU_REST).clamp(PAUSE.0, PAUSE.1);
        }
    }

    /// A pause of half to one and a half times this length.
    fn vary(&mut self, pause: Duration) -> Duration {
        // Xorshift (Marsaglia 2003): no statistical quality is needed.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        pause.mul_f64(0.5 + share)
    }

    fn sample(&mut self, target: &StackTarget, notice_log: &NoticeLog) {
        let now = Instant::now();
        let before = self.read_at.get(&target.pid).copied();
        if before == Some(None) {
            return;
        }
        let mut stacks = Vec::new();
        match self.reader.read(target.pid, &mut stacks) {
            Ok(()) => {}
            Err(CollectError::Transient(_)) => return,
            Err(error @ CollectError::Unsupported { .. }) => {
                self.read_at.insert(target.pid, None);
                notice_log.post(&Notice::SourceOff {
                    source: NAME,
                    reason: error.to_string(),
                });
                return;
            }
        }
        self.read_at.insert(target.pid, Some(now));
        // The first reading only attaches.
        let Some(Some(before)) = before else { return };
        let seconds = (now - before).as_secs_f64().min(MAX_SECONDS);
        let samples = stacks
            .into_iter()
            .filter_map(|stack| in_stage(target, stack, seconds));
        let samples: Vec<_> = samples.collect();
        self.shared.lock().samples.extend(samples);
    }

    fn forget_all_but(&mut self, targets: &[StackTarget]) {
        let reader = &mut self.reader;
        self.read_at.retain(|pid, _| {
            let kept = targets.iter().any(|target| target.pid == *pid);
            if !kept {
                reader.forget(*pid);
            }
            kept
        });
    }
}

/// The sample of a thread that is in a stage.
fn in_stage(target: &StackTarget, stack: ThreadStack, seconds: f64) -> Option<StackSample> {
    let number = stage_of(&target.region.threads, stack.tid)?;
    Some(StackSample {
        stage: target.region.stages.get(number)?.name.get()?,
        frames: stack.frames,
        activity: stack.activity,
        seconds,
    })
}
