//! Handles a driver that is slow to open: waits a short time, then lets each source wait.
//!
//! Opening NVML takes milliseconds if the driver is already running, and seconds if it must first
//! initialise eight GPUs. If a GPU hangs, it may never finish. Training must not wait for that, so a
//! separate thread opens the driver. Sources that are read earlier wait on their own threads.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
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

/// The result after the wait.
pub enum Opened {
    /// The sources.
    Now(Box<Gpus>),
    /// The sources `gpu`, `gpu_gpm` and `gpu_processes`, which wait until the GPUs are open.
    Later([LateSource; 3]),
}

/// GPUs that are being opened.
struct Opening {
    receiver: Receiver<Gpus>,
    /// What was received, without the sources that were taken.
    gpus: Option<Gpus>,
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
    let records = Arc::clone(records);
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let begun = Instant::now();
        let gpus = Gpus::open(library.as_deref(), visible.as_deref(), &rank_gpu);
        debug!(target: SOURCE, took = ?begun.elapsed(), gpus = gpus.records.len(), "GPU driver opened");
        let _ = records.set(gpus.records.clone());
        // Fails if the session has ended.
        let _ = sender.send(gpus);
    };
    let started = thread::Builder::new().name("hs-gpu-open".to_owned());
    if let Err(error) = started.spawn(work) {
        let reason = format!("the system cannot create a thread to open the driver: {error}");
        return Opened::Now(Box::new(Gpus::off(&CollectError::unsupported(reason))));
    }
    if let Ok(gpus) = receiver.recv_timeout(patience) {
        return Opened::Now(Box::new(gpus));
    }
    debug!(target: SOURCE, ?patience, "GPU driver is still opening");
    let opening = Opening {
        receiver,
        gpus: None,
    };
    let opening = Arc::new(Mutex::new(opening));
    let sources: [(&'static str, Take); 3] = [
        (super::NAME, |gpus| boxed(&mut gpus.device)),
        (gpm::NAME, |gpus| boxed(&mut gpus.gpm)),
        (processes::NAME, |gpus| boxed(&mut gpus.processes)),
    ];
    Opened::Later(sources.map(|(name, take)| LateSource {
        opening: Arc::clone(&opening),
        name,
        take,
        source: None,
    }))
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
    opening: Arc<Mutex<Opening>>,
    name: &'static str,
    take: Take,
    source: Option<Box<dyn Collector>>,
}

impl LateSource {
    fn opened(&mut self) -> Result<&mut Box<dyn Collector>, CollectError> {
        if let Some(source) = self.source.take() {
            return Ok(self.source.insert(source));
        }
        // Held while waiting: only these sources lock it, each on its own thread.
        let mut opening = lock(&self.opening);
        if opening.gpus.is_none() {
            opening.gpus = opening.receiver.recv().ok();
        }
        let source = opening.gpus.as_mut().map_or_else(
            || Err(CollectError::unsupported("the driver was not opened")),
            self.take,
        )?;
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
