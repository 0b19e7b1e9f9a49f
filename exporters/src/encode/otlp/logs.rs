//! Converts messages to the user to log records: notices, findings, the verdict and its remedies.
//!
//! All are events with a name, as OpenTelemetry's conventions require. The body is text for people, the
//! attributes are values for programs. A notice is sent when it occurs. A finding is sent once, with
//! the first steady-state summary that contains it; an earlier one may only reflect the program's
//! start. The verdict and the remedies are sent at the end of the run.

use std::collections::{HashMap, HashSet};

use headspace_agent::model::record::{
    NoticeRecord, ProbeRecord, RemedyRecord, Resource as Shared, RunRecord, RunState, Severity,
    SummaryRecord,
};
use headspace_agent::model::{Mode, Record, RecordBody};
use headspace_agent::wording::verdict::Verdict;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::bounded_queue::BoundedQueue;
use super::trace_ids::{self, Parent};
use super::{count, number, scope, text};
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
#[derive(Debug, Clone, Default)]
pub struct Logs {
    /// The log records that wait to be sent.
    pub waiting: BoundedQueue<LogRecord>,
    context: Context,
    run: Option<Box<RunRecord>>,
    probes: HashMap<String, ProbeRecord>,
    /// Findings already sent: the code, and its index among the findings with that code.
    found: HashSet<(String, usize)>,
}

impl Logs {
    /// Creates an empty set of log records.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            ..Self::default()
        }
    }

    /// Adds the log records of a record.
    pub fn add_record(&mut self, record: &Record) {
        match &record.body {
            RecordBody::Run(run) => self.run = Some(Box::new(run.clone())),
            RecordBody::Notice(notice) => self.add_log(record, notice_event(notice)),
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
                    let code = text("headspace.finding.code", &finding.code);
                    let event = event("headspace.finding", &finding.text, vec![code]);
                    self.add_log(record, event);
                }
                *number += 1;
            }
        }
        if finished {
            for remedy in &summary.remedies {
                self.add_log(record, remedy_event(remedy));
            }
            let verdict = self.verdict(summary);
            self.add_log(record, verdict);
        }
    }

    fn verdict(&self, summary: &SummaryRecord) -> LogRecord {
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

    fn add_log(&mut self, record: &Record, mut log: LogRecord) {
        log.time_unix_nano = record.time_unix_nano;
        log.observed_time_unix_nano = record.time_unix_nano;
        let parent = match self.context {
            Context::Nowhere => None,
            Context::Run(parent) => {
                log.trace_id = trace_ids::trace_id(record);
                log.span_id = trace_ids::run_span(record);
                parent
            }
            Context::Launcher(parent) => {
                log.span_id = parent.span_id();
                Some(parent)
            }
        };
        if let Some(parent) = parent {
            log.trace_id = parent.trace_id();
            log.flags = parent.flags();
        }
        self.waiting.push(log);
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

/// An event of severity "info", without its time.
fn event(name: &str, body: &str, attributes: Vec<KeyValue>) -> LogRecord {
    LogRecord {
        event_name: name.to_owned(),
        severity_number: SeverityNumber::Info as i32,
        severity_text: "INFO".to_owned(),
        body: Some(AnyValue {
            value: Some(Value::StringValue(body.to_owned())),
        }),
        attributes,
        ..LogRecord::default()
    }
}

fn notice_event(notice: &NoticeRecord) -> LogRecord {
    let code = text("headspace.notice.code", &notice.code);
    let mut log = event("headspace.notice", &notice.text, vec![code]);
    if notice.severity == Severity::Warning {
        log.severity_number = SeverityNumber::Warn as i32;
        "WARN".clone_into(&mut log.severity_text);
    }
    log
}

fn remedy_event(remedy: &RemedyRecord) -> LogRecord {
    let mut attributes = vec![
        text("headspace.remedy.code", &remedy.code),
        number(
            "headspace.remedy.predicted_step_ms",
            remedy.predicted_step_ms,
        ),
        number(
            "headspace.remedy.predicted_gain_pct",
            remedy.predicted_gain_pct,
        ),
        number("headspace.remedy.confidence", remedy.confidence),
        text("headspace.remedy.evidence", &remedy.evidence),
    ];
    let resource = remedy.resource.map(Shared::as_str);
    let named = [("stage", remedy.stage.as_deref()), ("resource", resource)];
    for (what, name) in named {
        attributes.extend(name.map(|name| text(format!("headspace.remedy.{what}"), name)));
    }
    if let Some(change) = &remedy.change {
        attributes.push(text("headspace.remedy.knob", &change.knob));
        attributes.push(text("headspace.remedy.from", &change.from));
        attributes.push(text("headspace.remedy.to", &change.to));
    }
    event("headspace.remedy", &remedy.what, attributes)
}

/// The numbers of the verdict. Numbers that were not measured are absent.
fn verdict_attributes(summary: &SummaryRecord) -> Vec<KeyValue> {
    let mut attributes = vec![count("headspace.verdict.steps", summary.steps)];
    let mut named = |what: &str, name: Option<&str>| {
        attributes.extend(name.map(|name| text(format!("headspace.verdict.{what}"), name)));
    };
    named("mode", summary.mode.map(Mode::as_str));
    named("loop", summary.loop_name.as_deref());
    named("ended_by", summary.ended_by.as_ref().map(|end| &*end.name));
    if let Some(bottleneck) = &summary.bottleneck {
        named("bottleneck.kind", Some(bottleneck.kind.as_str()));
        named("bottleneck.name", bottleneck.name.as_deref());
        let confidence = "headspace.verdict.bottleneck.confidence";
        attributes.push(number(confidence, bottleneck.confidence));
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
        attributes.extend(value.map(|value| number(format!("headspace.verdict.{what}"), value)));
    }
    attributes
}

#[cfg(test)]
mod tests;
