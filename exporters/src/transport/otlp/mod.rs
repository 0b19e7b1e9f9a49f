//! Exports to an OpenTelemetry collector: metrics and logs, and spans and profiles on request.
//!
//! Each signal is a separate destination with its own thread ([`background`](super::background)). A collector
//! that is slow, unreachable or faulty therefore does not delay the training. A signal that is refused
//! or throttled does not delay the others. Metrics are exported every interval as the current state of
//! the run. They are cumulative, so the next export makes up for a missed one. Spans and log records
//! wait in a bounded queue.

mod connection;
mod export_request;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod http;
mod partial_success;
pub mod settings;
mod signals;

use headspace_agent::notice::Notice;
use headspace_agent::port::Exporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;

use self::connection::Connection;
use self::settings::{Arguments, Settings, Target};
use self::signals::{Sender, Signal};
use super::background::{BackgroundExporter, Deliver, Pace, State};
use crate::encode::otlp::logs::{Context, Logs};
use crate::encode::otlp::profiles::Profiles;
use crate::encode::otlp::resource::Process;
use crate::encode::otlp::spans::Spans;
use crate::encode::otlp::trace_ids::Parent;
use crate::encode::snapshot::Snapshot;

/// An exporter for each signal, and a notice for each setting that could not be read.
pub type Opened = (Vec<Box<dyn Exporter>>, Vec<Notice>);

/// The name of all signals in notices.
const NAME: &str = "otlp";

/// The environment variable through which a launcher passes its trace context.
const PARENT: &str = "TRACEPARENT";

/// Creates an exporter for each signal that OpenTelemetry's own variables do not disable. Does not
/// connect yet.
///
/// # Errors
///
/// Returns an error if the system cannot create a thread.
pub fn open(arguments: &Arguments, local_rank: u32, world_size: u32) -> std::io::Result<Opened> {
    let settings = Settings::read(arguments, &|name| std::env::var(name).ok());
    let mut notices = settings.notices;
    let process = Process {
        attributes: user_attributes(),
        // Process ids are not unique across containers, and host names not across machines.
        instance_id: uuid::Uuid::new_v4().to_string(),
        local_rank,
        world_size,
    };
    let mut connect = |target: Option<Target>| match target.map(Connection::open).transpose() {
        Ok(connection) => connection,
        Err(notice) => {
            notices.push(notice);
            None
        }
    };
    let metrics = connect(settings.metrics);
    let traces = connect(settings.traces);
    let logs = connect(settings.logs);
    let profiles = connect(settings.profiles);
    let parent = if traces.is_some() || logs.is_some() {
        read_parent(std::env::var(PARENT).ok(), &mut notices)
    } else {
        None
    };
    let context = match (&traces, parent) {
        (Some(_), parent) => Context::Run(parent),
        (None, Some(parent)) => Context::Launcher(parent),
        (None, None) => Context::Nowhere,
    };
    let pace = settings.pace;
    let exporters = [
        start(Snapshot::default(), metrics, &process, pace)?,
        start(Spans::new(parent), traces, &process, pace)?,
        start(Logs::new(context), logs, &process, pace)?,
        start(Profiles::default(), profiles, &process, pace)?,
    ];
    Ok((exporters.into_iter().flatten().collect(), notices))
}

/// Starts the thread of one signal, if it has a connection.
fn start<S: State>(
    state: S,
    connection: Option<Connection>,
    process: &Process,
    pace: Pace,
) -> std::io::Result<Option<Box<dyn Exporter>>>
where
    Sender: Deliver<Signal<S>>,
{
    let Some(connection) = connection else {
        return Ok(None);
    };
    let process = process.clone();
    let sender = Sender {
        connection,
        process,
    };
    let exporter = BackgroundExporter::start(NAME, Signal::new(state), sender, pace)?;
    Ok(Some(Box::new(exporter)))
}

/// The launcher's span. If it cannot be parsed, a notice reports it, and the run starts its own trace.
fn read_parent(variable: Option<String>, notices: &mut Vec<Notice>) -> Option<Parent> {
    let text = variable.filter(|text| !text.trim().is_empty())?;
    match text.trim().parse() {
        Ok(parent) => Some(parent),
        Err(problem) => {
            notices.push(Notice::SettingRefused {
                setting: PARENT.to_owned(),
                problem: format!("{problem}. The run starts a new trace."),
            });
            None
        }
    }
}

/// The attributes in `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`. The latter takes precedence.
fn user_attributes() -> Vec<(String, String)> {
    let detected = Resource::builder_empty()
        .with_detector(Box::new(EnvResourceDetector::new()))
        .build();
    let mut found: Vec<_> = detected
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let service = std::env::var("OTEL_SERVICE_NAME").ok();
    if let Some(service) = service.filter(|name| !name.is_empty()) {
        found.push(("service.name".to_owned(), service));
    }
    found
}

#[cfg(test)]
mod tests;
