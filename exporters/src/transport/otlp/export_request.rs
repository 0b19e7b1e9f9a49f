//! What the export requests of all signals have in common. Their generated messages and clients share no trait.

use opentelemetry_proto::tonic::collector::logs::v1 as logs;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::profiles::v1development as profiles;
use opentelemetry_proto::tonic::collector::trace::v1 as traces;
use prost::Message;
use serde::Serialize;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::partial_success::Refused;

/// The export request of a signal.
pub(super) trait ExportRequest: Message + Serialize + Sized {
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

macro_rules! export_request {
    ($request:ty, $answer:ty, $client:ty, $rejected:ident, $what:literal) => {
        impl ExportRequest for $request {
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

export_request!(
    metrics::ExportMetricsServiceRequest,
    metrics::ExportMetricsServiceResponse,
    metrics::metrics_service_client::MetricsServiceClient<Channel>,
    rejected_data_points,
    "data points"
);
export_request!(
    traces::ExportTraceServiceRequest,
    traces::ExportTraceServiceResponse,
    traces::trace_service_client::TraceServiceClient<Channel>,
    rejected_spans,
    "spans"
);
export_request!(
    logs::ExportLogsServiceRequest,
    logs::ExportLogsServiceResponse,
    logs::logs_service_client::LogsServiceClient<Channel>,
    rejected_log_records,
    "log records"
);
export_request!(
    profiles::ExportProfilesServiceRequest,
    profiles::ExportProfilesServiceResponse,
    profiles::profiles_service_client::ProfilesServiceClient<Channel>,
    rejected_profiles,
    "profiles"
);
