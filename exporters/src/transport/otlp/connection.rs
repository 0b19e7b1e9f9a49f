//! Sends the requests of one signal over HTTP or gRPC, and reads what the service refused.

use std::time::Duration;

use ::http::Uri;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};

use headspace_agent::notice::Notice;

use super::super::background::Failure;
use super::grpc::Grpc;
use super::http::Http;
use super::settings::{Protocol, Target};

/// The outcome of a request.
pub(super) type Sent = Result<(), Failure>;

/// The connection to one service of a collector.
#[derive(Debug)]
pub(super) enum Connection {
    Http(Http),
    Grpc(Grpc),
}

impl Connection {
    pub(super) fn open(target: Target) -> Result<Self, Notice> {
        match target.protocol {
            Protocol::Grpc => Grpc::new(target).map(Self::Grpc),
            Protocol::HttpProtobuf | Protocol::HttpJson => Http::new(target).map(Self::Http),
        }
    }

    pub(super) fn metrics(&self, message: ExportMetricsServiceRequest, limit: Duration) -> Sent {
        match self {
            Self::Http(http) => http.send(&message, limit, refused_points),
            Self::Grpc(grpc) => grpc.metrics(message, limit),
        }
    }

    pub(super) fn traces(&self, message: ExportTraceServiceRequest, limit: Duration) -> Sent {
        match self {
            Self::Http(http) => http.send(&message, limit, refused_spans),
            Self::Grpc(grpc) => grpc.traces(message, limit),
        }
    }

    pub(super) fn logs(&self, message: ExportLogsServiceRequest, limit: Duration) -> Sent {
        match self {
            Self::Http(http) => http.send(&message, limit, refused_logs),
            Self::Grpc(grpc) => grpc.logs(message, limit),
        }
    }
}

/// What a service refused: the number of items, their kind, and a message that says which and why.
pub(super) type Refused = (i64, &'static str, String);

/// What the metrics service refused.
pub(super) fn refused_points(answer: ExportMetricsServiceResponse) -> Option<Refused> {
    let partial = answer.partial_success?;
    let count = partial.rejected_data_points;
    Some((count, "data points", partial.error_message))
}

/// What the trace service refused.
pub(super) fn refused_spans(answer: ExportTraceServiceResponse) -> Option<Refused> {
    let partial = answer.partial_success?;
    Some((partial.rejected_spans, "spans", partial.error_message))
}

/// What the logs service refused.
pub(super) fn refused_logs(answer: ExportLogsServiceResponse) -> Option<Refused> {
    let partial = answer.partial_success?;
    let count = partial.rejected_log_records;
    Some((count, "log records", partial.error_message))
}

/// The outcome of a request that the service answered.
pub(super) fn outcome(to: &str, refused: Option<Refused>) -> Sent {
    match refused {
        Some((count, what, message)) if count > 0 => Err(Failure {
            refused: u64::try_from(count).ok(),
            ..Failure::lasting(format!("`{to}` rejected {count} {what}: {message}"))
        }),
        _ => Ok(()),
    }
}

/// An address without the parts that may be secret.
pub(super) fn public_address(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{scheme}://{host}{port}{}", uri.path())
}
