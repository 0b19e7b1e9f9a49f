//! A training loop in Rust that reports its steps to the agent.
//!
//! ```console
//! $ cargo run --release --example training_loop
//! $ cargo run --release -p headspace -- report
//! ```
//!
//! A loader thread makes a batch every 8 ms. The "model" computes for 3 ms, so the loop waits.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headspace_agent::model::Mode;
use headspace_agent::model::record::{LoaderRecord, RunRecord};
use headspace_agent::port::MonotonicClock;
use headspace_agent::recording::Event;
use headspace_agent::runtime::{Agent, AgentBuilder, Limits};
use headspace_agent::sampling::sampler::Identity;
use headspace_agent::wording::verdict::Verdict;
use headspace_collectors::catalog::{Catalog, Settings};
use headspace_collectors::{host, process};
use headspace_exporters::encode::verdict_text::verdict_text;
use headspace_exporters::run_folder;
use headspace_exporters::transport::file::{FileExporter, FileLimits};

type Batch = Vec<f32>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let pid = std::process::id();
    let folder = run_folder::create("headspace-runs".as_ref(), u64::try_from(now)?, pid)?;
    let agent = start_agent(&folder)?;

    let loader = LoaderRecord {
        name: "train".into(),
        ..LoaderRecord::default()
    };
    let train = agent.add_loop(loader, Mode::Measure);
    let recorder = &train.recorder;

    recorder.mark(Event::BatchSize(32));
    for _epoch in 0..2 {
        recorder.mark(Event::EpochBegin {
            at: recorder.ticks(),
        });
        let batches = load(150);
        loop {
            let request = recorder.ticks();
            let Ok(batch) = batches.recv() else { break };
            recorder.lap(request, recorder.ticks());
            train_step(&batch);
        }
        recorder.mark(Event::EpochEnd { exhausted: true });
    }

    if let Some(run) = agent.stop() {
        let location = folder.display().to_string();
        let verdict = Verdict {
            location: Some(&location),
            ..Verdict::new(&run.summary)
        };
        print!("{}", verdict_text(&verdict));
    }
    Ok(())
}

/// Starts an agent with all sources that work on this machine. It writes the records to `folder`.
fn start_agent(folder: &Path) -> Result<Agent, Box<dyn std::error::Error>> {
    let settings = Settings::default();
    let catalog = Catalog::open(&settings);
    let agent = AgentBuilder {
        limits: Limits {
            interval: Duration::from_millis(500),
            ..Limits::default()
        },
        exporters: vec![Box::new(FileExporter::create(
            folder,
            0,
            FileLimits::default(),
        )?)],
        run: RunRecord {
            world_size: 1,
            host: host::describe(),
            sources: catalog.records(),
            ..RunRecord::default()
        },
        gpus: Arc::clone(&catalog.gpus),
        collectors: catalog.into_collectors(),
        identity: Identity {
            run_id: folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            rank: 0,
            pid: std::process::id(),
        },
        print_notice: Box::new(|notice| eprintln!("headspace: {notice}")),
        on_terminate: Box::new(|summary, _| eprint!("{}", verdict_text(&Verdict::new(summary)))),
        process_age_s: process::age().map(|age| age.as_secs_f64()),
        clock: MonotonicClock::new(),
        rank_gpu: settings.rank_gpu,
        consumer: settings.consumer,
        stages: None,
        workers: None,
        stacks: None,
    }
    .start()?;
    Ok(agent)
}

/// Starts a loader with one thread. Its queue holds at most four batches.
fn load(batches: usize) -> std::sync::mpsc::Receiver<Batch> {
    let (sender, receiver) = sync_channel(4);
    thread::spawn(move || {
        for _ in 0..batches {
            thread::sleep(Duration::from_millis(8));
            if sender.send(vec![0.5; 32]).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Simulates a training step: keeps the CPU busy for 3 ms.
fn train_step(batch: &Batch) {
    let start = Instant::now();
    let mut sum = 0.0;
    while start.elapsed() < Duration::from_millis(3) {
        sum += batch.iter().sum::<f32>();
    }
    std::hint::black_box(sum);
}
