//! Tests that records are encoded as lines and decoded again.

use headspace_agent::model::record::{
    FloorRecord, LineRecord, OtherLoop, ProbeRecord, RunRecord, SummaryRecord,
};
use proptest::prelude::*;

use super::super::test_records;
use super::*;

fn line(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    encode(record, &mut out).unwrap();
    out
}

fn through(body: RecordBody) -> RecordBody {
    let record = test_records::record(7, body);
    decode(&line(&record)).unwrap().body
}

#[test]
fn a_record_is_one_line() {
    let record = test_records::record(
        7,
        RecordBody::Run(RunRecord {
            argv: vec!["train.py".to_owned(), "two\nlines".to_owned()],
            ..RunRecord::default()
        }),
    );

    let text = String::from_utf8(line(&record)).unwrap();

    assert_eq!(text.matches('\n').count(), 1);
    assert!(text.starts_with(r#"{"schema":"headspace/1.1","time_unix_nano":7,"run_id":"#));
    assert!(text.ends_with("}\n"));
}

#[test]
fn encoding_omits_only_the_readings_that_are_not_finite() {
    let mut tick = test_records::tick(0);
    tick.readings
        .get_mut("process")
        .unwrap()
        .insert("process.thread.count".into(), f64::NAN);
    let mut expected = tick.clone();
    expected
        .readings
        .get_mut("process")
        .unwrap()
        .remove("process.thread.count");

    assert_eq!(through(RecordBody::Tick(tick)), RecordBody::Tick(expected));
}

#[test]
fn a_summary_keeps_its_nulls_and_omits_values_that_are_not_finite() {
    let summary = SummaryRecord {
        step_time_ms: Some(30.0),
        max_speedup: Some(f64::INFINITY),
        headspace_ci_pct: Some((1.0, f64::NAN)),
        ..SummaryRecord::default()
    };
    let expected = SummaryRecord {
        step_time_ms: Some(30.0),
        ..SummaryRecord::default()
    };

    let text = String::from_utf8(line(&test_records::record(
        0,
        RecordBody::Summary(Box::new(summary)),
    )))
    .unwrap();

    assert!(text.contains(r#""max_speedup":null"#));
    assert_eq!(
        decode(text.as_bytes()).unwrap().body,
        RecordBody::Summary(Box::new(expected))
    );
}

#[test]
fn encoding_omits_only_the_items_with_a_required_number_that_is_not_finite() {
    let other_loop = |name: &str, seconds| OtherLoop {
        name: name.to_owned(),
        seconds,
        ..OtherLoop::default()
    };
    let line_record = |predicted_step_ms| LineRecord {
        predicted_step_ms,
        ..LineRecord::default()
    };
    let summary = SummaryRecord {
        elapsed_s: f64::NEG_INFINITY,
        other_loops: vec![other_loop("a", f64::NAN), other_loop("b", 2.0)],
        lines: vec![line_record(f64::NAN), line_record(30.0)],
        ..SummaryRecord::default()
    };

    let RecordBody::Summary(read) = through(RecordBody::Summary(Box::new(summary))) else {
        panic!("another kind came back")
    };

    assert_eq!(read.other_loops, [other_loop("b", 2.0)]);
    assert_eq!(read.lines, [line_record(30.0)]);
    assert_eq!(read.elapsed_s.to_bits(), 0.0_f64.to_bits());
}

#[test]
fn a_floor_that_is_not_finite_is_replaced_by_a_reason() {
    let mut probe = ProbeRecord {
        floor: Some(FloorRecord::default()),
        ..ProbeRecord::default()
    };
    probe.floor.as_mut().unwrap().headspace_pct.high = f64::NAN;

    let RecordBody::Probe(read) = through(RecordBody::Probe(probe)) else {
        panic!("another kind came back")
    };

    assert_eq!(read.floor, None);
    assert_eq!(
        read.reason.as_deref(),
        Some("the floor is not a finite number")
    );
}

#[test]
fn queues_of_the_first_version_are_read_by_their_old_names() {
    let now = line(&test_records::record(
        0,
        RecordBody::Tick(test_records::tick_with_stages(0)),
    ));
    let now = String::from_utf8(now).unwrap();
    let mut then = now.clone();
    for (new, old) in [
        (r#""schema":"headspace/1.1""#, r#""schema":"headspace/1""#),
        (r#""samples":100"#, r#""looks":100"#),
        (r#""sampled_ms""#, r#""seen_ms""#),
        (r#""concurrency":4,"active""#, r#""places":4,"active""#),
    ] {
        assert!(then.contains(new), "{new} in {then}");
        then = then.replace(new, old);
    }

    assert_eq!(
        decode(then.as_bytes()).unwrap(),
        decode(now.as_bytes()).unwrap()
    );
}

#[test]
fn later_minor_versions_are_read_and_other_major_versions_are_not() {
    let text = line(&test_records::record(
        0,
        RecordBody::Tick(test_records::tick(0)),
    ));
    let text = String::from_utf8(text).unwrap();
    let read = |version: &str| decode(text.replace("headspace/1.1", version).as_bytes());

    assert_eq!(read("headspace/1.7"), read("headspace/1.1"));
    for version in ["headspace/2", "headspace/2.1", "headspace/10"] {
        assert_eq!(read(version), Err(LineError::OtherSchema), "{version}");
    }
}

#[test]
fn decode_distinguishes_the_reasons_why_a_line_is_no_record() {
    let whole = line(&test_records::record(
        0,
        RecordBody::Tick(test_records::tick(0)),
    ));
    let text = String::from_utf8(whole.clone()).unwrap();
    let cases: [(&[u8], LineError); 14] = [
        (&whole[..whole.len() / 2], LineError::Cut),
        (&whole[..1], LineError::Cut),
        (&whole[..9], LineError::Cut),
        (b"epoch 3 loss 0.25", LineError::Foreign),
        (b"42", LineError::Foreign),
        (b"[1, 2]", LineError::Foreign),
        (br#"{"level":"info","kind":5}"#, LineError::Foreign),
        (br#"{"schema":"other/1","kind":"tick"}"#, LineError::Foreign),
        (b"\0\0\0\0", LineError::Damaged),
        (b"\xff\xfe{", LineError::Damaged),
        (
            br#"{"schema":"headspace/1.1","kind":"tick"}"#,
            LineError::Damaged,
        ),
        (
            br#"{"schema":"headspace/1.1","kind":"tick","time_unix_nano":x}"#,
            LineError::Damaged,
        ),
        (
            br#"{"schema":"headspace/2","kind":7,"time_unix_nano":"now"}"#,
            LineError::OtherSchema,
        ),
        (
            &text.replace(r#""tick","#, r#""stage","#).into_bytes(),
            LineError::UnknownKind,
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(
            decode(bytes),
            Err(expected),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn a_record_whose_field_has_another_type_is_damaged() {
    let whole = line(&test_records::record(
        0,
        RecordBody::Tick(test_records::tick(0)),
    ));
    let text = String::from_utf8(whole)
        .unwrap()
        .replace(r#""at_s":"#, r#""at_s":true,"x":"#);

    assert_eq!(decode(text.as_bytes()), Err(LineError::Damaged));
}

proptest! {
    #[test]
    fn any_record_can_be_read_back_unchanged(record in test_records::any_record()) {
        let line = line(&record);

        prop_assert_eq!(decode(&line), Ok(record.clone()));
        // The types' own serde reads the same.
        prop_assert_eq!(serde_json::from_slice::<Record>(&line).unwrap(), record);
    }

    #[test]
    fn a_record_with_any_number_can_be_read_back(
        record in test_records::any_record_with(any::<f64>().boxed()),
    ) {
        prop_assert!(decode(&line(&record)).is_ok());
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(&bytes);
    }
}
