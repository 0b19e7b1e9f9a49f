//! Formats the findings as text and as JSON.

use std::fmt::Write as _;

use headspace_agent::model::record::SourceState;
use headspace_agent::wording::units::duration_ms;
use headspace_exporters::encode::terminal_text::width;
use serde::Serialize;

use super::examine::Examined;
use super::layout::{Column, NEVER};

/// The output of `--json`, whose format is stable.
#[derive(Debug, Serialize)]
pub(super) struct Findings<'a> {
    sources: Vec<Source<'a>>,
    cost: Cost<'a>,
}

/// One source.
#[derive(Debug, Serialize)]
struct Source<'a> {
    name: &'a str,
    state: SourceState,
    /// The values that it reads, or would read.
    reads: &'a str,
    /// Why it is disabled.
    reason: Option<&'a str>,
    /// How to enable it.
    remedy: Option<&'a str>,
}

/// The cost of measuring on this machine.
#[derive(Debug, Serialize)]
struct Cost<'a> {
    /// Time to record one batch on the training thread, in nanoseconds.
    ns_per_batch: f64,
    /// Time of one tick to read all sources that it reads itself, in microseconds: the sum of their
    /// medians.
    us_per_tick: f64,
    /// CPU time of the sources' own threads, in microseconds a second, at the default interval.
    own_cpu_us_per_s: f64,
    /// Both costs for each enabled source, in the order of the sources.
    sources: Vec<SourceCost<'a>>,
}

#[derive(Debug, Serialize)]
struct SourceCost<'a> {
    name: &'a str,
    /// Null if a separate thread reads it.
    us_per_tick: Option<f64>,
    /// Null if it has no thread.
    own_cpu_us_per_s: Option<f64>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(examined: &'a [Examined], ns_per_batch: f64) -> Self {
        let sources = examined.iter().map(|one| Source {
            name: &one.record.name,
            state: one.record.state,
            reads: &one.record.reads,
            reason: one.record.reason.as_deref(),
            remedy: one.record.remedy.as_deref(),
        });
        let costs = examined
            .iter()
            .filter(|one| one.record.state == SourceState::On)
            .map(|one| SourceCost {
                name: &one.record.name,
                us_per_tick: one.tick_us,
                own_cpu_us_per_s: one.own_cpu_us_per_s,
            });
        let sum = |of: fn(&Examined) -> Option<f64>| examined.iter().filter_map(of).sum();
        Self {
            sources: sources.collect(),
            cost: Cost {
                ns_per_batch,
                us_per_tick: sum(|one| one.tick_us),
                own_cpu_us_per_s: sum(|one| one.own_cpu_us_per_s),
                sources: costs.collect(),
            },
        }
    }

    /// The list of sources, then the cost.
    pub(super) fn to_text(&self) -> String {
        let longest = self.sources.iter().map(|source| width(source.name));
        let column = Column::beside(longest.max().unwrap_or(0));
        let on = |source: &&Source<'_>| source.state == SourceState::On;
        let mut text = format!(
            "headspace doctor: {} of {} sources work here\n\n",
            self.sources.iter().filter(on).count(),
            self.sources.len()
        );
        for source in &self.sources {
            let state = if on(&source) { "on" } else { "off" };
            column.write(&mut text, source.name, state, source.reads);
            let Some(reason) = source.reason else {
                continue;
            };
            let is_like =
                |one: &&Source<'_>| (one.reason, one.remedy) == (Some(reason), source.remedy);
            if let Some(earlier) = self.sources.iter().find(is_like)
                && !std::ptr::eq(earlier, source)
            {
                let words = format!("off for the same reason as `{}` above", earlier.name);
                column.write(&mut text, "", "", &words);
                continue;
            }
            column.write(&mut text, "", "", reason);
            if let Some(remedy) = source.remedy {
                column.write_hanging(&mut text, "→ ", remedy);
            }
        }
        text.push('\n');
        self.cost.write(&column, &mut text);
        text
    }
}

