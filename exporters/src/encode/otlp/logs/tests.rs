use headspace_agent::model::record::{
    BottleneckRecord, ChangeRecord, EndCause, EndRecord, FindingRecord,
};
use headspace_agent::notice::Notice;

use opentelemetry_proto::tonic::common::v1::any_value::Value;

use super::*;
use crate::encode::test_records;

const LAUNCHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn logs_of(context: Context, bodies: Vec<RecordBody>) -> Vec<LogRecord> {
    let mut logs = Logs::new(context);
    for (second, body) in (5..).zip(bodies) {
        logs.add_record(&test_records::record(second * 1_000_000_000, body));
    }
    logs.waiting.first(usize::MAX)
}

fn attribute(log: &LogRecord, key: &str) -> Option<Value> {
    let found = log.attributes.iter().find(|known| known.key == key)?;
    found.value.clone()?.value
}

fn body(log: &LogRecord) -> String {
    match log.body.clone().and_then(|body| body.value) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn words(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

fn finding(code: &str, text: &str) -> FindingRecord {
    FindingRecord {
        code: code.to_owned(),
        text: text.to_owned(),
    }
}

fn summary(steady: bool, findings: Vec<FindingRecord>) -> SummaryRecord {
    SummaryRecord {
        mode: Some(headspace_agent::model::Mode::Measure),
        steps: 90,
        steady_step_mean_ms: steady.then_some(12.5),
        findings,
        ..SummaryRecord::default()
    }
}

fn of(summary: SummaryRecord) -> RecordBody {
    RecordBody::Summary(Box::new(summary))
}

#[test]
fn a_notice_is_an_event_with_its_code_its_text_and_its_severity() {
    let info = Notice::Serving {
        exporter: "prometheus",
        at: "http://127.0.0.1:9464/metrics".to_owned(),
    };
    let warning = Notice::SpansDropped {
        exporter: "otlp",
        count: 7,
    };
    let notices = [info, warning].map(|notice| RecordBody::Notice(notice.to_record()));
    let found = logs_of(Context::Nowhere, notices.to_vec());

    let [info, warning] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(info.event_name, "headspace.notice");
    assert_eq!((info.severity_number, &*info.severity_text), (9, "INFO"));
    assert_eq!(
        attribute(info, "headspace.notice.code"),
        Some(words("serving"))
    );
    assert_eq!(info.time_unix_nano, 5_000_000_000);
    assert_eq!(
        (warning.severity_number, &*warning.severity_text),
        (13, "WARN")
    );
    assert!(body(warning).contains('7'), "{}", body(warning));
    assert!(warning.trace_id.is_empty() && warning.span_id.is_empty());
}

#[test]
fn a_finding_is_sent_once_after_the_steady_state_begins() {
    let findings = || {
        vec![
            finding("gpu_shared", "GPU 0: 30 % is of others."),
            finding("gpu_shared", "GPU 1: 40 % is of others."),
        ]
    };
    let found = logs_of(
        Context::Nowhere,
        vec![
            of(summary(false, vec![finding("gc_pauses", "at the start")])),
            of(summary(true, findings())),
            of(summary(true, findings())),
        ],
    );

    let texts: Vec<_> = found.iter().map(body).collect();
    assert_eq!(
        texts,
        ["GPU 0: 30 % is of others.", "GPU 1: 40 % is of others."]
    );
    assert_eq!(found[0].event_name, "headspace.finding");
    assert_eq!(found[0].time_unix_nano, 6_000_000_000);
    let code = attribute(&found[0], "headspace.finding.code");
    assert_eq!(code, Some(words("gpu_shared")));
}

#[test]
fn the_end_of_a_run_sends_its_verdict_and_a_log_record_for_each_remedy() {
    let end = SummaryRecord {
        state: RunState::Finished,
        loop_name: Some("train".to_owned()),
        bottleneck: Some(BottleneckRecord {
            kind: headspace_agent::model::record::BottleneckKind::Stage,
            name: Some("decode".to_owned()),
            confidence: 0.9,
            ..BottleneckRecord::default()
        }),
        remedies: vec![RemedyRecord {
            code: "more_concurrency".to_owned(),
            what: "Run 2 concurrent calls of `decode` instead of 1".to_owned(),
            stage: Some("decode".to_owned()),
            change: Some(ChangeRecord {
                knob: "concurrency".to_owned(),
                from: "1".to_owned(),
                to: "2".to_owned(),
                ..ChangeRecord::default()
            }),
            predicted_step_ms: 8.25,
            predicted_gain_pct: 34.0,
            ..RemedyRecord::default()
        }],
        ended_by: Some(EndRecord {
            cause: EndCause::Exception,
            name: "ValueError".to_owned(),
        }),
        ..summary(true, vec![])
    };
    let found = logs_of(Context::Nowhere, vec![of(summary(true, vec![])), of(end)]);

    let [remedy, verdict] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(remedy.event_name, "headspace.remedy");
    let remedy_of = |what: &str| attribute(remedy, &format!("headspace.remedy.{what}"));
    assert_eq!(remedy_of("code"), Some(words("more_concurrency")));
    assert_eq!(remedy_of("stage"), Some(words("decode")));
    assert_eq!(remedy_of("to"), Some(words("2")));
    assert_eq!(remedy_of("resource"), None);
    let predicted = Some(Value::DoubleValue(8.25));
    assert_eq!(remedy_of("predicted_step_ms"), predicted);

    assert_eq!(verdict.event_name, "headspace.verdict");
    let verdict_of = |what: &str| attribute(verdict, &format!("headspace.verdict.{what}"));
    assert_eq!(verdict_of("step_ms"), Some(Value::DoubleValue(12.5)));
    assert_eq!(verdict_of("bottleneck.name"), Some(words("decode")));
    assert_eq!(verdict_of("ended_by"), Some(words("ValueError")));
    assert_eq!(verdict_of("floor_step_ms"), None, "it was not measured");
    assert!(body(verdict).contains("decode"), "{}", body(verdict));
}

#[test]
fn log_records_belong_to_the_runs_span_if_sent_or_else_to_the_launchers_span() {
    let launcher: Parent = LAUNCHER.parse().unwrap();
    let notice = || {
        let notice = Notice::StepsDropped;
        vec![RecordBody::Notice(notice.to_record())]
    };
    let of = |context| logs_of(context, notice()).remove(0);
    let (own, below, without) = (
        of(Context::Run(None)),
        of(Context::Run(Some(launcher))),
        of(Context::Launcher(launcher)),
    );

    assert_eq!((own.trace_id.len(), own.span_id.len()), (16, 8));
    assert_eq!(below.span_id, own.span_id);
    assert_eq!(below.trace_id, launcher.trace_id.to_bytes());
    assert_eq!(without.trace_id, launcher.trace_id.to_bytes());
    assert_eq!(without.span_id, launcher.span_id.to_bytes());
    assert_eq!((own.flags, below.flags, without.flags), (0, 1, 1));
}

#[test]
fn json_log_records_follow_the_protocol() {
    let parent: Parent = LAUNCHER.parse().unwrap();
    let notice = Notice::StepsDropped;
    let found = logs_of(
        Context::Launcher(parent),
        vec![RecordBody::Notice(notice.to_record())],
    );
    let json = serde_json::to_value(request(found, Resource::default())).unwrap();
    let log = &json["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(log["timeUnixNano"], "5000000000");
    assert_eq!(log["severityNumber"], 13);
    assert_eq!(log["eventName"], "headspace.notice");
    assert_eq!(log["traceId"], LAUNCHER[3..35]);
}
