//! Sends the requests of one signal over HTTP or gRPC.

use std::time::Duration;

use headspace_agent::notice::Notice;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

use super::grpc::Grpc;
use super::http::Http;
use super::outcome::{Sent, refused_logs, refused_points, refused_profiles, refused_spans};
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

    pub(super) fn profiles(&self, message: ExportProfilesServiceRequest, limit: Duration) -> Sent {
        match self {
            Self::Http(http) => http.send(&message, limit, refused_profiles),
            Self::Grpc(grpc) => grpc.profiles(message, limit),
        }
    }
}
