//! Converts messages to the user to log records: notices, findings, the verdict and its remedies.
//!
//! All are events with a name, as OpenTelemetry's conventions require. The body is text for people, the
//! attributes are values for programs. OpenTelemetry's SDK creates the log records. A notice is sent
//! when it occurs. A finding is sent once, with the first steady-state summary that contains it; an
//! earlier one may only reflect the program's start. The verdict and the remedies are sent at the end
//! of the run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use headspace_agent::lock::lock;
use headspace_agent::model::record::{
    NoticeRecord, ProbeRecord, RemedyRecord, Resource as Shared, RunRecord, RunState, Severity,
    SummaryRecord,
};
use headspace_agent::model::{Mode, Record, RecordBody};
use headspace_agent::wording::verdict::Verdict;
use opentelemetry::logs::{
    AnyValue, LogRecord as _, Logger, LoggerProvider, Severity as LogSeverity,
};
use opentelemetry::{InstrumentationScope, Key};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider};

use super::bounded_queue::BoundedQueue;
use super::scope;
use super::trace_ids::{self, Parent};
use crate::encode::verdict_text::verdict_text;

/// The span to which log records belong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Context {
    /// No span: the run has no spans, and there is no launcher span.
    #[default]
    Nowhere,
    /// The run's own span, which is also sent to a collector.
    Run(Option<Parent>),
    /// The launcher's span, because the run has none.
    Launcher(Parent),
}

/// Log records that wait to be sent, and the state needed to create the next ones.
#[derive(Debug)]
pub struct Logs {
    /// The log records that wait to be sent.
    pub waiting: BoundedQueue<LogRecord>,
    logger: SdkLogger,
    emitted: Emitted,
    context: Context,
    run: Option<Box<RunRecord>>,
    probes: HashMap<String, ProbeRecord>,
    /// Findings already sent: the code, and its index among the findings with that code.
    found: HashSet<(String, usize)>,
}

impl Logs {
    /// Creates an empty set of log records.
    pub fn new(context: Context) -> Self {
        let emitted = Emitted::default();
        let provider = SdkLoggerProvider::builder()
            .with_log_processor(emitted.clone())
            .build();
        Self {
            waiting: BoundedQueue::default(),
            logger: provider.logger(scope().name),
            emitted,
            context,
            run: None,
            probes: HashMap::new(),
            found: HashSet::new(),
        }
    }

    /// Adds the log records of a record.
    pub fn add_record(&mut self, record: &Record) {
        match &record.body {
            RecordBody::Run(run) => self.run = Some(Box::new(run.clone())),
            RecordBody::Notice(notice) => self.emit(record, notice_event(notice)),
            RecordBody::Probe(probe) => {
                self.probes.insert(probe.loop_name.clone(), probe.clone());
            }
            RecordBody::Summary(summary) => self.add_summary(record, summary),
            RecordBody::Tick(_) | RecordBody::Epoch(_) | RecordBody::Stacks(_) => {}
        }
    }

    fn add_summary(&mut self, record: &Record, summary: &SummaryRecord) {
        let finished = summary.state == RunState::Finished;
        if finished || summary.steady_step_mean_ms.is_some() {
            let mut numbers: HashMap<&str, usize> = HashMap::new();
            for finding in &summary.findings {
                let number = numbers.entry(&finding.code).or_default();
                if self.found.insert((finding.code.clone(), *number)) {
                    let code = attribute("headspace.finding.code", finding.code.clone());
                    let event = event("headspace.finding", &finding.text, vec![code]);
                    self.emit(record, event);
                }
                *number += 1;
            }
        }
        if finished {
            for remedy in &summary.remedies {
                self.emit(record, remedy_event(remedy));
            }
            let verdict = self.verdict(summary);
            self.emit(record, verdict);
        }
    }

    fn verdict(&self, summary: &SummaryRecord) -> Event {
        let main = summary.loop_name.as_ref();
        let verdict = Verdict {
            run: self.run.as_deref(),
            probe: main.and_then(|name| self.probes.get(name)),
            ..Verdict::new(summary)
        };
        let text = verdict_text(&verdict);
        event(
            "headspace.verdict",
            text.trim_end(),
            verdict_attributes(summary),
        )
    }

    fn emit(&mut self, record: &Record, event: Event) {
        let time = UNIX_EPOCH + Duration::from_nanos(record.time_unix_nano);
        let mut log = self.logger.create_log_record();
        log.set_event_name(event.name);
        log.set_timestamp(time);
        log.set_observed_timestamp(time);
        log.set_severity_number(event.severity);
        log.set_severity_text(event.severity.name());
        log.set_body(event.body.into());
        log.add_attributes(event.attributes);
        match self.context {
            Context::Nowhere => {}
            Context::Run(parent) => {
                let trace = parent.map_or_else(|| trace_ids::trace_id(record), |p| p.trace_id);
                let flags = parent.map(|parent| parent.flags);
                log.set_trace_context(trace, trace_ids::run_span(record), flags);
            }
            Context::Launcher(parent) => {
                log.set_trace_context(parent.trace_id, parent.span_id, Some(parent.flags));
            }
        }
        self.logger.emit(log);
        for log in self.emitted.take() {
            self.waiting.push(log);
        }
    }
}

