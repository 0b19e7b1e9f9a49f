//! Handles a driver that is slow to open: waits a short time, then lets each source wait.
//!
//! Opening NVML takes milliseconds if the driver is already running, and seconds if it must first
//! initialise eight GPUs. If a GPU hangs, it may never finish. Training must not wait for that, so a
//! separate thread opens the driver. Sources that are read earlier wait on their own threads.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::model::Reading;
use headspace_agent::model::record::GpuRecord;
use headspace_agent::port::{CollectError, Collector, Pace};
use headspace_agent::sampling::RankGpu;
use tracing::debug;

use super::{Gpus, gpm, processes, read_interval};
use crate::log_target::SOURCE;

/// The GPUs that the process may use, once they are known.
pub type GpuRecords = Arc<OnceLock<Vec<GpuRecord>>>;

/// GPUs that are being opened. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Opening(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    gpus: Mutex<Option<Gpus>>,
    done: Condvar,
}

/// The result after the wait.
#[derive(Debug)]
pub enum Opened {
    /// The sources.
    Now(Box<Gpus>),
    /// They are still being opened.
    Later(Opening),
}

/// Opens the GPUs (see [`Gpus::open`]), and waits at most `patience` for that. `records` is set as soon
/// as the GPUs are known, even later.
pub fn open_within(
    library: Option<PathBuf>,
    visible: Option<String>,
    rank_gpu: RankGpu,
    patience: Duration,
    records: &GpuRecords,
) -> Opened {
    let opening = Opening::default();
    let (of_thread, records) = (opening.clone(), Arc::clone(records));
    let work = move || {
        let begun = Instant::now();
        let gpus = Gpus::open(library.as_deref(), visible.as_deref(), &rank_gpu);
        debug!(target: SOURCE, took = ?begun.elapsed(), gpus = gpus.records.len(), "GPU driver opened");
        let _ = records.set(gpus.records.clone());
        *of_thread.lock() = Some(gpus);
        of_thread.0.done.notify_all();
    };
    let started = thread::Builder::new().name("hs-gpu-open".to_owned());
    if let Err(error) = started.spawn(work) {
        let reason = format!("the system cannot create a thread to open the driver: {error}");
        return Opened::Now(Box::new(Gpus::off(&CollectError::unsupported(reason))));
    }
    if let Some(gpus) = opening.take_within(patience) {
        return Opened::Now(Box::new(gpus));
    }
    debug!(target: SOURCE, ?patience, "GPU driver is still opening");
    Opened::Later(opening)
}

impl Opening {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Gpus>> {
        lock(&self.0.gpus)
    }

    fn take_within(&self, patience: Duration) -> Option<Gpus> {
        let (mut gpus, _) = self
            .0
            .done
            .wait_timeout_while(self.lock(), patience, |gpus| gpus.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        gpus.take()
    }

    /// The sources `gpu`, `gpu_gpm` and `gpu_processes`, which wait until the GPUs are open.
    pub fn sources(&self) -> [LateSource; 3] {
        let sources: [(&'static str, Take); 3] = [
            (super::NAME, |gpus| boxed(&mut gpus.device)),
            (gpm::NAME, |gpus| boxed(&mut gpus.gpm)),
            (processes::NAME, |gpus| boxed(&mut gpus.processes)),
        ];
        sources.map(|(name, take)| LateSource {
            opening: self.clone(),
            name,
            take,
            source: None,
        })
    }
}

/// Takes a source out of its place.
fn boxed<C: Collector>(
    place: &mut Result<C, CollectError>,
) -> Result<Box<dyn Collector>, CollectError> {
    let taken = Err(CollectError::unsupported("it was read already"));
    std::mem::replace(place, taken).map(|source| Box::new(source) as Box<dyn Collector>)
}

type Take = fn(&mut Gpus) -> Result<Box<dyn Collector>, CollectError>;

/// A source that waits for its driver, on the thread that reads the source.
pub struct LateSource {
    opening: Opening,
    name: &'static str,
    take: Take,
    source: Option<Box<dyn Collector>>,
}

impl LateSource {
    fn opened(&mut self) -> Result<&mut Box<dyn Collector>, CollectError> {
        if let Some(source) = self.source.take() {
            return Ok(self.source.insert(source));
        }
        let shared = &self.opening.0;
        let mut gpus = shared
            .done
            .wait_while(self.opening.lock(), |gpus| gpus.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let source = gpus.as_mut().map_or_else(
            || Err(CollectError::unsupported("the driver was not opened")),
            self.take,
        )?;
        drop(gpus);
        Ok(self.source.insert(source))
    }
}

impl Collector for LateSource {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pace(&self) -> Pace {
        Pace::Background(read_interval::FASTEST)
    }

    fn collect(&mut self, at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        self.opened()?.collect(at, out)
    }

    fn cpu_time(&self) -> Duration {
        self.source
            .as_ref()
            .map_or(Duration::ZERO, |source| source.cpu_time())
    }
}
