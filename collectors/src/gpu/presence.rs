//! The sources `gpu:0`, `gpu:1` and so on: whether the driver still reaches that device.
//!
//! Where the process uses several GPUs and one is lost, the sources that read them go on with the
//! others. This one then says which was lost and why, by being retired. It reads nothing itself,
//! and there is none where the process uses one GPU: the sources that read it say so themselves.

use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::Reading;
use headspace_agent::port::{CollectError, Collector};

use super::device::Device;

/// What it reads.
pub const READS: &str = "whether the driver still reaches this GPU";

/// Names by ordinal. What lies beyond is told of by the last.
const NAMES: [&str; 17] = [
    "gpu:0",
    "gpu:1",
    "gpu:2",
    "gpu:3",
    "gpu:4",
    "gpu:5",
    "gpu:6",
    "gpu:7",
    "gpu:8",
    "gpu:9",
    "gpu:10",
    "gpu:11",
    "gpu:12",
    "gpu:13",
    "gpu:14",
    "gpu:15",
    "gpu:16 or later",
];

/// The source of one device's presence.
#[derive(Debug)]
pub struct Presence {
    device: Arc<Device>,
}

impl Presence {
    /// One for each device, where there are several.
    pub(super) fn of_each(devices: &[Arc<Device>]) -> Vec<Self> {
        if devices.len() < 2 {
            return Vec::new();
        }
        devices
            .iter()
            .map(|device| Self {
                device: Arc::clone(device),
            })
            .collect()
    }
}

impl Collector for Presence {
    fn name(&self) -> &'static str {
        let place = usize::try_from(self.device.ordinal).unwrap_or(usize::MAX);
        NAMES[place.min(NAMES.len() - 1)]
    }

    fn collect(&mut self, _at: Duration, _out: &mut Vec<Reading>) -> Result<(), CollectError> {
        match self.device.lost() {
            None => Ok(()),
            Some(reason) => Err(CollectError::unsupported(reason)),
        }
    }
}
