//! Writes the parts of the text: families, samples, and quoted names and values.

use std::fmt::Write as _;

use super::Form;

/// Writes families one after the other.
pub(super) struct Writer {
    form: Form,
    out: String,
}

/// The type of a family, for both formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A total; its samples end in `_total`.
    Counter,
    Gauge,
    Histogram,
    /// Metadata about other series; its samples end in `_info`.
    Info,
    /// No type.
    Unknown,
}

impl Writer {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            out: String::new(),
        }
    }

    /// Begins the family whose samples are named `name`.
    pub(super) fn family(&mut self, name: &str, kind: Kind, unit: Option<&str>, help: &str) {
        let open = self.form == Form::OpenMetrics;
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Info if open => "info",
            Kind::Gauge | Kind::Info => "gauge",
            Kind::Unknown if open => "unknown",
            Kind::Unknown => "untyped",
        };
        // In OpenMetrics the suffix belongs to the samples, not to the family.
        let family = match kind {
            Kind::Counter if open => name.strip_suffix("_total").unwrap_or(name),
            Kind::Info if open => name.strip_suffix("_info").unwrap_or(name),
            _ => name,
        };
        if !open {
            self.help(family, help);
        }
        let _ = writeln!(self.out, "# TYPE {family} {word}");
        if open {
            if let Some(unit) = unit.filter(|unit| ends_in(family, unit)) {
                let _ = writeln!(self.out, "# UNIT {family} {unit}");
            }
            self.help(family, help);
        }
    }

    /// Writes a sample of the current family. `labels` is the result of [`labels`].
    pub(super) fn sample(
        &mut self,
        name: &str,
        ending: &str,
        labels: &str,
        value: impl std::fmt::Display,
    ) {
        let _ = writeln!(self.out, "{name}{ending}{{{labels}}} {value}");
    }

    pub(super) fn finish(mut self) -> String {
        if self.form == Form::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn help(&mut self, family: &str, help: &str) {
        let _ = write!(self.out, "# HELP {family} ");
        escape(&mut self.out, help, self.form == Form::OpenMetrics);
        self.out.push('\n');
    }
}

/// Formats labels as the text between the braces.
pub(super) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(name);
        out.push_str("=\"");
        escape(&mut out, value, true);
        out.push('"');
    }
    out
}

fn ends_in(family: &str, unit: &str) -> bool {
    family
        .strip_suffix(unit)
        .is_some_and(|rest| rest.ends_with('_'))
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            _ => out.push(c),
        }
    }
}
