//! A loader that is instrumented with `tracing`: headspace takes its spans as stages.
//!
//! ```console
//! $ cargo run --release --example traced_loader
//! ```
//!
//! `loader.rs` knows nothing of headspace. Here the agent is started, [`StageLayer`] added to the
//! program's subscriber, and the training loop times its batches. The verdict names the span that limits
//! training.

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

/// Batches of the run.
const BATCHES: usize = 300;

fn main() -> Outcome<()> {
    let summary = train("headspace-runs".as_ref())?;
    print!("{}", verdict_text(&Verdict::new(&summary)));
    Ok(())
}

/// Trains, watched. The records go into a folder below `runs`.
pub(crate) fn train(runs: &Path) -> Outcome<SummaryRecord> {
    let clock = MonotonicClock::new();
    let stages = StageLayer::new(&clock)?;
    let agent = start(runs, clock, stages.region())?;
    // Spans of the loader are stages, but for the fine ones. The program's own layers (its log, its
    // exporter of traces) stand beside this one.
    let spans = Targets::new().with_target(loader_target(), LevelFilter::INFO);
    let subscriber = tracing_subscriber::registry().with(stages.with_filter(spans));
    tracing::subscriber::with_default(subscriber, || watch(&agent));
    let stopped = agent.stop().ok_or("the agent had stopped before")?;
    Ok(stopped.summary)
}

/// The module path of the loader, which is the target of its spans.
fn loader_target() -> String {
    format!("{}::loader", module_path!())
}

/// The training loop, with each batch timed.
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

/// A model: busy for 3 ms.
fn train_step(batch: &loader::Batch) {
    let start = Instant::now();
    let mut sum = 0.0;
    while start.elapsed() < Duration::from_millis(3) {
        sum += batch.iter().sum::<f32>();
    }
    std::hint::black_box(sum);
}
