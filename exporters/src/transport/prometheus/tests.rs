use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use headspace_agent::model::RecordBody;

use super::*;
use crate::encode::test_records;

/// Wide: it only ends what hangs.
const DEADLINE: Duration = Duration::from_secs(30);

fn open() -> PrometheusExporter {
    let mut exporter = PrometheusExporter::open("127.0.0.1", 0).unwrap();
    let tick = RecordBody::Tick(test_records::tick(1));
    exporter.export(&[test_records::record(1, tick)]).unwrap();
    exporter
}

fn connect(exporter: &PrometheusExporter) -> TcpStream {
    let stream = TcpStream::connect(exporter.address()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Head and body of the answer.
fn ask(exporter: &PrometheusExporter, line: &str, headers: &str) -> (String, Vec<u8>) {
    ask_by(exporter, "Host: localhost\r\n", line, headers)
}

fn ask_by(
    exporter: &PrometheusExporter,
    host: &str,
    line: &str,
    headers: &str,
) -> (String, Vec<u8>) {
    let mut stream = connect(exporter);
    write!(stream, "{line} HTTP/1.1\r\n{host}{headers}\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    (head.to_lowercase(), all.split_off(end + 4))
}

#[test]
fn a_scrape_gets_the_current_state_in_the_requested_format() {
    let exporter = open();

    let (head, body) = ask(&exporter, "GET /metrics", "");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let text = String::from_utf8(body).unwrap();
    assert!(text.contains("process_cpu_time_seconds_total{"), "{text}");

    let open = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    let (head, body) = ask(&exporter, "GET /metrics?x=1", open);
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with(b"# EOF\n"));
}

#[test]
fn only_clients_that_accept_gzip_get_it() {
    let exporter = open();
    let (head, body) = ask(&exporter, "GET /metrics", "Accept-Encoding: br, gzip\r\n");
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&body[..])
        .read_to_string(&mut text)
        .unwrap();
    assert!(text.contains("target_info{"));

    let (head, _) = ask(&exporter, "GET /metrics", "Accept-Encoding: gzip;q=0\r\n");
    assert!(!head.contains("content-encoding"), "{head}");
}

#[test]
fn other_paths_and_methods_get_an_error() {
    let exporter = open();
    for (line, status) in [
        ("GET /../etc/passwd", "404"),
        ("GET /metrics/", "404"),
        ("POST /metrics", "405"),
        ("DELETE /", "405"),
        ("nonsense", "400"),
    ] {
        let (head, _) = ask(&exporter, line, "");
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
    }
    let (head, body) = ask(&exporter, "HEAD /metrics", "");
    assert!(
        head.starts_with("http/1.1 200") && body.is_empty(),
        "{head}"
    );
}

#[test]
fn a_request_with_a_foreign_host_name_gets_no_metrics() {
    let exporter = open();
    let port = exporter.address().port();
    for good in [format!("127.0.0.1:{port}"), format!("LocalHost:{port}")] {
        let (head, _) = ask_by(&exporter, &format!("Host: {good}\r\n"), "GET /metrics", "");
        assert!(head.starts_with("http/1.1 200"), "{good}: {head}");
    }
    for bad in [
        "Host: evil.example\r\n",
        "",
        "Host: localhost\r\nHost: evil.example\r\n",
    ] {
        let (head, body) = ask_by(&exporter, bad, "GET /metrics", "");
        assert!(head.starts_with("http/1.1 421"), "{bad}: {head}");
        let text = String::from_utf8(body).unwrap();
        assert!(!text.contains("process_cpu_time"), "{text}");
    }
}

#[test]
fn a_scrape_in_progress_does_not_delay_the_export_thread() {
    let mut exporter = open();
    let under_way = exporter.shared.current();

    let tick = RecordBody::Tick(test_records::tick(2));
    exporter.export(&[test_records::record(2, tick)]).unwrap();

    assert_eq!(under_way.at_unix_nano(), 1, "it stays as it was");
    assert_eq!(exporter.shared.current().at_unix_nano(), 2);
}

#[test]
fn the_cpu_time_of_answers_is_reported() {
    let exporter = open();
    let before = exporter.cpu_time();
    let end = Instant::now() + DEADLINE;
    while exporter.cpu_time() <= before {
        assert!(Instant::now() < end, "nothing was counted");
        ask(&exporter, "GET /metrics", "");
    }
}

#[test]
fn silent_clients_are_disconnected_and_later_clients_get_an_answer() {
    let exporter = open();
    // They take every place, and one has asked half a question.
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&exporter)).collect();
    silent[0].write_all(b"GET /metrics HTT").unwrap();

    let (head, _) = ask(&exporter, "GET /metrics", "");

    assert!(head.starts_with("http/1.1 200"), "{head}");
    for mut client in silent {
        let mut rest = Vec::new();
        // Closed or reset; a client that were still connected would run into the deadline.
        match client.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn the_end_of_the_session_frees_the_address_even_if_a_forked_child_holds_the_socket() {
    let exporter = open();
    let address = exporter.address();
    let of_a_child = exporter.socket.try_clone().unwrap();
    drop(exporter);

    assert!(TcpStream::connect(address).is_err());
    let again = PrometheusExporter::open("127.0.0.1", address.port()).unwrap();
    assert_eq!(again.address(), address);
    drop(of_a_child);
}

#[test]
fn open_fails_if_the_address_is_in_use() {
    let exporter = open();
    let port = exporter.address().port();
    let error = PrometheusExporter::open("127.0.0.1", port).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
