//! Parses texts of users, of the environment and of requests: settings of destinations, command lines, names of files,
//! headers. Line *n* of the input is the value of variable *n*, and each line goes to each parser of one value.
#![no_main]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use headspace::fuzzing::{parse_arguments, permits};
use headspace_agent::model::Scope;
use headspace_agent::model::reading::ReadingKey;
use headspace_exporters::catalog::Destination;
use headspace_exporters::encode::otlp::trace_ids::Parent;
use headspace_exporters::encode::prometheus::Form;
use headspace_exporters::run_folder::RankFile;
use headspace_exporters::transport::host_header::ServedNames;
use headspace_exporters::transport::otlp::fuzzing::parse_answer;
use headspace_exporters::transport::otlp::settings::{Arguments, Settings, Target};
use headspace_exporters::transport::pipe::Address;
use headspace_fuzz::seeds;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::{HeaderMap, Uri};
use libfuzzer_sys::fuzz_target;

/// The variables of the OTLP export, except those that name a file.
const VARIABLES: [&str; 14] = [
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "OTEL_METRIC_EXPORT_TIMEOUT",
    "OTEL_METRICS_EXPORTER",
    "OTEL_LOGS_EXPORTER",
    "OTEL_PROFILES_EXPORTER",
    "OTEL_SDK_DISABLED",
];

/// The options of destinations.
const OPTIONS: [&str; 9] = [
    "at", "endpoint", "protocol", "headers", "interval", "timeout", "spans", "host", "port",
];

const TOKEN: &str = "0123456789abcdef";

const SEEDS: [&str; 5] = [
    "api-key=se%20cret,b=2\nhttp://[::1]:4318/base\n1500\ngrpc\ngzip\nhttps://a.example/v1/metrics\nx=1\n10\n1000\n1\notlp\nnone\notlp\nfalse",
    "unix:/tmp/a\nhttp://localhost:4318\nhttp/json\na=b\n250ms\n2\ntrue\n0.0.0.0\n9464",
    "[::1]:9464\n00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nrank3.007.jsonl\nthread:consumer\nprocess.disk.io{disk.io.direction=read}",
    "localhost:8321\n/?token=0123456789abcdef\nBearer 0123456789abcdef\na=b; headspace_token=0123456789abcdef",
    "run\n--interval\n250ms\n--mode\nprobe\n--batch-from\ntrain:f\n--\npython",
];

fuzz_target!(init: { seeds::write("settings", SEEDS.map(|seed| seed.as_bytes().to_vec())); }, |input: &[u8]| {
    parse_answer(input);
    let text = String::from_utf8_lossy(input);
    let lines: Vec<&str> = text.lines().collect();
    read_environment(&lines);
    read_options(&lines);
    lines.iter().for_each(|line| read_value(line));
    read_request(&lines);
    parse_arguments(&lines);
});

fn read_environment(lines: &[&str]) {
    let lookup = |name: &str| {
        let place = VARIABLES.iter().position(|known| *known == name)?;
        let value = lines.get(place)?;
        (!value.is_empty()).then(|| (*value).to_owned())
    };
    let settings = Settings::read(&Arguments::default(), &lookup);
    check(&settings);
    // The headers are secrets: a notice must not repeat them, unless other variables or the notice itself have the same
    // text.
    if let Some(headers) = lines.first().filter(|headers| headers.len() > 8) {
        // With other headers, which are invalid and cause a notice.
        let other = |name: &str| match VARIABLES.first() {
            Some(first) if *first == name => Some("x".to_owned()),
            _ => lookup(name),
        };
        let harmless = Settings::read(&Arguments::default(), &other);
        let repeats = |settings: &Settings| {
            let mut notices = settings.notices.iter();
            notices.any(|notice| notice.to_string().contains(headers))
        };
        assert!(!repeats(&settings) || repeats(&harmless), "{settings:?}");
    }
}

/// Durations are above 0, and a target has a server.
fn check(settings: &Settings) {
    assert!(settings.pace.interval > Duration::ZERO && settings.pace.timeout > Duration::ZERO);
    let targets = [
        &settings.metrics,
        &settings.traces,
        &settings.logs,
        &settings.profiles,
    ];
    let is_usable = |target: &Target| {
        let has_server = target.endpoint.host().is_some_and(|host| !host.is_empty());
        has_server && target.endpoint.scheme().is_some() && target.timeout > Duration::ZERO
    };
    assert!(targets.into_iter().flatten().all(is_usable), "{settings:?}");
}

fn read_options(lines: &[&str]) {
    let pairs = OPTIONS
        .iter()
        .zip(lines)
        .filter(|(_, value)| !value.is_empty());
    let options: BTreeMap<String, String> = pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    if let Ok(arguments) = Arguments::parse(&options) {
        check(&Settings::read(&arguments, &|_| None));
    }
    for kind in ["otlp", "pipe", "prometheus", "textfile"] {
        if let Err(error) = Destination::parse(kind, &options) {
            assert!(!error.to_string().is_empty());
        }
    }
    // Without the options that only another destination has.
    for value in lines {
        let only = BTreeMap::from([("at".to_owned(), (*value).to_owned())]);
        for kind in ["otlp", "pipe", "prometheus", "textfile"] {
            let _ = Destination::parse(kind, &only);
        }
    }
}

fn read_value(line: &str) {
    let _ = Address::parse(line, 3);
    let _ = RankFile::parse(Path::new(line));
    let _ = line.parse::<Parent>();
    let _ = Form::accepted(line);
    if let Some(scope) = Scope::parse(line) {
        assert_eq!(Scope::parse(&scope.to_string()), Some(scope.clone()));
        if let Some(key) = ReadingKey::parse(&scope, line) {
            key.attributes().for_each(drop);
        }
    }
}

/// A request of a client: its `Host`, its address, and its headers. Without the token, nothing is permitted.
fn read_request(lines: &[&str]) {
    let [host, address, headers @ ..] = lines else {
        return;
    };
    let Ok(uri) = address.parse::<Uri>() else {
        return;
    };
    let mut map = HeaderMap::new();
    for (name, value) in [
        (HOST, Some(host)),
        (AUTHORIZATION, headers.first()),
        (COOKIE, headers.get(1)),
    ] {
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            map.append(name, value);
        }
    }
    let has_token = headers.iter().any(|value| value.contains(TOKEN));
    assert!(has_token || !permits(&uri, &map, TOKEN));
    if let Ok(address) = host.parse::<SocketAddr>() {
        ServedNames::new(host, address).include(&uri, &map);
    }
}
