//! Sends the requests of one signal over HTTP or gRPC.

use std::time::Duration;

use headspace_agent::notice::Notice;
use opentelemetry_proto::tonic::collector::logs::v1 as logs;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::profiles::v1development as profiles;
use opentelemetry_proto::tonic::collector::trace::v1 as traces;
use prost::Message;
use serde::Serialize;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::grpc::Grpc;
use super::http::Http;
use super::outcome::{Refused, Sent};
use super::settings::{Protocol, Target};

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

    pub(super) fn send<M: Signal>(&self, message: M, limit: Duration) -> Sent {
        match self {
            Self::Http(http) => http.send(&message, limit),
            Self::Grpc(grpc) => grpc.send(message, limit),
        }
    }
}

/// The export request of a signal.
pub(super) trait Signal: Message + Serialize + Sized {
    /// What the signal's service answers.
    type Answer: Message + Default;

    /// What the service refused.
    fn refused(answer: Self::Answer) -> Option<Refused>;

    /// Calls the service over gRPC.
    async fn call(
        request: Request<Self>,
        channel: Channel,
        gzip: bool,
    ) -> Result<Response<Self::Answer>, Status>;
}

/// The generated messages and clients of the signals have no trait in common.
macro_rules! signal {
    ($request:ty, $answer:ty, $client:ty, $rejected:ident, $what:literal) => {
        impl Signal for $request {
            type Answer = $answer;

            fn refused(answer: $answer) -> Option<Refused> {
                let partial = answer.partial_success?;
                Some((partial.$rejected, $what, partial.error_message))
            }

            async fn call(
                request: Request<Self>,
                channel: Channel,
                gzip: bool,
            ) -> Result<Response<$answer>, Status> {
                let mut client = <$client>::new(channel);
                if gzip {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                client.export(request).await
            }
        }
    };
}

signal!(
    metrics::ExportMetricsServiceRequest,
    metrics::ExportMetricsServiceResponse,
    metrics::metrics_service_client::MetricsServiceClient<Channel>,
    rejected_data_points,
    "data points"
);
signal!(
    traces::ExportTraceServiceRequest,
    traces::ExportTraceServiceResponse,
    traces::trace_service_client::TraceServiceClient<Channel>,
    rejected_spans,
    "spans"
);
signal!(
    logs::ExportLogsServiceRequest,
    logs::ExportLogsServiceResponse,
    logs::logs_service_client::LogsServiceClient<Channel>,
    rejected_log_records,
    "log records"
);
signal!(
    profiles::ExportProfilesServiceRequest,
    profiles::ExportProfilesServiceResponse,
    profiles::profiles_service_client::ProfilesServiceClient<Channel>,
    rejected_profiles,
    "profiles"
);
