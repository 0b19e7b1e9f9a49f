//! Measures a loader that is instrumented with `tracing`. Each of its spans is a stage for headspace.
//!
//! ```console
//! $ cargo run --release --example traced_loader
//! ```
//!
//! `loader.rs` does not use headspace. This file starts the agent, adds [`StageLayer`] to the program's
//! subscriber, and times each batch of the training loop. The verdict names the span that limits training.

mod loader;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headspace_agent::model::Mode;
use headspace_agent::model::record::{LoaderRecord, RunRecord, SummaryRecord};
use headspace_agent::port::{ConsumerThread, MonotonicClock};
use headspace_agent::recording::Event;
use headspace_agent::recording::stage::Region;
use headspace_agent::runtime::{Agent, AgentBuilder, Limits};
use headspace_agent::sampling::RankGpu;
use headspace_agent::sampling::sampler::Identity;
use headspace_agent::wording::verdict::Verdict;
use headspace_collectors::tracing::StageLayer;
use headspace_exporters::encode::verdict_text::verdict_text;
use headspace_exporters::run_folder;
use headspace_exporters::transport::file::{FileExporter, FileLimits};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Number of batches in the run.
const BATCHES: usize = 300;

fn main() -> Outcome<()> {
    let summary = train("headspace-runs".as_ref())?;
    print!("{}", verdict_text(&Verdict::new(&summary)));
    Ok(())
}

/// Trains while the agent measures, and returns the summary. The records are written to a new folder in `runs`.
pub(crate) fn train(runs: &Path) -> Outcome<SummaryRecord> {
    let clock = MonotonicClock::new();
    let stages = StageLayer::new(&clock)?;
    let agent = start(runs, clock, stages.region())?;
    // Only the loader's spans at level `INFO` or above become stages. A real program adds its own layers
    // to the same subscriber, for example for its log or for the export of traces.
    let spans = Targets::new().with_target(loader_target(), LevelFilter::INFO);
    let subscriber = tracing_subscriber::registry().with(stages.with_filter(spans));
    tracing::subscriber::with_default(subscriber, || watch(&agent));
    let stopped = agent.stop().ok_or("the agent had stopped before")?;
    Ok(stopped.summary)
}

/// The target of the loader's spans: by default, `tracing` uses the module path.
fn loader_target() -> String {
    format!("{}::loader", module_path!())
}

/// Runs the training loop and times each batch.
fn watch(agent: &Agent) {
    let train = LoaderRecord {
        name: "train".into(),
        ..LoaderRecord::default()
    };
    let train = agent.add_loop(train, Mode::Measure);
    let recorder = &train.recorder;
    recorder.mark(Event::EpochBegin {
        at: recorder.ticks(),
    });
    let batches = loader::load(BATCHES);
    loop {
        let request = recorder.ticks();
        let Ok(batch) = batches.recv() else { break };
        recorder.lap(request, recorder.ticks());
        train_step(&batch);
    }
    recorder.mark(Event::EpochEnd { exhausted: true });
}

fn start(runs: &Path, clock: MonotonicClock, stages: &'static Region) -> Outcome<Agent> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let pid = std::process::id();
    let folder = run_folder::create(runs, u64::try_from(now)?, pid)?;
    let run_id = folder.file_name().unwrap_or_default().to_string_lossy();
    let agent = AgentBuilder {
        limits: Limits {
            interval: Duration::from_millis(200),
            ..Limits::default()
        },
        exporters: vec![Box::new(FileExporter::create(
            &folder,
            0,
            FileLimits::default(),
        )?)],
        run: RunRecord {
            world_size: 1,
            ..RunRecord::default()
        },
        gpus: Arc::new(OnceLock::new()),
        collectors: Vec::new(),
        identity: Identity {
            run_id: run_id.into_owned(),
            rank: 0,
            pid,
        },
        print_notice: Box::new(|notice| eprintln!("headspace: {notice}")),
        on_terminate: Box::new(|summary, _| eprint!("{}", verdict_text(&Verdict::new(summary)))),
        process_age_s: None,
        clock,
        rank_gpu: RankGpu::default(),
        consumer: ConsumerThread::default(),
        stages: Some(stages),
        workers: None,
        stacks: None,
    };
    Ok(agent.start()?)
}

/// Simulates a training step: keeps the CPU busy for 3 ms.
fn train_step(batch: &loader::Batch) {
    let start = Instant::now();
    let mut sum = 0.0;
    while start.elapsed() < Duration::from_millis(3) {
        sum += batch.iter().sum::<f32>();
    }
    std::hint::black_box(sum);
}
