//! Sends the requests of one signal over HTTP or gRPC.

use std::time::Duration;

use headspace_agent::notice::Notice;

use super::export_request::ExportRequest;
use super::grpc::Grpc;
use super::http::Http;
use super::partial_success::Sent;
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

    pub(super) fn send<M: ExportRequest>(&self, message: M, limit: Duration) -> Sent {
        match self {
            Self::Http(http) => http.send(&message, limit),
            Self::Grpc(grpc) => grpc.send(message, limit),
        }
    }
}
