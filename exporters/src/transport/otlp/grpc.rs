//! Sends requests over gRPC, with tonic's generated clients.
//!
//! The clients need an async runtime. This runtime has no thread except the destination's own, and runs
//! only during a request.

use std::time::Duration;

use headspace_agent::notice::Notice;
use tokio::runtime::{Builder, Runtime};
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::super::background::{Failure, Retry};
use super::export_request::ExportRequest;
use super::partial_success::{Sent, outcome, public_address};
use super::settings::Target;
use crate::encode::terminal_text::plain;

/// The gRPC connection to one address.
#[derive(Debug)]
pub(super) struct Grpc {
    // Declared before the runtime, because the channel's tasks run in it and must be dropped first.
    channel: Channel,
    runtime: Runtime,
    target: Target,
}

impl Grpc {
    /// Prepares the channel without connecting.
    pub(super) fn new(target: Target) -> Result<Self, Notice> {
        let refused = |problem: String| Notice::SettingRefused {
            setting: "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
            problem: format!("`{}`: {problem}", public_address(&target.endpoint)),
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let mut endpoint = Endpoint::from(target.endpoint.clone())
            .user_agent(concat!("headspace/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| refused(error.to_string()))?
            .connect_timeout(target.timeout);
        if target.endpoint.scheme_str() == Some("https") {
            let tls = match &target.certificate {
                Some(path) => {
                    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
                    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
                }
                None => ClientTlsConfig::new().with_native_roots(),
            };
            endpoint = endpoint
                .tls_config(tls)
                .map_err(|error| refused(error.to_string()))?;
        }
        let channel = {
            let _inside = runtime.enter();
            endpoint.connect_lazy()
        };
        Ok(Self {
            channel,
            runtime,
            target,
        })
    }

    /// Sends a message.
    pub(super) fn send<M: ExportRequest>(&self, message: M, limit: Duration) -> Sent {
        let mut request = Request::new(message);
        let headers = self.target.headers.iter().cloned().collect();
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let answer = M::call(request, self.channel.clone(), self.target.gzip);
        let to = public_address(&self.target.endpoint);
        let limit = limit.min(self.target.timeout);
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, answer).await });
        match answer {
            Err(_) => Err(Failure::passing(
                format!("`{to}` did not answer within {:.1} s", limit.as_secs_f64()),
                Retry::Soon,
            )),
            Ok(Err(status)) => Err(Failure::passing(
                format!(
                    "`{to}` answered with {:?}: {}",
                    status.code(),
                    short(status.message())
                ),
                retry_of(&status),
            )),
            Ok(Ok(answer)) => outcome(&to, M::refused(answer.into_inner())),
        }
    }
}

/// Whether to retry, by OpenTelemetry's list of retryable codes. `RESOURCE_EXHAUSTED` is retryable only
/// if the answer says when to retry, because a request that is too large has the same code.
fn retry_of(status: &Status) -> Retry {
    let delay = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
    match status.code() {
        Code::Unavailable
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::DataLoss => delay.map_or(Retry::Soon, Retry::After),
        Code::ResourceExhausted => delay.map_or(Retry::No, Retry::After),
        _ => Retry::No,
    }
}

/// Shortens the server's message, which may be arbitrarily long and is printed to a terminal.
fn short(text: &str) -> String {
    plain(text).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn resource_exhausted_is_retried_only_if_the_server_names_a_delay() {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let says_when = |code| Status::with_error_details(code, "full", details.clone());
        let after = Retry::After(Duration::from_secs(3));
        assert_eq!(retry_of(&says_when(Code::ResourceExhausted)), after);
        let silent = Status::new(Code::ResourceExhausted, "message too large");
        assert_eq!(retry_of(&silent), Retry::No);

        assert_eq!(retry_of(&says_when(Code::Unavailable)), after);
        assert_eq!(retry_of(&Status::new(Code::Unavailable, "")), Retry::Soon);
        assert_eq!(retry_of(&says_when(Code::InvalidArgument)), Retry::No);
    }
}
