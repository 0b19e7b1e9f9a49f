//! One measured value, and what it was measured on.

use std::fmt;
use std::sync::Arc;

use super::metric::Metric;

/// What a reading is about. Its text form is the key under `readings` in a tick.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// The machine, or the part of it that this process may use.
    Host,
    /// The control groups above this process: what it shares with its container.
    Cgroup,
    /// The training process.
    Process,
    /// The training process and all its descendants, loader workers among them.
    Tree,
    /// Threads of the training process that go by one name: `thread:consumer` is the one that
    /// takes the batches.
    Thread(Arc<str>),
    /// A GPU, by the number that the process knows it by (its CUDA ordinal).
    Gpu(u32),
    /// A block device, by its kernel name.
    Disk(Arc<str>),
    /// The agent itself.
    Agent,
}

impl Scope {
    /// The part of the text form before the colon: what [`Metric::scopes`] lists.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cgroup => "cgroup",
            Self::Process => "process",
            Self::Tree => "tree",
            Self::Thread(_) => "thread",
            Self::Gpu(_) => "gpu",
            Self::Disk(_) => "disk",
            Self::Agent => "agent",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(name) | Self::Disk(name) => write!(f, "{}:{name}", self.kind()),
            Self::Gpu(ordinal) => write!(f, "gpu:{ordinal}"),
            _ => f.write_str(self.kind()),
        }
    }
}

/// Attributes that tell apart several values of one metric, for example `cpu.mode=user`.
pub type Attributes = &'static [(&'static str, &'static str)];

/// One measured value.
///
/// A source that could not read a value makes no reading: zero means a measured zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// What was measured, in which unit.
    pub metric: &'static Metric,
    /// What it was measured on.
    pub scope: Scope,
    /// Which of the metric's values this is; empty where it has only one.
    pub attributes: Attributes,
    /// The value, in the metric's unit. Finite.
    pub value: f64,
}

impl Reading {
    /// A reading of a metric that has one value in its scope.
    #[must_use]
    pub fn new(metric: &'static Metric, scope: Scope, value: f64) -> Self {
        Self {
            metric,
            scope,
            attributes: &[],
            value,
        }
    }

    /// A reading of a metric that has one value per combination of attributes.
    #[must_use]
    pub fn with(metric: &'static Metric, scope: Scope, attributes: Attributes, value: f64) -> Self {
        Self {
            metric,
            scope,
            attributes,
            value,
        }
    }

    /// The key of this reading within its scope: `process.cpu.time{cpu.mode=user}`.
    #[must_use]
    pub fn key(&self) -> String {
        let mut key = self.metric.name.to_owned();
        for (i, (name, value)) in self.attributes.iter().enumerate() {
            key.push(if i == 0 { '{' } else { ',' });
            key.push_str(name);
            key.push('=');
            key.push_str(value);
        }
        if !self.attributes.is_empty() {
            key.push('}');
        }
        key
    }
}

/// The metric's name in a [key](Reading::key), and its attributes as they are written there, without
/// the braces.
#[must_use]
pub fn split_key(key: &str) -> (&str, &str) {
    match key.split_once('{') {
        Some((name, attributes)) => (name, attributes.trim_end_matches('}')),
        None => (key, ""),
    }
}

/// The attributes of a key, from what [`split_key`] gives of them.
pub fn pairs(attributes: &str) -> impl Iterator<Item = (&str, &str)> {
    attributes
        .split(',')
        .filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metric;

    #[test]
    fn key_carries_the_attributes_in_braces() {
        let plain = Reading::new(&metric::PROCESS_THREAD_COUNT, Scope::Process, 3.0);
        let split = Reading::with(
            &metric::PROCESS_CPU_TIME,
            Scope::Process,
            &[("cpu.mode", "user")],
            1.5,
        );

        assert_eq!(plain.key(), "process.thread.count");
        assert_eq!(split.key(), "process.cpu.time{cpu.mode=user}");
    }

    #[test]
    fn a_key_is_taken_apart_as_it_was_put_together() {
        let (name, attributes) = split_key("headspace.pressure.time{resource=io,stalled=some}");

        assert_eq!(name, "headspace.pressure.time");
        let found: Vec<_> = pairs(attributes).collect();
        assert_eq!(found, [("resource", "io"), ("stalled", "some")]);
        let (plain, none) = split_key("process.thread.count");
        assert_eq!((plain, pairs(none).count()), ("process.thread.count", 0));
    }
}
