//! The agent's own log: every documented target writes an event when it is enabled, and costs nothing
//! when the log is disabled.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use headspace_agent::model::record::{LoaderRecord, RunRecord};
use headspace_agent::model::{Mode, Reading, Record, log_target};
use headspace_agent::port::{
    CollectError, Collector, ConsumerThread, ExportError, Exporter, MonotonicClock,
};
use headspace_agent::runtime::{AgentBuilder, Limits};
use headspace_agent::sampling::RankGpu;
use headspace_agent::sampling::sampler::Identity;
use headspace_exporters::transport::background::{
    BackgroundExporter, DELIVERY, Deliver, Failure, Pace, Retry, Shared, State,
};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The targets of the events of all threads.
#[derive(Debug, Clone, Default)]
struct Heard(Arc<Mutex<BTreeSet<String>>>);

impl<S: Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target().to_owned();
        self.0.lock().unwrap().insert(target);
    }
}

/// A source that stops working.
struct Broken;

impl Collector for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn collect(&mut self, _: Duration, _: &mut Vec<Reading>) -> Result<(), CollectError> {
        Err(CollectError::unsupported("it is broken"))
    }
}

/// A destination that is gone.
struct Gone;

impl Exporter for Gone {
    fn name(&self) -> &'static str {
        "gone"
    }

    fn export(&mut self, _: &[Record]) -> Result<(), ExportError> {
        Err(ExportError::Closed("it is gone".to_owned()))
    }
}

/// A destination behind a network that takes nothing.
#[derive(Debug, Clone)]
struct Unreachable;

impl State for Unreachable {
    fn take(&mut self, _: &Record) {}
}

impl Deliver<Self> for Unreachable {
    fn deliver(&mut self, _: &Shared<Self>, _: Duration) -> Result<(), Failure> {
        Err(Failure::passing("nobody is there", Retry::Soon))
    }
}

/// A run from its start to its end, in which something of every target happens.
fn run() {
    let pace = Pace {
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
    };
    let unreachable =
        BackgroundExporter::start("unreachable", Unreachable, Unreachable, pace).unwrap();
    let agent = AgentBuilder {
        limits: Limits::default(),
        collectors: vec![Box::new(Broken)],
        exporters: vec![Box::new(Gone), Box::new(unreachable)],
        run: RunRecord::default(),
        gpus: Arc::new(OnceLock::new()),
        identity: Identity {
            run_id: "logged".to_owned(),
            rank: 0,
            pid: std::process::id(),
        },
        print_notice: Box::new(|_| ()),
        on_terminate: Box::new(|_, _| ()),
        process_age_s: None,
        clock: MonotonicClock::new(),
        consumer: ConsumerThread::default(),
        rank_gpu: RankGpu::default(),
        stages: None,
        workers: None,
        stacks: None,
    }
    .start()
    .unwrap();
    let probed = agent.add_loop(LoaderRecord::default(), Mode::Probe);
    probed.finish_probe();
    agent.stop().unwrap();
}

/// The targets in the table of docs/commands.md.
fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let first_cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `headspace_")?.split_once('`'));
    first_cells
        .map(|(rest, _)| format!("headspace_{rest}"))
        .collect()
}

#[test]
fn documented_log_targets_are_logged_only_when_enabled() {
    run();
    // `tracing` first reads this level, at the cost of one load. `OFF` ends the check.
    assert_eq!(LevelFilter::current(), LevelFilter::OFF);

    let heard = Heard::default();
    let filter: EnvFilter = "headspace_agent=debug,headspace_exporters=debug"
        .parse()
        .unwrap();
    tracing_subscriber::registry()
        .with(heard.clone().with_filter(filter))
        .init();
    run();

    let ours = [
        log_target::TICK,
        log_target::SOURCE,
        log_target::PROBE,
        log_target::SUMMARY,
        log_target::EXPORT,
        DELIVERY,
    ];
    let ours: BTreeSet<_> = ours.map(ToOwned::to_owned).into();
    assert_eq!(*heard.0.lock().unwrap(), ours);
    let documented: BTreeSet<_> = documented()
        .into_iter()
        .filter(|target| !target.starts_with("headspace_py"))
        .collect();
    assert_eq!(documented, ours);
}
