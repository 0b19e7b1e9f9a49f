//! A tick's readings as series: the scope and the key they are written under become attributes.

use std::borrow::Cow;

use headspace_agent::model::metric::Metric;
use headspace_agent::model::reading::{pairs, split_key};

use super::{Attribute, Snapshot, named};

impl Snapshot {
    /// Takes a reading, `process.cpu.time{cpu.mode=user}` in the scope `process`. What no metric is
    /// declared for is another version's, and left out.
    pub(super) fn take_reading(&mut self, scope: &str, key: &str, value: f64) {
        let (name, written) = split_key(key);
        let Some(metric) = Metric::named(name) else {
            return;
        };
        let mut attributes = self.of_scope(metric, scope);
        attributes.extend(pairs(written).map(|(name, value)| {
            match metric.attributes.iter().find(|known| **known == name) {
                Some(known) => named(known, value),
                None => (Cow::Owned(name.to_owned()), value.to_owned()),
            }
        }));
        let (kind, _) = scope.split_once(':').unwrap_or((scope, ""));
        self.read(metric, kind, attributes, value);
    }

    /// What the scope adds: which GPU, disk or thread, and for metrics of several scopes which kind.
    fn of_scope(&self, metric: &'static Metric, scope: &str) -> Vec<Attribute> {
        let (kind, name) = scope.split_once(':').unwrap_or((scope, ""));
        let mut attributes = Vec::new();
        if metric.scopes.len() > 1 {
            attributes.push(named("scope", kind));
        }
        match kind {
            "gpu" => {
                let gpu = name.parse().ok().and_then(|gpu: u32| self.gpus.get(&gpu));
                let id = gpu.and_then(|gpu| gpu.mig.as_ref().or(gpu.uuid.as_ref()));
                attributes.push(named("gpu", name));
                attributes.push(named("hw.id", id.map_or(name, String::as_str)));
                if let Some(model) = gpu.and_then(|gpu| gpu.name.as_ref()) {
                    attributes.push(named("hw.name", model));
                }
                attributes.push(named("hw.type", "gpu"));
            }
            "disk" => attributes.push(named("system.device", name)),
            "thread" => attributes.push(named("thread.name", name)),
            _ => {}
        }
        attributes
    }
}
