use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ::http::Uri;
use headspace_agent::model::{Record, RecordBody};
use headspace_agent::port::Lost;

use super::super::background::Pace;
use super::http::Http;
use super::settings::Protocol;
use super::*;
use crate::encode::test_records;

/// Long enough for anything: it only ends what hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server that answers every request with that status. Says how many bytes each had.
fn server(status: &'static str) -> (Uri, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = seen.send(answer(stream, status));
        }
    });
    (format!("http://{address}/v1").parse().unwrap(), requests)
}

fn answer(mut stream: TcpStream, status: &str) -> usize {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).unwrap() > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(given) = lower.strip_prefix("content-length:") {
            length = given.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).unwrap();
    length
}

/// An address on which no process listens.
fn nobody() -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    format!("http://{address}/v1").parse().unwrap()
}

fn sender(endpoint: Uri) -> Sender {
    let target = Target {
        endpoint,
        protocol: Protocol::HttpProtobuf,
        headers: Vec::new(),
        timeout: DEADLINE,
        gzip: false,
        certificate: None,
    };
    Sender {
        connection: Connection::Http(Http::new(target).unwrap()),
        process: Process::default(),
    }
}

/// Delivered with the first records, and at the end.
const PACE: Pace = Pace {
    interval: DEADLINE.saturating_mul(10),
    timeout: DEADLINE,
};

fn spans_to(endpoint: Uri) -> BackgroundExporter<Signal<Spans>> {
    let sender = sender(endpoint);
    BackgroundExporter::start(NAME, Signal::new(Spans::default()), sender, PACE).unwrap()
}

fn logs_to(endpoint: Uri) -> BackgroundExporter<Signal<Logs>> {
    let sender = sender(endpoint);
    BackgroundExporter::start(NAME, Signal::new(Logs::new(Context::Nowhere)), sender, PACE).unwrap()
}

fn tick() -> Record {
    test_records::record(
        9_000_000_000,
        RecordBody::Tick(test_records::tick_with_stages(0)),
    )
}

fn notice() -> Record {
    let notice = Notice::StepsDropped;
    test_records::record(9_000_000_000, RecordBody::Notice(notice.to_record()))
}

/// The notices about lost items.
fn dropped(exporter: &mut impl Exporter) -> Option<u64> {
    exporter
        .take_notices()
        .into_iter()
        .find_map(|notice| match notice {
            Notice::SpansDropped { count, .. } | Notice::LogRecordsDropped { count, .. } => {
                Some(count)
            }
            _ => None,
        })
}

#[test]
fn accepted_spans_and_log_records_are_not_counted_as_lost() {
    let (endpoint, requests) = server("200 OK");
    let (mut spans, mut logs) = (spans_to(endpoint.clone()), logs_to(endpoint));
    spans.export(&[tick()]).unwrap();
    assert!(requests.recv_timeout(DEADLINE).unwrap() > 100);
    logs.export(&[notice()]).unwrap();
    assert!(requests.recv_timeout(DEADLINE).unwrap() > 100);
    for exporter in [&mut spans as &mut dyn Exporter, &mut logs] {
        exporter.close();
        exporter.finish();
        assert_eq!(exporter.lost(), Lost::default());
        assert_eq!(exporter.take_notices(), []);
    }
}

#[test]
fn refused_spans_are_counted_and_reported() {
    let (traces, requests) = server("400 Bad Request");
    let mut exporter = spans_to(traces);
    exporter.export(&[tick()]).unwrap();
    requests.recv_timeout(DEADLINE).unwrap();
    exporter.close();
    exporter.finish();
    let lost = exporter.lost();
    assert!(lost.spans > 5, "{lost:?}");
    assert_eq!(dropped(&mut exporter), Some(lost.spans));
}

#[test]
fn spans_that_are_undelivered_at_the_end_are_counted_and_reported() {
    let mut exporter = spans_to(nobody());
    exporter.export(&[tick()]).unwrap();
    exporter.close();
    exporter.finish();
    let lost = exporter.lost();
    assert!(lost.spans > 5, "{lost:?}");
    assert_eq!(dropped(&mut exporter), Some(lost.spans));
}

#[test]
fn refused_and_undelivered_log_records_are_counted_and_reported() {
    // What Prometheus answers at the path of logs, which it does not know.
    let (endpoint, _requests) = server("404 Not Found");
    for endpoint in [endpoint, nobody()] {
        let mut exporter = logs_to(endpoint);
        exporter.export(&[tick(), notice(), notice()]).unwrap();
        exporter.close();
        exporter.finish();
        assert_eq!(exporter.lost().log_records, 2);
        assert_eq!(exporter.lost().spans, 0);
        assert_eq!(dropped(&mut exporter), Some(2));
    }
}

#[test]
fn an_invalid_traceparent_is_reported_once_and_a_missing_one_is_not() {
    let mut notices = Vec::new();
    assert_eq!(read_parent(None, &mut notices), None);
    assert_eq!(read_parent(Some(String::new()), &mut notices), None);
    let whole = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert!(read_parent(Some(whole.to_owned()), &mut notices).is_some());
    assert_eq!(notices, []);
    assert_eq!(read_parent(Some("00-1-2-3".to_owned()), &mut notices), None);
    let [refused] = &notices[..] else {
        panic!("{notices:?}")
    };
    assert!(refused.to_string().contains("TRACEPARENT"), "{refused}");
}
