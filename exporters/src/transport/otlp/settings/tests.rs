use super::*;

fn read(given: &[(&str, &str)], environment: &[(&str, &str)]) -> Settings {
    let options = given
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    Settings::read(&Arguments::parse(&options).unwrap(), &|name| {
        environment
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

fn endpoint_of(target: Option<Target>) -> String {
    target.unwrap().endpoint.to_string()
}

#[test]
fn the_general_endpoint_gets_a_path_and_a_signals_own_endpoint_is_used_verbatim() {
    let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:9/base/");
    let settings = read(&[("spans", "true")], &[general]);
    assert_eq!(
        endpoint_of(settings.metrics),
        "http://collector:9/base/v1/metrics"
    );
    assert_eq!(
        endpoint_of(settings.traces),
        "http://collector:9/base/v1/traces"
    );

    let own = (
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "http://other:1/take/this",
    );
    assert_eq!(
        endpoint_of(settings.logs),
        "http://collector:9/base/v1/logs"
    );
    let settings = read(&[], &[general, own]);
    assert_eq!(endpoint_of(settings.metrics), "http://other:1/take/this");
    assert!(settings.traces.is_none());
}

#[test]
fn the_default_is_this_machine_every_ten_seconds() {
    let settings = read(&[], &[]);
    assert_eq!(settings.pace.interval, Duration::from_secs(10));
    assert_eq!(
        endpoint_of(settings.metrics),
        "http://localhost:4318/v1/metrics"
    );
    let grpc = read(&[], &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!(endpoint_of(grpc.metrics), "http://localhost:4317/");
    assert!(grpc.notices.is_empty());
}

#[test]
fn arguments_take_precedence_over_the_environment() {
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:2"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "7000"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
    ];
    let settings = read(
        &[("endpoint", "http://c:3"), ("timeout", "1.5")],
        &environment,
    );
    let line = settings.metrics.unwrap();
    assert_eq!(line.endpoint, "http://c:3/v1/metrics");
    assert_eq!(line.timeout, Duration::from_millis(1500));
    assert_eq!(settings.pace.interval, Duration::from_millis(500));
}

#[test]
fn an_invalid_variable_is_reported_once_and_the_default_applies() {
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem"),
        ("OTEL_SDK_DISABLED", "perhaps"),
    ];
    let settings = read(&[("spans", "true")], &environment);
    let mut refused: Vec<_> = settings
        .notices
        .iter()
        .map(|notice| match notice {
            Notice::SettingRefused { setting, .. } => setting.as_str(),
            other => panic!("{other}"),
        })
        .collect();
    refused.sort_unstable();
    let mut all = environment.map(|(name, _)| name);
    all.sort_unstable();
    assert_eq!(refused, all);
    let line = settings.metrics.unwrap();
    assert_eq!(line.endpoint, "http://localhost:4318/v1/metrics");
    assert_eq!((line.timeout, line.gzip), (TIMEOUT, false));
    assert!(line.certificate.is_none());
}

#[test]
fn headers_are_decoded_and_an_error_gives_the_position_but_not_the_value() {
    let settings = read(
        &[],
        &[(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "api-key=s%20ecret, x-team = vision",
        )],
    );
    let headers = settings.metrics.unwrap().headers;
    assert_eq!(headers[0].0, "api-key");
    assert_eq!(headers[0].1, "s ecret");
    assert_eq!(headers[1].1, "vision");

    let settings = read(&[], &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b,topsecret")]);
    let said = settings.notices[0].to_string();
    assert!(
        said.contains("header 2") && !said.contains("topsecret"),
        "{said}"
    );
}

#[test]
fn opentelemetrys_switches_disable_the_signals() {
    assert!(
        read(&[], &[("OTEL_SDK_DISABLED", "true")])
            .metrics
            .is_none()
    );
    assert!(
        read(&[], &[("OTEL_METRICS_EXPORTER", "none")])
            .metrics
            .is_none()
    );
    let settings = read(&[("spans", "true")], &[("OTEL_TRACES_EXPORTER", "none")]);
    assert!(settings.metrics.is_some() && settings.traces.is_none());
    let settings = read(&[], &[("OTEL_LOGS_EXPORTER", "none")]);
    assert!(settings.metrics.is_some() && settings.logs.is_none());
    assert!(settings.profiles.is_none(), "profiles are sent on request");
    let profiles = |exporter| read(&[], &[("OTEL_PROFILES_EXPORTER", exporter)]).profiles;
    let path = profiles("otlp").map(|target| target.endpoint.path().to_owned());
    assert_eq!(path.as_deref(), Some("/v1development/profiles"));
    assert!(profiles("none").is_none());
}

#[test]
fn variables_of_one_signal_do_not_affect_the_others() {
    let settings = read(
        &[],
        &[
            ("OTEL_EXPORTER_OTLP_HEADERS", "who=all"),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "who=logs"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:1/in"),
            ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "250"),
        ],
    );
    let (logs, metrics) = (settings.logs.unwrap(), settings.metrics.unwrap());
    assert_eq!(logs.endpoint, "http://logs:1/in");
    assert_eq!(logs.headers[0].1, "logs");
    assert_eq!(logs.protocol, Protocol::HttpJson);
    assert_eq!(logs.timeout, Duration::from_millis(250));
    assert_eq!(metrics.endpoint, "http://localhost:4318/v1/metrics");
    assert_eq!(metrics.headers[0].1, "all");
    assert_eq!(
        (metrics.protocol, metrics.timeout),
        (Protocol::HttpProtobuf, TIMEOUT)
    );
}

#[test]
fn the_error_for_an_invalid_argument_names_it() {
    for (name, value) in [
        ("endpoint", "localhost:4318"),
        ("protocol", "udp"),
        ("interval", "0"),
        ("timeout", "soon"),
        ("colour", "red"),
    ] {
        let options = [(name.to_owned(), value.to_owned())].into();
        let problem = Arguments::parse(&options).unwrap_err();
        assert!(problem.contains(name), "{problem}");
    }
}
