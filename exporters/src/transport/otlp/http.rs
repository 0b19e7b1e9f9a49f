//! Requests over HTTP, as protobuf or as JSON, by a blocking client.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use headspace_agent::notice::Notice;
use prost::Message;
use serde::Serialize;
use serde_json::Value;
use ureq::Agent;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::super::apart::{Failure, Retry};
use super::settings::{Line, Protocol};
use super::{place, rejected};

/// Bytes of an answer that are read: it holds nothing but what was refused.
const MOST_ANSWER: u64 = 64 << 10;

/// The way to one address.
#[derive(Debug)]
pub(super) struct HttpLine {
    agent: Agent,
    line: Line,
}

impl HttpLine {
    pub(super) fn new(line: Line) -> Result<Self, Notice> {
        let roots = match &line.certificate {
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
            line,
        })
    }

    /// Sends a message. Its answer in protobuf is of type `A`.
    pub(super) fn send<M, A>(
        &self,
        message: &M,
        limit: Duration,
        refused: impl Fn(A) -> Option<String>,
    ) -> Result<(), Failure>
    where
        M: Message + Serialize,
        A: Message + Default,
    {
        let json = self.line.protocol == Protocol::HttpJson;
        let lasting = |reason: String| Failure {
            reason,
            retry: Retry::No,
        };
        let (body, kind) = if json {
            let body = serde_json::to_vec(message).map_err(|e| lasting(e.to_string()))?;
            (body, "application/json")
        } else {
            (message.encode_to_vec(), "application/x-protobuf")
        };
        let mut request = self.agent.post(&self.line.endpoint);
        for (name, value) in &self.line.headers {
            request = request.header(name, value);
        }
        request = request.header(CONTENT_TYPE, kind);
        let body = if self.line.gzip {
            request = request.header(CONTENT_ENCODING, "gzip");
            compressed(&body).map_err(|error| lasting(error.to_string()))?
        } else {
            body
        };
        let to = place(&self.line.endpoint);
        let answer = request
            .config()
            .timeout_global(Some(limit.min(self.line.timeout)))
            .build()
            .send(&body[..])
            .map_err(|error| Failure {
                retry: retry_of(&error),
                reason: format!("`{to}` cannot be reached: {error}"),
            })?;
        let status = answer.status();
        if status.is_success() {
            let mut body = answer.into_body();
            // An answer that cannot be read was an acceptance all the same.
            let read = body.with_config().limit(MOST_ANSWER).read_to_vec();
            let problem = read.ok().and_then(|bytes| {
                if json {
                    refused_in_json(&bytes)
                } else {
                    A::decode(&bytes[..]).ok().and_then(refused)
                }
            });
            return match problem {
                Some(problem) => Err(rejected(&to, &problem)),
                None => Ok(()),
            };
        }
        let asked = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        Err(Failure {
            reason: format!("`{to}` answered with status {status}"),
            retry: match status.as_u16() {
                429 | 502 | 503 | 504 => after(asked),
                _ => Retry::No,
            },
        })
    }
}

/// What was not taken, from an answer in JSON, where a count may be a number or, as protobuf's own
/// JSON writes 64 bits, a text.
fn refused_in_json(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let told = partial.get("errorMessage").and_then(Value::as_str);
    [
        ("rejectedDataPoints", "data points"),
        ("rejectedSpans", "spans"),
    ]
    .into_iter()
    .find_map(|(field, what)| {
        let count = partial.get(field)?;
        let count = count
            .as_i64()
            .or_else(|| count.as_str().and_then(|text| text.parse().ok()))?;
        (count > 0).then(|| format!("{count} {what}: {}", told.unwrap_or_default()))
    })
}

/// What cannot be reached now may be later; what is misconfigured stays so.
fn retry_of(error: &ureq::Error) -> Retry {
    use ureq::Error::{BadUri, InvalidProxyUrl, Rustls, Tls};
    match error {
        BadUri(_) | InvalidProxyUrl | Rustls(_) | Tls(_) => Retry::No,
        _ => Retry::Soon,
    }
}

/// `Retry-After` in seconds, which is what collectors send; a date counts as "soon".
fn after(asked: Option<&str>) -> Retry {
    asked
        .and_then(|text| text.trim().parse().ok())
        .map_or(Retry::Soon, |seconds| {
            Retry::After(Duration::from_secs(seconds))
        })
}

fn compressed(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
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
    fn a_partial_success_in_json_is_read_with_its_count_as_number_or_text() {
        for count in ["3", "\"3\""] {
            let answer = format!(
                r#"{{"partialSuccess": {{"rejectedSpans": {count}, "errorMessage": "too old"}}}}"#
            );
            let found = refused_in_json(answer.as_bytes());
            assert_eq!(found.as_deref(), Some("3 spans: too old"));
        }
        assert_eq!(refused_in_json(br#"{"partialSuccess": {}}"#), None);
        assert_eq!(refused_in_json(b"{}"), None);
        assert_eq!(refused_in_json(b"<html>"), None);
    }

    #[test]
    fn a_server_is_left_alone_as_long_as_it_asks_and_a_date_counts_as_soon() {
        assert_eq!(after(Some("7")), Retry::After(Duration::from_secs(7)));
        assert_eq!(after(Some("Sat, 21 Nov 2026 21:00:00 GMT")), Retry::Soon);
        assert_eq!(after(None), Retry::Soon);
    }
}
