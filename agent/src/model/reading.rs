//! Readings: measured values with their metric, scope and attributes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::metric::Metric;

/// What a reading was measured on. Its text form is the key under `readings` in a tick.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// The machine, or the part of it that this process may use.
    Host,
    /// The control groups above this process, which it shares with its container.
    Cgroup,
    /// The training process.
    Process,
    /// The training process and all its descendants, loader workers among them.
    Tree,
    /// Threads of the training process with the same name. `thread:consumer` is the thread that takes the
    /// batches.
    Thread(Arc<str>),
    /// A GPU, by its CUDA ordinal in this process.
    Gpu(u32),
    /// A block device, by its kernel name.
    Disk(Arc<str>),
    /// A mount of a network or FUSE file system, by its folder.
    Mount(Arc<str>),
    /// The agent itself.
    Agent,
}

impl Scope {
    /// The part of the text form before the colon, as in [`Metric::scopes`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cgroup => "cgroup",
            Self::Process => "process",
            Self::Tree => "tree",
            Self::Thread(_) => "thread",
            Self::Gpu(_) => "gpu",
            Self::Disk(_) => "disk",
            Self::Mount(_) => "mount",
            Self::Agent => "agent",
        }
    }

    /// Parses the text form. `None` if this version has no such scope.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = [
            Self::Host,
            Self::Cgroup,
            Self::Process,
            Self::Tree,
            Self::Agent,
        ];
        Some(match text.split_once(':') {
            None => return plain.into_iter().find(|scope| scope.kind() == text),
            Some(("thread", name)) => Self::Thread(name.into()),
            Some(("disk", name)) => Self::Disk(name.into()),
            Some(("mount", folder)) => Self::Mount(folder.into()),
            Some(("gpu", ordinal)) => Self::Gpu(ordinal.parse().ok()?),
            Some(_) => return None,
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(name) | Self::Disk(name) | Self::Mount(name) => {
                write!(f, "{}:{name}", self.kind())
            }
            Self::Gpu(ordinal) => write!(f, "gpu:{ordinal}"),
            _ => f.write_str(self.kind()),
        }
    }
}

/// Attributes that distinguish several values of one metric, for example `cpu.mode=user`.
pub type Attributes = &'static [(&'static str, &'static str)];

/// The value of the attribute `name`; `None` if it is missing.
pub fn attribute_value(attributes: Attributes, name: &str) -> Option<&'static str> {
    Some(attributes.iter().find(|(key, _)| *key == name)?.1)
}

/// One measured value.
///
/// If a source cannot read a value, there is no reading. Zero means a measured zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The metric.
    pub metric: &'static Metric,
    /// What it was measured on.
    pub scope: Scope,
    /// Attributes of the value; empty if the metric has one value in its scope.
    pub attributes: Attributes,
    /// The value, in the metric's unit. Finite.
    pub value: f64,
}

impl Reading {
    /// A reading of a metric that has one value in its scope.
    pub fn new(metric: &'static Metric, scope: Scope, value: f64) -> Self {
        Self::with(metric, scope, &[], value)
    }

    /// A reading of a metric that has one value per combination of attributes.
    pub fn with(metric: &'static Metric, scope: Scope, attributes: Attributes, value: f64) -> Self {
        Self {
            metric,
            scope,
            attributes,
            value,
        }
    }

    /// The key of this reading within its scope: `process.cpu.time{cpu.mode=user}`.
    pub fn key(&self) -> String {
        let pairs = self.attributes.iter();
        let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
        let key = ReadingKey {
            attributes: pairs.collect::<Vec<_>>().join(",").into(),
            ..ReadingKey::new(self.metric, self.scope.clone())
        };
        key.to_string()
    }
}

/// The metric and the attributes of a [key](Reading::key), without the braces. `None` if this version has
/// no such metric.
fn split_key(key: &str) -> Option<(&'static Metric, &str)> {
    let (name, attributes) = key.split_once('{').unwrap_or((key, ""));
    Some((Metric::named(name)?, attributes.trim_end_matches('}')))
}

/// The metric of a [key](Reading::key).
pub fn metric_of(key: &str) -> Option<&'static Metric> {
    Some(split_key(key)?.0)
}

/// The parsed key of a reading in a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadingKey<'a> {
    /// What it was measured on.
    pub scope: Scope,
    /// The metric.
    pub metric: &'static Metric,
    /// Attributes in their text form, without the braces.
    attributes: Cow<'a, str>,
}

impl<'a> ReadingKey<'a> {
    /// The key of a metric that has one value in its scope.
    pub fn new(metric: &'static Metric, scope: Scope) -> Self {
        Self {
            scope,
            metric,
            attributes: Cow::Borrowed(""),
        }
    }

    /// Parses a key in a record. `None` if this version has no such metric.
    pub fn parse(scope: &Scope, key: &'a str) -> Option<Self> {
        let (metric, attributes) = split_key(key)?;
        Some(Self {
            scope: scope.clone(),
            metric,
            attributes: Cow::Borrowed(attributes),
        })
    }

    /// The same key without a reference to the record.
    pub fn into_owned(self) -> ReadingKey<'static> {
        ReadingKey {
            scope: self.scope,
            metric: self.metric,
            attributes: Cow::Owned(self.attributes.into_owned()),
        }
    }

    /// Names and values of the attributes, in order.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.attributes.split(',');
        pairs.filter_map(|pair| pair.split_once('='))
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes();
        attributes.find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Whether the reading has all these attributes. It may have others too.
    pub fn has_attributes(&self, attributes: Attributes) -> bool {
        let mut attributes = attributes.iter();
        attributes.all(|(name, value)| self.attribute(name) == Some(*value))
    }
}

/// The key within its scope, as in a record.
impl fmt::Display for ReadingKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.name)?;
        if self.attributes.is_empty() {
            return Ok(());
        }
        write!(f, "{{{}}}", self.attributes)
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

    #[test]
    fn a_key_is_read_back_as_it_was_written() {
        let text = "headspace.pressure.time{resource=io,stalled=some}";
        let key = ReadingKey::parse(&Scope::Host, text).unwrap();

        assert_eq!(key.metric, &metric::PRESSURE_TIME);
        let attributes: Vec<_> = key.attributes().collect();
        assert_eq!(attributes, [("resource", "io"), ("stalled", "some")]);
        assert_eq!(key.attribute("stalled"), Some("some"));
        assert_eq!(key.attribute("cpu.mode"), None);
        assert_eq!(key.to_string(), text);
        let plain = ReadingKey::parse(&Scope::Process, "process.thread.count").unwrap();
        assert_eq!(
            plain,
            ReadingKey::new(&metric::PROCESS_THREAD_COUNT, Scope::Process)
        );
        assert_eq!(plain.to_string(), "process.thread.count");
        assert_eq!(ReadingKey::parse(&Scope::Host, "from.the.future"), None);
    }

    #[test]
    fn a_scope_is_read_back_as_it_was_written() {
        for scope in [
            Scope::Host,
            Scope::Cgroup,
            Scope::Process,
            Scope::Tree,
            Scope::Thread("a:b".into()),
            Scope::Gpu(12),
            Scope::Disk("nvme0n1".into()),
            Scope::Mount("/data/a:b".into()),
            Scope::Agent,
        ] {
            assert_eq!(Scope::parse(&scope.to_string()), Some(scope));
        }
        for text in ["moon", "gpu:first", "host:1", ""] {
            assert_eq!(Scope::parse(text), None, "{text}");
        }
    }
}
