//! Reads the settings of the OTLP export from OpenTelemetry's own variables and the user's arguments.
//!
//! `OTEL_EXPORTER_OTLP_*` and the variants for each signal (`OTEL_EXPORTER_OTLP_METRICS_*`) work as
//! OpenTelemetry specifies them. One default differs: `OTEL_METRIC_EXPORT_INTERVAL` is 10 s here,
//! because means over a minute hide what a training loop does. If a variable cannot be parsed, a notice
//! reports it and the default applies. An invalid argument is an error.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use headspace_agent::notice::Notice;
use http::{HeaderName, HeaderValue, Uri};

use super::super::background::Pace;

/// Default interval between two exports.
const INTERVAL: Duration = Duration::from_secs(10);

/// Default time limit of one request (OpenTelemetry's).
const TIMEOUT: Duration = Duration::from_secs(10);

/// Default time limit of one export with all its requests (OpenTelemetry's).
const EXPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// The protocol and encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    HttpProtobuf,
    /// JSON over HTTP.
    HttpJson,
}

/// The endpoint of one signal, and how to reach it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The full URL for HTTP; scheme and host for gRPC.
    pub endpoint: Uri,
    /// The protocol and encoding of messages.
    pub protocol: Protocol,
    /// Headers sent with every request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Time limit of one request.
    pub timeout: Duration,
    /// Whether requests are compressed.
    pub gzip: bool,
    /// Path of a file with the certificates to trust, instead of the system's.
    pub certificate: Option<String>,
}

/// All settings of the export.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where metrics are sent; absent if disabled.
    pub metrics: Option<Target>,
    /// Where spans are sent; absent if not requested.
    pub traces: Option<Target>,
    /// Where log records are sent; absent if disabled.
    pub logs: Option<Target>,
    /// Where profiles are sent; absent if not requested.
    pub profiles: Option<Target>,
    /// Interval and time limit of exports.
    pub pace: Pace,
    /// One notice for each refused setting.
    pub notices: Vec<Notice>,
}

/// Reads an environment variable. An empty variable counts as unset.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The user's arguments, after validation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arguments {
    endpoint: Option<Uri>,
    protocol: Option<Protocol>,
    headers: Option<Vec<(HeaderName, HeaderValue)>>,
    interval: Option<Duration>,
    timeout: Option<Duration>,
    spans: bool,
}

impl Arguments {
    /// Validates the arguments: `endpoint` (or `at`), `protocol`, `headers`, `interval` and `timeout`
    /// in seconds, `spans`.
    ///
    /// # Errors
    ///
    /// Returns a message that names the invalid argument, the problem, and how to fix it.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        for (name, value) in options {
            let wrong = |problem: String| format!("`{name}`: {problem}");
            match name.as_str() {
                "endpoint" | "at" => arguments.endpoint = Some(endpoint(value).map_err(wrong)?),
                "protocol" => arguments.protocol = Some(protocol(value).map_err(wrong)?),
                "headers" => arguments.headers = Some(headers(value).map_err(wrong)?),
                "interval" => arguments.interval = Some(seconds(value).map_err(wrong)?),
                "timeout" => arguments.timeout = Some(seconds(value).map_err(wrong)?),
                "spans" => arguments.spans = flag(value).map_err(wrong)?,
                _ => return Err(format!("there is no option `{name}`")),
            }
        }
        Ok(arguments)
    }
}

impl Settings {
    /// The effective settings: arguments take precedence, then the environment, then the defaults.
    pub fn read(arguments: &Arguments, lookup: Lookup<'_>) -> Self {
        let mut reader = Reader {
            lookup,
            notices: Vec::new(),
        };
        let on = !reader.read("OTEL_SDK_DISABLED", flag).unwrap_or(false);
        let exported = |signal| {
            let exporter = lookup(&format!("OTEL_{signal}_EXPORTER"));
            on && exporter.is_none_or(|exporter| exporter.trim() != "none")
        };
        let metrics =
            exported("METRICS").then(|| reader.target("METRICS", "v1/metrics", arguments));
        let wants_spans = arguments.spans && exported("TRACES");
        let traces = wants_spans.then(|| reader.target("TRACES", "v1/traces", arguments));
        let logs = exported("LOGS").then(|| reader.target("LOGS", "v1/logs", arguments));
        // The signal is in development, so it is off by default.
        let wants_profiles = lookup("OTEL_PROFILES_EXPORTER").is_some() && exported("PROFILES");
        let profiles =
            wants_profiles.then(|| reader.target("PROFILES", "v1development/profiles", arguments));
        let of_environment = reader.read("OTEL_METRIC_EXPORT_INTERVAL", millis);
        let export_timeout = reader.read("OTEL_METRIC_EXPORT_TIMEOUT", millis);
        Self {
            metrics,
            traces,
            logs,
            profiles,
            pace: Pace {
                interval: arguments.interval.or(of_environment).unwrap_or(INTERVAL),
                timeout: arguments
                    .timeout
                    .or(export_timeout)
                    .unwrap_or(EXPORT_TIMEOUT),
            },
            notices: reader.notices,
        }
    }
}

