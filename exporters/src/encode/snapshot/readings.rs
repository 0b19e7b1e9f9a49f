//! Converts a tick's readings to series: their scope and key become attributes.

use std::borrow::Cow;

use headspace_agent::model::{ReadingKey, Scope};

use super::{Attribute, Snapshot, named};

impl Snapshot {
    /// Adds a reading, for example `process.cpu.time{cpu.mode=user}` in the scope `process`.
    pub(super) fn add_reading(&mut self, key: &ReadingKey<'_>, value: f64) {
        let metric = key.metric;
        let mut attributes = self.scope_attributes(key);
        attributes.extend(key.attributes().map(|(name, value)| {
            match metric.attributes.iter().find(|known| **known == name) {
                Some(known) => named(known, value),
                None => (Cow::Owned(name.to_owned()), value.to_owned()),
            }
        }));
        self.read(metric, Some(&key.scope), attributes, value);
    }

    /// The attributes from the scope: which GPU, disk or thread. For metrics of several scopes, also
    /// the kind.
    fn scope_attributes(&self, key: &ReadingKey<'_>) -> Vec<Attribute> {
        let mut attributes = Vec::new();
        if key.metric.scopes.len() > 1 {
            attributes.push(named("scope", key.scope.kind()));
        }
        match &key.scope {
            Scope::Gpu(ordinal) => {
                let gpu = self.gpus.get(ordinal);
                let id = gpu.and_then(|gpu| gpu.mig.as_ref().or(gpu.uuid.as_ref()));
                let name = ordinal.to_string();
                attributes.push(named("gpu", &name));
                attributes.push(named("hw.id", id.unwrap_or(&name)));
                if let Some(model) = gpu.and_then(|gpu| gpu.name.as_ref()) {
                    attributes.push(named("hw.name", model));
                }
                attributes.push(named("hw.type", "gpu"));
            }
            Scope::Mount(folder) => {
                attributes.push(named("system.filesystem.mountpoint", &**folder));
            }
            Scope::Disk(name) => attributes.push(named("system.device", &**name)),
            Scope::Thread(name) => attributes.push(named("thread.name", &**name)),
            _ => {}
        }
        attributes
    }
}
