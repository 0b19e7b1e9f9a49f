//! Parses the OpenTelemetry destination: `otlp`, or `otlp:http://collector:4318`.

use super::{Destination, DestinationError, Opened, Options, Place};
use crate::transport::otlp;
use crate::transport::otlp::settings::Given;

const KIND: &str = "otlp";

pub(super) fn parse(options: &Options) -> Result<Destination, DestinationError> {
    Given::parse(options)
        .map(|given| Destination::Otlp(Box::new(given)))
        .map_err(|problem| DestinationError::Option {
            kind: KIND,
            problem,
        })
}

pub(super) fn open(given: &Given, place: &Place) -> Result<Opened, DestinationError> {
    let opened = otlp::open(given, place.local_rank, place.world_size);
    let (exporters, notices) = opened.map_err(|error| DestinationError::Closed {
        kind: KIND,
        problem: format!("the system gives no thread for it: {error}"),
    })?;
    Ok(Opened { exporters, notices })
}
