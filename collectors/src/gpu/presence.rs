//! The sources `gpu:0`, `gpu:1` and so on: whether the driver still reaches that device.
//!
//! If the process uses several GPUs and one is lost, the other sources continue with the remaining
//! ones. The presence source of the lost GPU is then disabled, and its notice states which GPU was lost
//! and why. It reads no values. With only one GPU there is no such source, because the other sources
//! report the loss themselves.

use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::Reading;
use headspace_agent::port::{CollectError, Collector};

use super::device::Device;

/// The purpose of this source.
pub const READS: &str = "whether the driver still reaches this GPU";

/// Names by ordinal. The last one covers all further devices.
const NAMES: [&str; 16] = [
    "gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:4", "gpu:5", "gpu:6", "gpu:7", "gpu:8", "gpu:9",
    "gpu:10", "gpu:11", "gpu:12", "gpu:13", "gpu:14", "gpu:15",
];

/// The source that reports one device's presence.
#[derive(Debug)]
pub struct Presence {
    device: Arc<Device>,
}

impl Presence {
    /// Creates one source per device, if there are several devices.
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
        NAMES.get(place).copied().unwrap_or("gpu:16 or later")
    }

    fn collect(&mut self, _at: Duration, _out: &mut Vec<Reading>) -> Result<(), CollectError> {
        match self.device.lost() {
            None => Ok(()),
            Some(reason) => Err(CollectError::unsupported(reason)),
        }
    }
}