/// Receives the log records that the SDK emits. It has no thread, so a forked child may continue to use it.
#[derive(Debug, Clone, Default)]
struct Emitted(Arc<Mutex<Vec<LogRecord>>>);

impl Emitted {
    fn take(&self) -> Vec<LogRecord> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl LogProcessor for Emitted {
    fn emit(&self, log: &mut SdkLogRecord, _: &InstrumentationScope) {
        lock(&self.0).push((&*log).into());
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The export request with these log records.
pub fn request(log_records: Vec<LogRecord>, resource: Resource) -> ExportLogsServiceRequest {
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
}

/// A log record without its time and its span.
struct Event {
    name: &'static str,
    severity: LogSeverity,
    body: String,
    attributes: Vec<(Key, AnyValue)>,
}

/// An event of severity "info".
fn event(name: &'static str, body: &str, attributes: Vec<(Key, AnyValue)>) -> Event {
    Event {
        name,
        severity: LogSeverity::Info,
        body: body.to_owned(),
        attributes,
    }
}

fn attribute(key: impl Into<Key>, value: impl Into<AnyValue>) -> (Key, AnyValue) {
    (key.into(), value.into())
}

fn notice_event(notice: &NoticeRecord) -> Event {
    let code = attribute("headspace.notice.code", notice.code.clone());
    let mut event = event("headspace.notice", &notice.text, vec![code]);
    if notice.severity == Severity::Warning {
        event.severity = LogSeverity::Warn;
    }
    event
}

fn remedy_event(remedy: &RemedyRecord) -> Event {
    let mut attributes = vec![
        attribute("headspace.remedy.code", remedy.code.clone()),
        attribute(
            "headspace.remedy.predicted_step_ms",
            remedy.predicted_step_ms,
        ),
        attribute(
            "headspace.remedy.predicted_gain_pct",
            remedy.predicted_gain_pct,
        ),
        attribute("headspace.remedy.confidence", remedy.confidence),
        attribute("headspace.remedy.evidence", remedy.evidence.clone()),
    ];
    let resource = remedy.resource.map(Shared::as_str);
    let named = [("stage", remedy.stage.as_deref()), ("resource", resource)];
    for (what, name) in named {
        let key = format!("headspace.remedy.{what}");
        attributes.extend(name.map(|name| attribute(key, name.to_owned())));
    }
    if let Some(change) = &remedy.change {
        attributes.push(attribute("headspace.remedy.knob", change.knob.clone()));
        attributes.push(attribute("headspace.remedy.from", change.from.clone()));
        attributes.push(attribute("headspace.remedy.to", change.to.clone()));
    }
    event("headspace.remedy", &remedy.what, attributes)
}

/// The numbers of the verdict. Numbers that were not measured are absent.
fn verdict_attributes(summary: &SummaryRecord) -> Vec<(Key, AnyValue)> {
    let steps = i64::try_from(summary.steps).unwrap_or(i64::MAX);
    let mut attributes = vec![attribute("headspace.verdict.steps", steps)];
    let mut named = |what: &str, name: Option<&str>| {
        let key = format!("headspace.verdict.{what}");
        attributes.extend(name.map(|name| attribute(key, name.to_owned())));
    };
    named("mode", summary.mode.map(Mode::as_str));
    named("loop", summary.loop_name.as_deref());
    named("ended_by", summary.ended_by.as_ref().map(|end| &*end.name));
    if let Some(bottleneck) = &summary.bottleneck {
        named("bottleneck.kind", Some(bottleneck.kind.as_str()));
        named("bottleneck.name", bottleneck.name.as_deref());
        let confidence = "headspace.verdict.bottleneck.confidence";
        attributes.push(attribute(confidence, bottleneck.confidence));
    }
    for (what, value) in [
        ("step_ms", summary.steady_step_mean_ms),
        ("wait_ms", summary.wait_ms),
        ("compute_ms", summary.compute_ms),
        ("floor_step_ms", summary.floor_step_ms),
        ("headspace_pct", summary.headspace_pct),
        (
            "headspace_upper_bound_pct",
            summary.headspace_upper_bound_pct,
        ),
        ("max_speedup", summary.max_speedup),
    ] {
        attributes.extend(value.map(|value| attribute(format!("headspace.verdict.{what}"), value)));
    }
    attributes
}

#[cfg(test)]
mod tests;
