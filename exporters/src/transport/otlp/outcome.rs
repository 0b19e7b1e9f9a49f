//! The outcome of a request, and what a service refused of it.

use ::http::Uri;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;

use super::super::background::Failure;

/// The outcome of a request.
pub(super) type Sent = Result<(), Failure>;

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

/// What the profiles service refused.
pub(super) fn refused_profiles(answer: ExportProfilesServiceResponse) -> Option<Refused> {
    let partial = answer.partial_success?;
    let count = partial.rejected_profiles;
    Some((count, "profiles", partial.error_message))
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
