//! Tests the agent's own log: if it is enabled, every documented target writes an event, and every documented span
//! is opened. If it is disabled, both cost almost nothing.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use headspace_agent::model::record::{LoaderRecord, RunRecord};
use headspace_agent::model::{Mode, Reading, Record, RecordBody, log_target};
use headspace_agent::port::{
    CollectError, Collector, ConsumerThread, ExportError, Exporter, MonotonicClock, StackReader,
};
use headspace_agent::recording::stage::Workers;
use headspace_agent::runtime::{AgentBuilder, Limits};
use headspace_agent::sampling::RankGpu;
use headspace_agent::sampling::sampler::Identity;
use headspace_collectors::catalog::{Catalog, Settings};
use headspace_collectors::log_target::{SOURCE, STACKS, WORKERS};
use headspace_collectors::stacks::PythonStacks;
use headspace_collectors::workers::{Folders, FoundWorkers, WorkerFile};
use headspace_exporters::log_target::{DELIVERY, FILE, PROMETHEUS};
use headspace_exporters::transport::background::{
    BackgroundExporter, Deliver, Failure, Pace, Retry, Shared, State,
};
use headspace_exporters::transport::file::{FileExporter, FileLimits};
use headspace_exporters::transport::prometheus::PrometheusExporter;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The targets of the events of all threads, and the names and targets of the spans.
#[derive(Debug, Clone, Default)]
struct Heard {
    targets: Arc<Mutex<BTreeSet<String>>>,
    spans: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl<S: Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target().to_owned();
        self.targets.lock().unwrap().insert(target);
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let (name, target) = (span.metadata().name(), span.metadata().target());
        let span = (name.to_owned(), target.to_owned());
        self.spans.lock().unwrap().insert(span);
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

/// A destination that no longer exists.
struct Gone;

impl Exporter for Gone {
    fn name(&self) -> &'static str {
        "gone"
    }

    fn export(&mut self, _: &[Record]) -> Result<(), ExportError> {
        Err(ExportError::Closed("it is gone".to_owned()))
    }
}

/// A destination that the network cannot reach.
#[derive(Debug, Clone)]
struct Unreachable;

impl State for Unreachable {
    fn add_record(&mut self, _: &Record) {}
}

impl Deliver<Self> for Unreachable {
    fn deliver(&mut self, _: &Shared<Self>, _: Duration) -> Result<(), Failure> {
        Err(Failure::passing("nobody is there", Retry::Soon))
    }
}

/// A complete run in which every target of the agent has an event.
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

/// Opens the sources, finds a worker, and fails to attach to this process, which has no Python.
fn use_collectors() {
    drop(Catalog::open(&Settings::default()));
    let folder = tempfile::tempdir().unwrap();
    let marker = Folders::below(&[folder.path()]).mark().unwrap();
    let _worker = WorkerFile::create(&marker, None, true).unwrap();
    assert_eq!(FoundWorkers::below(marker).find().len(), 1);
    let mut stacks = PythonStacks::new(Vec::new());
    stacks
        .read(std::process::id(), &[], &mut Vec::new())
        .unwrap_err();
}

/// Rotates a record file, and answers a scrape.
fn use_exporters() {
    let folder = tempfile::tempdir().unwrap();
    let limits = FileLimits {
        rotate_bytes: 1,
        ..FileLimits::default()
    };
    let mut file = FileExporter::create(folder.path(), 0, limits).unwrap();
    let run = Record {
        schema: headspace_agent::model::record::SCHEMA.to_owned(),
        time_unix_nano: 1,
        run_id: "logged".to_owned(),
        rank: 0,
        pid: std::process::id(),
        body: RecordBody::Run(RunRecord::default()),
    };
    file.export(&[run]).unwrap();
    let prometheus = PrometheusExporter::open("127.0.0.1", 0).unwrap();
    let mut scrape = TcpStream::connect(prometheus.address()).unwrap();
    scrape
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    scrape.read_to_end(&mut Vec::new()).unwrap();
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

/// The spans in the second table of that section, with their targets.
fn documented_spans() -> BTreeSet<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| span | target |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(cell);
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

#[test]
fn documented_log_targets_are_logged_only_when_enabled() {
    run();
    use_collectors();
    use_exporters();
    // `tracing` reads this level first, which costs one load. If it is `OFF`, nothing else is checked.
    assert_eq!(LevelFilter::current(), LevelFilter::OFF);

    let heard = Heard::default();
    let filter = "headspace_agent=trace,headspace_collectors=trace,headspace_exporters=trace";
    let filter: EnvFilter = filter.parse().unwrap();
    tracing_subscriber::registry()
        .with(heard.clone().with_filter(filter))
        .init();
    run();
    use_collectors();
    use_exporters();

    let ours = [
        log_target::TICK,
        log_target::SOURCE,
        log_target::PROBE,
        log_target::SUMMARY,
        log_target::EXPORT,
        SOURCE,
        WORKERS,
        STACKS,
        FILE,
        PROMETHEUS,
        DELIVERY,
    ];
    let ours: BTreeSet<_> = ours.map(ToOwned::to_owned).into();
    assert_eq!(*heard.targets.lock().unwrap(), ours);
    assert_eq!(*heard.spans.lock().unwrap(), documented_spans());
    let documented: BTreeSet<_> = documented()
        .into_iter()
        .filter(|target| !target.starts_with("headspace_py"))
        .collect();
    assert_eq!(documented, ours);
}