impl Cost<'_> {
    fn write(&self, column: &Column, text: &mut String) {
        let batch = format!(
            "{:.0} ns a batch, on the training thread",
            self.ns_per_batch
        );
        column.write(text, "cost", "", &batch);
        let parts = |of: fn(&SourceCost<'_>) -> Option<f64>| {
            let mut parts = String::new();
            for (source, us) in self.sources.iter().filter_map(|s| Some((s, of(s)?))) {
                let comma = if parts.is_empty() { ": " } else { ", " };
                let _ = write!(parts, "{comma}{}{}{}", source.name, NEVER, micros(us));
            }
            parts
        };
        let ticks = parts(|source| source.us_per_tick);
        let tick = format!("{} a tick{ticks}", micros(self.us_per_tick));
        column.write(text, "", "", &tick);
        let threads = parts(|source| source.own_cpu_us_per_s);
        if !threads.is_empty() {
            let used = micros(self.own_cpu_us_per_s);
            let own = format!("{used} of CPU a second on separate threads{threads}");
            column.write(text, "", "", &own);
        }
    }
}

/// Microseconds as text without line breaks.
fn micros(us: f64) -> String {
    duration_ms(us / 1e3).replace(' ', NEVER)
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::record::SourceRecord;

    use super::*;

    fn record_of(name: &str, reason: Option<&str>) -> SourceRecord {
        SourceRecord {
            name: name.to_owned(),
            state: SourceState::Off,
            reads: "it".to_owned(),
            reason: reason.map(ToOwned::to_owned),
            remedy: None,
        }
    }

    #[test]
    fn a_reason_that_several_sources_share_is_printed_once() {
        let found = [
            ("gpu", "no driver"),
            ("disk", "no disk"),
            ("engines", "no driver"),
        ];
        let examined = found.map(|(name, reason)| Examined {
            record: record_of(name, Some(reason)),
            tick_us: None,
            own_cpu_us_per_s: None,
        });
        let text = Findings::new(&examined, 41.4).to_text();

        assert_eq!(text.matches("no driver").count(), 1);
        assert!(
            text.contains(
                "engines  off  it\n              off for the same reason as `gpu` above\n"
            ),
            "{text}"
        );
    }

    fn examined() -> Vec<Examined> {
        let record = |name: &str, state, reads: &str| SourceRecord {
            name: name.to_owned(),
            state,
            reads: reads.to_owned(),
            reason: None,
            remedy: None,
        };
        let off = SourceRecord {
            reason: Some("the kernel says no".to_owned()),
            remedy: Some("sysctl -w kernel.yes=1".to_owned()),
            ..record("off_by_choice", SourceState::Off, "counters")
        };
        vec![
            Examined {
                record: record("ticks", SourceState::On, &"what it reads ".repeat(8)),
                tick_us: Some(12.0),
                own_cpu_us_per_s: None,
            },
            Examined {
                record: off,
                tick_us: None,
                own_cpu_us_per_s: None,
            },
            Examined {
                record: record("apart", SourceState::On, "a driver"),
                tick_us: None,
                own_cpu_us_per_s: Some(340.0),
            },
        ]
    }

    #[test]
    fn the_text_is_aligned_and_contains_reasons_and_remedies() {
        let text = Findings::new(&examined(), 41.4).to_text();

        assert_eq!(
            text,
            "\
headspace doctor: 2 of 3 sources work here

ticks          on   what it reads what it reads what it reads what it reads what
                    it reads what it reads what it reads what it reads
off_by_choice  off  counters
                    the kernel says no
                    → sysctl -w kernel.yes=1
apart          on   a driver

cost                41 ns a batch, on the training thread
                    12.0 µs a tick: ticks 12.0 µs
                    340 µs of CPU a second on separate threads: apart 340 µs
"
        );
    }

    #[test]
    fn missing_values_are_null_in_the_json() {
        let json = serde_json::to_value(Findings::new(&examined(), 41.4)).unwrap_or_default();

        assert_eq!(json["sources"][0]["state"], "on");
        assert!(json["sources"][0]["reason"].is_null());
        assert_eq!(json["sources"][1]["remedy"], "sysctl -w kernel.yes=1");
        assert_eq!(json["cost"]["us_per_tick"], 12.0);
        assert_eq!(json["cost"]["sources"][1]["name"], "apart");
        assert!(json["cost"]["sources"][1]["us_per_tick"].is_null());
    }
}
