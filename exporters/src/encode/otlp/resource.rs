//! Describes the measured process as an OpenTelemetry resource.
//!
//! The user's attributes (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`) override the detected ones,
//! except the instance id. Ranks share an environment, so a common id would mix their series.

use headspace_agent::model::{Record, RecordBody};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::super::snapshot::RankProcess;
use super::{integer, text};

/// Default `service.name`.
const SERVICE: &str = "headspace";

/// What is known about the process before its first record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// The user's attributes. The last one with a name takes effect.
    pub attributes: Vec<(String, String)>,
    /// A globally unique id of this process.
    pub instance_id: String,
    /// The rank among the processes of its machine.
    pub local_rank: u32,
    /// The number of processes in the run.
    pub world_size: u32,
}

/// What the first records say about the process.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    process: Option<RankProcess>,
    host: Option<String>,
}

impl Origin {
    /// Reads the attributes from a record.
    pub fn add_record(&mut self, record: &Record) {
        self.process
            .get_or_insert_with(|| RankProcess::from_record(record));
        if let RecordBody::Run(run) = &record.body {
            self.host.clone_from(&run.host.name);
        }
    }
}

/// The resource of a process.
pub fn resource(process: &Process, origin: &Origin) -> Resource {
    let writer = origin.process.clone().unwrap_or_default();
    let mut attributes = vec![
        text("service.name", SERVICE),
        text("service.instance.id", &process.instance_id),
        integer("process.pid", writer.pid),
        text("headspace.run.id", &writer.run_id),
        integer("headspace.rank", writer.rank),
        integer("headspace.local_rank", process.local_rank),
        integer("headspace.world_size", process.world_size),
        text("telemetry.sdk.name", "headspace"),
        text("telemetry.sdk.language", "rust"),
        text("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    if let Some(host) = &origin.host {
        attributes.push(text("host.name", host));
    }
    for (key, value) in &process.attributes {
        let value = if key == "service.instance.id" && process.world_size > 1 {
            format!("{value}-{}", writer.rank)
        } else {
            value.clone()
        };
        set(&mut attributes, text(key, value));
    }
    Resource {
        attributes,
        ..Resource::default()
    }
}

fn set(attributes: &mut Vec<KeyValue>, new: KeyValue) {
    match attributes.iter_mut().find(|known| known.key == new.key) {
        Some(known) => *known = new,
        None => attributes.push(new),
    }
}
