//! Builds the HTTP response to a scrape.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName,
    HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tracing::debug;

use super::super::gzip;
use super::super::host_header::ServedNames;
use super::Shared;
use crate::encode::prometheus::{self, Form, preference_weight};
use crate::encode::snapshot::Snapshot;
use crate::log_target::PROMETHEUS;

/// The body for a request to any other path.
const WHERE: &str = "headspace: metrics for Prometheus are at /metrics\n";

/// The body for a request with a host name that the server does not serve.
const ELSEWHERE: &str = "headspace: the host name in this request does not belong to this server (use \
                         the address at which it listens, or start it with `prometheus:NAME:PORT`)\n";

/// The served metrics, and the host names under which they are served.
pub(super) struct Answered {
    pub(super) names: ServedNames,
    pub(super) shared: Arc<Shared>,
}

impl Answered {
    /// The response to a request: the metrics, or an error.
    pub(super) fn to<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let answer = self.choose(request);
        let (method, path, status) = (request.method(), request.uri().path(), answer.status());
        debug!(target: PROMETHEUS, %method, path, status = status.as_u16(), "answered");
        answer
    }

    fn choose<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            let headers = answer.headers_mut();
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        if !self.names.include(request.uri(), request.headers()) {
            return plain(StatusCode::MISDIRECTED_REQUEST, ELSEWHERE);
        }
        match request.uri().path() {
            "/metrics" => metrics(request.headers(), &self.shared.current()),
            "/" => plain(StatusCode::OK, WHERE),
            _ => plain(StatusCode::NOT_FOUND, WHERE),
        }
    }
}

fn metrics(request_headers: &HeaderMap, snapshot: &Snapshot) -> Response<Full<Bytes>> {
    let form = Form::accepted(&header_values(request_headers, &ACCEPT));
    let text = prometheus::encode([snapshot], form);
    let zipped = (preference_weight(&header_values(request_headers, &ACCEPT_ENCODING), "gzip")
        > 0.0)
        .then(|| gzip(text.as_bytes()).ok())
        .flatten();
    let encoded = zipped.is_some();
    let mut answer = Response::new(Full::from(zipped.unwrap_or_else(|| text.into_bytes())));
    let headers = answer.headers_mut();
    let vary = HeaderValue::from_static("accept, accept-encoding");
    headers.insert(VARY, vary);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    if encoded {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    guard(headers);
    answer
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    guard(headers);
    answer
}

/// Adds headers that forbid caching and content-type sniffing.
fn guard(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// All values of a header, joined into one list.
fn header_values(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter();
    let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    texts.join(",")
}