/// Reads environment variables, and records a notice for each that is invalid.
struct Reader<'a> {
    lookup: Lookup<'a>,
    notices: Vec<Notice>,
}

impl Reader<'_> {
    fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let value = (self.lookup)(name)?;
        let value = value.trim();
        if value.is_empty() {
            return None;
        }
        match parse(value) {
            Ok(parsed) => Some(parsed),
            Err(problem) => {
                let refused = Notice::SettingRefused {
                    setting: name.to_owned(),
                    problem: format!("{problem}. The default is used."),
                };
                // Each signal reads the general variable, so the same notice could occur several times.
                if !self.notices.contains(&refused) {
                    self.notices.push(refused);
                }
                None
            }
        }
    }

    /// Reads the signal's own variable, or else the general one.
    fn read_own<T>(
        &mut self,
        signal: &str,
        what: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.read(&format!("OTEL_EXPORTER_OTLP_{signal}_{what}"), &parse)
            .or_else(|| self.read(&format!("OTEL_EXPORTER_OTLP_{what}"), &parse))
    }

    fn target(&mut self, signal: &str, path: &str, arguments: &Arguments) -> Target {
        let protocol = arguments
            .protocol
            .or_else(|| self.read_own(signal, "PROTOCOL", protocol))
            .unwrap_or(Protocol::HttpProtobuf);
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
        let verbatim = match arguments.endpoint {
            Some(_) => None,
            None => self.read(&own, endpoint),
        };
        let endpoint = verbatim.unwrap_or_else(|| {
            let general = arguments
                .endpoint
                .clone()
                .or_else(|| self.read("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
            let is_grpc = protocol == Protocol::Grpc;
            let port = if is_grpc { 4317 } else { 4318 };
            let base =
                general.map_or_else(|| format!("http://localhost:{port}"), |uri| uri.to_string());
            let base = base.trim_end_matches('/');
            let whole = if is_grpc || base.ends_with(path) {
                base.to_owned()
            } else {
                format!("{base}/{path}")
            };
            whole.parse().unwrap_or_default()
        });
        let headers = arguments
            .headers
            .clone()
            .or_else(|| self.read_own(signal, "HEADERS", headers));
        Target {
            endpoint,
            protocol,
            headers: headers.unwrap_or_default(),
            timeout: arguments
                .timeout
                .or_else(|| self.read_own(signal, "TIMEOUT", millis))
                .unwrap_or(TIMEOUT),
            gzip: self.read_own(signal, "COMPRESSION", gzip).unwrap_or(false),
            certificate: self.read_own(signal, "CERTIFICATE", certificate),
        }
    }
}

fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = || {
        // A URL with credentials, or with a key in its query: neither belongs in a record.
        let shown = if text.contains(['@', '?']) {
            "what is given, which may hold a secret,".to_owned()
        } else {
            format!("`{text}`")
        };
        format!(
            "{shown} is not an address such as `http://localhost:4318` (with `http` or `https`)"
        )
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let named = uri.host().is_some_and(|host| !host.is_empty());
    if known && named && uri.query().is_none() {
        Ok(uri)
    } else {
        Err(wrong())
    }
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "grpc" => Ok(Protocol::Grpc),
        "http/protobuf" => Ok(Protocol::HttpProtobuf),
        "http/json" => Ok(Protocol::HttpJson),
        _ => Err(format!(
            "`{text}` is not a protocol (write `grpc`, `http/protobuf` or `http/json`)"
        )),
    }
}

/// Parses `name=value,name=value`, percent-encoded. Values are secrets, so errors do not repeat them.
fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let decoded = |part: &str| {
        percent_encoding::percent_decode_str(part.trim())
            .decode_utf8()
            .map(Cow::into_owned)
    };
    let mut found = Vec::new();
    for (place, pair) in text
        .split(',')
        .filter(|pair| !pair.trim().is_empty())
        .enumerate()
    {
        let parsed = pair.split_once('=').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(decoded(name).ok()?.as_bytes()).ok()?;
            let mut value = HeaderValue::from_str(&decoded(value).ok()?).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        found.push(parsed.ok_or_else(|| {
            let place = place + 1;
            format!("header {place} is not of the form `name=value` (values percent-encoded)")
        })?);
    }
    Ok(found)
}

fn millis(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(Duration::from_millis(number)),
        _ => Err(format!("`{text}` is not a number of milliseconds above 0")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time >= Duration::from_millis(1) && time.as_secs() <= 86_400)
        .ok_or_else(|| format!("`{text}` is not a number of seconds of at least 0.001"))
}

fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    }
}

fn gzip(text: &str) -> Result<bool, String> {
    match text {
        "gzip" => Ok(true),
        "none" => Ok(false),
        _ => Err(format!("`{text}` is neither `gzip` nor `none`")),
    }
}

fn certificate(path: &str) -> Result<String, String> {
    let readable = std::fs::read(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    if readable.windows(11).any(|window| window == b"-----BEGIN ") {
        Ok(path.to_owned())
    } else {
        Err(format!("`{path}` holds no certificate in PEM form"))
    }
}

#[cfg(test)]
mod tests;
