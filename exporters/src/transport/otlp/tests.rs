use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use headspace_agent::model::RecordBody;
use headspace_agent::port::Exporter;

use super::*;
use crate::encode::samples;

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

/// An address that nobody listens at.
fn nobody() -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    format!("http://{address}/v1").parse().unwrap()
}

fn exporter(metrics: Uri, traces: Uri) -> OtlpExporter {
    let way = |endpoint| {
        let line = Line {
            endpoint,
            protocol: Protocol::HttpProtobuf,
            headers: Vec::new(),
            timeout: DEADLINE,
            gzip: false,
            certificate: None,
        };
        Some(Way::Http(HttpLine::new(line).unwrap()))
    };
    let told = Told {
        spans: Some(traces::Spans::default()),
        ..Told::default()
    };
    let otlp = Otlp {
        process: Process::default(),
        metrics: way(metrics),
        traces: way(traces),
    };
    // Delivered with the first records, and at the end.
    let pace = Pace {
        interval: DEADLINE * 10,
        timeout: DEADLINE,
    };
    Apart::start("otlp", told, otlp, pace).unwrap()
}

fn tick() -> Record {
    samples::record(
        9_000_000_000,
        RecordBody::Tick(samples::tick_with_stages(0)),
    )
}

fn spans_dropped(exporter: &mut OtlpExporter) -> Option<u64> {
    exporter.tell().into_iter().find_map(|notice| match notice {
        Notice::SpansDropped { count, .. } => Some(count),
        _ => None,
    })
}

#[test]
fn spans_are_sent_though_metrics_are_not_taken() {
    let (traces, requests) = server("200 OK");
    let mut exporter = exporter(nobody(), traces);
    exporter.export(&[tick()]).unwrap();
    assert!(requests.recv_timeout(DEADLINE).unwrap() > 100);
    exporter.close();
    exporter.finish();
    assert_eq!(spans_dropped(&mut exporter), None);
    assert_eq!(exporter.lost().spans, 0);
    assert!(exporter.lost().exports > 0);
}

#[test]
fn spans_that_are_refused_are_counted_and_told_of() {
    let (metrics, _metrics) = server("200 OK");
    let (traces, requests) = server("400 Bad Request");
    let mut exporter = exporter(metrics, traces);
    exporter.export(&[tick()]).unwrap();
    requests.recv_timeout(DEADLINE).unwrap();
    exporter.close();
    exporter.finish();
    let lost = exporter.lost();
    assert!(lost.spans > 5, "{lost:?}");
    assert_eq!(spans_dropped(&mut exporter), Some(lost.spans));
}

#[test]
fn spans_that_nobody_took_by_the_end_are_counted_and_told_of() {
    let mut exporter = exporter(nobody(), nobody());
    exporter.export(&[tick()]).unwrap();
    exporter.close();
    exporter.finish();
    let lost = exporter.lost();
    assert!(lost.spans > 5, "{lost:?}");
    assert_eq!(spans_dropped(&mut exporter), Some(lost.spans));
}
