//! Runs the GPU sources on a fake driver, with a clock that the test advances.

// Each test program uses only a part of this module.
#![allow(dead_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where it cannot go on"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headspace_agent::model::{Reading, Scope};
use headspace_agent::port::{CollectError, Collector};
use headspace_agent::sampling::RankGpu;
use headspace_agent::testing::ManualClock;
use headspace_collectors::gpu::Gpus;
use serde_json::{Value, json};

use crate::fake_nvml_build::FakeNvml;

/// Readings by key.
pub(crate) type Readings = BTreeMap<String, f64>;

/// A fake driver, the sources that read it, and the clock of the sources. Both clocks advance together.
pub(crate) struct Machine {
    pub(crate) fake: FakeNvml,
    pub(crate) gpus: Gpus,
    pub(crate) clock: ManualClock,
    pub(crate) at: Duration,
}

impl Machine {
    /// Opens every device of the script.
    pub(crate) fn with_script(script: &Value) -> Self {
        Self::with(FakeNvml::start(script), None)
    }

    /// Opens only those devices of the script that `visible` selects.
    pub(crate) fn with_visible(script: &Value, visible: &str) -> Self {
        Self::with(FakeNvml::start(script), Some(visible))
    }

    pub(crate) fn with(fake: FakeNvml, visible: Option<&str>) -> Self {
        Self::of_rank(fake, visible, &RankGpu::default())
    }

    /// The same, for a process with this rank.
    pub(crate) fn of_rank(fake: FakeNvml, visible: Option<&str>, rank_gpu: &RankGpu) -> Self {
        let clock = ManualClock::default();
        let path = fake.path();
        let gpus = Gpus::with_clock(Some(&path), visible, rank_gpu, Arc::new(clock.clone()));
        Self {
            fake,
            gpus,
            clock,
            at: Duration::ZERO,
        }
    }

    /// Moves both clocks forward.
    pub(crate) fn advance(&mut self, seconds: f64) {
        self.fake.advance(seconds);
        self.clock.advance(Duration::from_secs_f64(seconds));
        self.at += Duration::from_secs_f64(seconds);
    }

    /// One tick of the source `gpu`.
    pub(crate) fn device(&mut self) -> Result<Vec<Reading>, CollectError> {
        collect(self.gpus.device.as_mut().expect("`gpu` is on"), self.at)
    }

    /// One tick of the source `gpu_gpm`.
    pub(crate) fn gpm(&mut self) -> Result<Vec<Reading>, CollectError> {
        collect(self.gpus.gpm.as_mut().expect("`gpu_gpm` is on"), self.at)
    }

    /// One tick of the source `gpu_processes`.
    pub(crate) fn processes(&mut self) -> Result<Vec<Reading>, CollectError> {
        collect(
            self.gpus.processes.as_mut().expect("`gpu_processes` is on"),
            self.at,
        )
    }
}

fn collect(source: &mut impl Collector, at: Duration) -> Result<Vec<Reading>, CollectError> {
    let mut readings = Vec::new();
    source.collect(at, &mut readings).map(|()| readings)
}

/// The readings of one device.
pub(crate) fn gpu_readings(readings: &[Reading], ordinal: u32) -> Readings {
    readings
        .iter()
        .filter(|reading| reading.scope == Scope::Gpu(ordinal))
        .map(|reading| (reading.key(), reading.value))
        .collect()
}

/// The reason why a source is off, and the remedy.
pub(crate) fn refusal<T: std::fmt::Debug>(opened: &Result<T, CollectError>) -> (String, String) {
    match opened {
        Err(CollectError::Unsupported { reason, remedy }) => {
            (reason.clone(), remedy.clone().unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

/// A healthy H100 with all values that a driver has. `changes` replaces some of them, and null removes one.
pub(crate) fn h100(changes: Value) -> Value {
    let healthy = include_str!("../../fake_nvml/src/healthy_h100.json");
    let mut device: Value = serde_json::from_str(healthy).expect("JSON");
    merge(&mut device, changes);
    device
}

/// A script with several healthy H100s, each with its own UUID.
pub(crate) fn h100s(count: usize) -> Value {
    json!({"devices": vec![h100(json!({})); count]})
}

fn merge(into: &mut Value, changes: Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, changes) => *into = changes,
    }
}
