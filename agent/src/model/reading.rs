//! One measured value, and what it was measured on.

use std::fmt;

use super::metric::Metric;

/// What a reading is about. Its text form is the key under `readings` in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// The machine, or the part of it that this process may use.
    Host,
    /// The training process.
    Process,
    /// The agent itself.
    Agent,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Process => "process",
            Self::Agent => "agent",
        })
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
}
