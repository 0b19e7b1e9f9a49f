//! Sends requests over HTTP, as protobuf or JSON, with a blocking client.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headspace_agent::notice::Notice;
use jiff::fmt::rfc2822::DateTimeParser;
use prost::Message;
use serde::Serialize;
use serde_json::Value;
use ureq::Agent;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::super::background::{Failure, Retry};
use super::super::gzip;
use super::export_request::ExportRequest;
use super::partial_success::{Refused, Sent, outcome, public_address};
use super::settings::{Protocol, Target};

/// Maximum number of bytes read from an answer, which contains only what was refused.
const MOST_ANSWER: u64 = 64 << 10;

/// The HTTP connection to one address.
#[derive(Debug)]
pub(super) struct Http {
    agent: Agent,
    target: Target,
}

impl Http {
    pub(super) fn new(target: Target) -> Result<Self, Notice> {
        let roots = match &target.certificate {
            Some(path) => RootCerts::Specific(Arc::new(certificates(path)?)),
            None => RootCerts::PlatformVerifier,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("headspace/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Ok(Self {
            agent: config.into(),
            target,
        })
    }

    /// Sends a message.
    pub(super) fn send<M: ExportRequest>(&self, message: &M, limit: Duration) -> Sent {
        let json = self.target.protocol == Protocol::HttpJson;
        let (body, kind) = if json {
            let body = in_json(message).map_err(|e| Failure::lasting(e.to_string()))?;
            (body, "application/json")
        } else {
            (message.encode_to_vec(), "application/x-protobuf")
        };
        let mut request = self.agent.post(&self.target.endpoint);
        for (name, value) in &self.target.headers {
            request = request.header(name, value);
        }
        request = request.header(CONTENT_TYPE, kind);
        let body = if self.target.gzip {
            request = request.header(CONTENT_ENCODING, "gzip");
            gzip(&body).map_err(|error| Failure::lasting(error.to_string()))?
        } else {
            body
        };
        let to = public_address(&self.target.endpoint);
        let answer = request
            .config()
            .timeout_global(Some(limit.min(self.target.timeout)))
            .build()
            .send(&body[..])
            .map_err(|error| {
                let reason = format!("`{to}` cannot be reached: {error}");
                Failure::passing(reason, retry_of(&error))
            })?;
        let status = answer.status();
        if status.is_success() {
            let mut body = answer.into_body();
            // An answer that cannot be read still means that the request was accepted.
            let read = body.with_config().limit(MOST_ANSWER).read_to_vec();
            let refused = read.ok().and_then(|bytes| {
                if json {
                    refused_in_json(&bytes)
                } else {
                    M::Answer::decode(&bytes[..]).ok().and_then(M::refused)
                }
            });
            return outcome(&to, refused);
        }
        let retry_after = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let retry = match status.as_u16() {
            429 | 502 | 503 | 504 => after(retry_after, SystemTime::now()),
            _ => Retry::No,
        };
        let reason = format!("`{to}` answered with status {status}");
        Err(Failure::passing(reason, retry))
    }
}

/// The message in protobuf's JSON mapping.
///
/// `opentelemetry-proto` writes the ids and payloads of profiles, which are all empty here, as empty lists. The
/// mapping has a text there, so a service refuses the message. An absent field means the same as an empty one.
fn in_json(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut message = serde_json::to_value(message)?;
    remove_empty_lists(&mut message);
    serde_json::to_vec(&message)
}

fn remove_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| field.as_array().is_none_or(|list| !list.is_empty()));
            fields.values_mut().for_each(remove_empty_lists);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_empty_lists),
        _ => {}
    }
}

/// What the service refused, from an answer in JSON. The count may be a number or a string: protobuf's
/// JSON mapping writes 64-bit integers as strings.
pub(super) fn refused_in_json(answer: &[u8]) -> Option<Refused> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let message = partial.get("errorMessage").and_then(Value::as_str);
    let message = message.unwrap_or_default();
    [
        ("rejectedDataPoints", "data points"),
        ("rejectedSpans", "spans"),
        ("rejectedLogRecords", "log records"),
        ("rejectedProfiles", "profiles"),
    ]
    .into_iter()
    .find_map(|(field, what)| {
        let count = partial.get(field)?;
        let count = count
            .as_i64()
            .or_else(|| count.as_str().and_then(|text| text.parse().ok()))?;
        (count > 0).then(|| (count, what, message.to_owned()))
    })
}

/// A failed connection is retryable; a configuration error is not.
fn retry_of(error: &ureq::Error) -> Retry {
    use ureq::Error::{BadUri, InvalidProxyUrl, Rustls, Tls};
    match error {
        BadUri(_) | InvalidProxyUrl | Rustls(_) | Tls(_) => Retry::No,
        _ => Retry::Soon,
    }
}

/// Parses `Retry-After`, which is in seconds or a date.
pub(super) fn after(retry_after: Option<&str>, now: SystemTime) -> Retry {
    let wait = retry_after.and_then(|text| {
        let text = text.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = DateTimeParser::new().parse_timestamp(text).ok()?;
        SystemTime::from(date).duration_since(now).ok()
    });
    wait.map_or(Retry::Soon, Retry::After)
}

fn certificates(path: &str) -> Result<Vec<ureq::tls::Certificate<'static>>, Notice> {
    let refused = |problem: String| Notice::SettingRefused {
        setting: "OTEL_EXPORTER_OTLP_CERTIFICATE".to_owned(),
        problem: format!("`{path}`: {problem}"),
    };
    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|e| refused(e.to_string()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(refused("no certificate is in it".to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_in_json_may_have_its_count_as_number_or_string() {
        for count in ["3", "\"3\""] {
            let answer = format!(
                r#"{{"partialSuccess": {{"rejectedSpans": {count}, "errorMessage": "too old"}}}}"#
            );
            let found = refused_in_json(answer.as_bytes());
            assert_eq!(found, Some((3, "spans", "too old".to_owned())));
        }
        assert_eq!(refused_in_json(br#"{"partialSuccess": {}}"#), None);
        assert_eq!(refused_in_json(b"{}"), None);
        assert_eq!(refused_in_json(b"<html>"), None);
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_294_800);
        let for_s = |seconds| Retry::After(Duration::from_secs(seconds));
        assert_eq!(after(Some("7"), now), for_s(7));
        assert_eq!(after(Some("Sat, 21 Nov 2026 21:00:30 GMT"), now), for_s(30));
        let past = after(Some("Sat, 21 Nov 2026 20:00:00 GMT"), now);
        assert_eq!(past, Retry::Soon);
        assert_eq!(after(Some("later"), now), Retry::Soon);
        assert_eq!(after(None, now), Retry::Soon);
    }
}
