//! The verdict: what a summary means, in a few lines for people.
//!
//! It says only what was measured. Without a probe there is an upper bound on what less waiting saves,
//! called that; with too few steps there is no number; a probe that was refused gives its reason.
//! What is not known has no line.

mod loops;
mod pipeline;
mod render;
mod resources;
pub mod units;

pub use self::pipeline::{
    Bottleneck, UNKNOWN_BOTTLENECK, bottleneck_name, remedy_action, remedy_outcome,
};

use std::fmt;

use self::render::{COLUMNS, Row, text};
use self::units::{duration_ms, duration_s, percent, signed_ms, steps};
use super::steady::{LEAST_STEADY, LEAST_WARMUP};
use crate::model::Mode;
use crate::model::record::{FindingRecord, ProbeRecord, Role, RunRecord, SummaryRecord};

/// The finding that repeats why a probe gave no number.
const REFUSED: &str = "no_headspace";

/// Below this share of the step, in percent, a loop hardly waits for data.
const HARDLY_WAITS_PCT: f64 = 1.0;

/// A run's records, ready to be told. Prints as text, 100 columns at most.
///
/// ```
/// use headspace_agent::analysis::verdict::Verdict;
/// use headspace_agent::model::record::SummaryRecord;
///
/// let summary = SummaryRecord { steps: 3, ..SummaryRecord::default() };
/// assert!(Verdict::new(&summary).to_string().contains("Too few"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    /// The numbers.
    pub summary: &'a SummaryRecord,
    /// What ran.
    pub run: Option<&'a RunRecord>,
    /// The probe of the summary's loop.
    pub probe: Option<&'a ProbeRecord>,
    /// Where the records are.
    pub location: Option<&'a str>,
    /// For a run that did not end in order: seconds from its last summary to its last record.
    pub unfinished_s: Option<f64>,
}

impl<'a> Verdict<'a> {
    /// The verdict of a summary alone.
    #[must_use]
    pub fn new(summary: &'a SummaryRecord) -> Self {
        Self {
            summary,
            run: None,
            probe: None,
            location: None,
            unfinished_s: None,
        }
    }

    /// The text as lines without their ends.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines_within(COLUMNS)
    }

    /// The same in so many columns, 100 at most. Tables stay as wide as they are.
    #[must_use]
    pub fn lines_within(&self, columns: usize) -> Vec<String> {
        text(&self.rows(), columns)
    }

    /// Why the floor is not known, or what an upper bound leaves open; `None` where it was measured
    /// and before there is a steady state.
    #[must_use]
    pub fn caution(&self) -> Option<String> {
        let s = self.summary;
        s.steady_step_mean_ms?;
        if s.mode == "replay" || s.floor_step_ms.is_some() {
            return None;
        }
        let open = || {
            let bound = s.headspace_upper_bound_pct;
            bound.map(|_| self.what_the_bound_leaves_open())
        };
        self.refusal().or_else(open)
    }

    fn rows(&self) -> Vec<Row> {
        let s = self.summary;
        let mut rows = vec![self.heading()];
        rows.extend(self.ending());
        rows.extend(self.rank());
        rows.extend(loops::row(s));
        rows.extend(self.step());
        rows.extend(self.floor());
        rows.extend(self.split());
        rows.extend(loops::repeated(s));
        rows.extend(pipeline::conclusion(
            s,
            self.run.map_or(1, |run| run.world_size),
        ));
        rows.extend(pipeline::stages(s));
        rows.extend(resources::rows(&s.resources));
        let findings = self.findings();
        rows.extend(findings.map(|found| Row::sentence("found", found.text.clone())));
        rows.extend(self.lost());
        rows.extend(self.cost());
        rows
    }

    fn heading(&self) -> Row {
        let s = self.summary;
        let what = match (s.steps, s.steady_step_mean_ms) {
            (0, _) => "no step was taken".to_owned(),
            (n, None) => format!("{}, no steady state", steps(n)),
            (n, Some(_)) => format!("{}, {} steady", steps(n), duration_s(s.steady_s)),
        };
        Row::heading("headspace", what, self.location)
    }

    fn ending(&self) -> Option<Row> {
        if let Some(end) = &self.summary.ended_by {
            let text = format!("{} ended the run.", units::ended_by(end));
            return Some(Row::sentence("ended", text));
        }
        let age = self.unfinished_s?;
        let numbers = if age > 0.0 {
            format!(
                " These numbers are from {} before its last record.",
                duration_s(age)
            )
        } else {
            String::new()
        };
        Some(Row::sentence(
            "ended",
            format!(
                "No end of the run is recorded: its process was killed, or is still running.{numbers}"
            ),
        ))
    }

    fn rank(&self) -> Option<Row> {
        let world = self.run?.world_size;
        (world > 1).then(|| {
            Row::sentence(
                "rank",
                format!(
                    "One of {world} ranks. All numbers are of this rank, its workers and cores too; \
                     `headspace report` shows all ranks."
                ),
            )
        })
    }

    fn step(&self) -> Option<Row> {
        let s = self.summary;
        if s.steps == 0 {
            return None;
        }
        let Some(step) = s.steady_step_mean_ms else {
            return Some(Row::sentence(
                "step",
                format!(
                    "Too few for a number: {}, of which the first {LEAST_WARMUP} or more are \
                     warm-up. A run of {} steps or more has one.",
                    steps(s.steps),
                    LEAST_WARMUP as u64 + LEAST_STEADY + 1
                ),
            ));
        };
        let mut parts = vec![duration_ms(step)];
        if let Some(wait) = s.wait_ms {
            let share = s
                .wait_pct
                .map(|p| format!(" ({} %)", percent(p, 0)))
                .unwrap_or_default();
            parts.push(format!("waiting for data {}{share}", duration_ms(wait)));
        }
        if let Some(compute) = s.compute_ms {
            parts.push(format!("compute {}", duration_ms(compute)));
        }
        Some(Row::parts("step", parts))
    }

    fn floor(&self) -> Option<Row> {
        let s = self.summary;
        let step = s.steady_step_mean_ms?;
        if s.mode == "replay" {
            let row = Row::parts("floor", vec![duration_ms(s.floor_step_ms.unwrap_or(step))]);
            return Some(row.and_sentence(format!(
                "The step is the floor itself: every batch came from the cache. To know what free \
                 data would gain, compare with a run without replay, or run a probe: {}",
                self.way_to_probe()
            )));
        }
        if let (Some(floor), Some(headspace)) = (s.floor_step_ms, s.headspace_pct) {
            return Some(Row::parts("floor", self.measured_floor(floor, headspace)));
        }
        let bound = s
            .headspace_upper_bound_pct
            .map(|p| format!("less waiting saves at most {} % of the step", percent(p, 1)));
        if let Some(why) = self.refusal() {
            let row = Row::sentence("floor", format!("Not measured: {why}"));
            return Some(match bound {
                Some(bound) => row.and_parts(vec![bound]).and_sentence(
                    "This is an upper bound on the waiting only: how much the loader slows the \
                     model's own code (contention) is not known.",
                ),
                None => row,
            });
        }
        Some(match bound {
            Some(bound) => Row::parts("floor", vec!["unknown".to_owned(), bound])
                .and_sentence(self.what_the_bound_leaves_open()),
            None if s.loop_role == Some(Role::Background) => Row::sentence(
                "floor",
                "Unknown: what the training loop waits for was not seen.",
            ),
            None => Row::sentence(
                "floor",
                "Unknown: what this loop waits for was not seen. Wrap what it iterates in \
                 headspace.wrap(...), or name the function that returns a batch: headspace run \
                 --batch-from train:get_batch",
            ),
        })
    }

    /// The bound is on the waiting. What the loader takes from the model's own code is not in it.
    fn what_the_bound_leaves_open(&self) -> String {
        let s = self.summary;
        let open = match s.wait_pct.or(s.headspace_upper_bound_pct) {
            Some(wait) if wait < HARDLY_WAITS_PCT => {
                "The loop hardly waits for data. Whether the loader slows the model's own code \
                 (contention), only a probe shows"
            }
            _ => {
                "This is an upper bound on the waiting only. Work on the device may go on during \
                 the wait, and the loader may also slow the model's own code (contention), which \
                 only a probe shows"
            }
        };
        format!("{open}: {}", self.way_to_probe())
    }

    /// How this user runs the program again with a probe.
    fn way_to_probe(&self) -> String {
        let from = self.summary.options_from.unwrap_or_default();
        from.with_mode(Mode::Probe)
    }

    fn measured_floor(&self, floor: f64, headspace: f64) -> Vec<String> {
        let s = self.summary;
        let interval = s.headspace_ci_pct;
        let about = interval.map(|(low, high)| {
            format!(" ± {}", percent((high - headspace).max(headspace - low), 1))
        });
        let mut parts = vec![
            format!("{} if data were free", duration_ms(floor)),
            format!(
                "headspace {} %{}",
                percent(headspace, 1),
                about.unwrap_or_default()
            ),
        ];
        if interval.map_or(headspace, |(low, _)| low) <= 0.0 {
            parts.push("no measurable speed-up: the interval includes zero".to_owned());
        } else if let Some(times) = s.max_speedup {
            parts.push(format!("up to {times:.1}x faster"));
        }
        parts
    }

    /// Why a probe gave no number.
    fn refusal(&self) -> Option<String> {
        let finding = self.summary.findings.iter().find(|f| f.code == REFUSED);
        let why = self
            .probe
            .and_then(|p| p.reason.as_deref())
            .or(finding.map(|f| f.text.as_str()))
            .map(str::trim)
            .filter(|why| !why.is_empty());
        match why {
            Some(why) => Some(why.to_owned()),
            None if self.summary.mode == "probe" => {
                Some("the probe needs more steps than the loop took.".to_owned())
            }
            None => None,
        }
    }

    fn split(&self) -> Option<Row> {
        let s = self.summary;
        s.floor_step_ms?;
        let parts = vec![
            format!("waiting {}", signed_ms(s.exposed_wait_ms?)),
            format!("contention with the loader {}", signed_ms(s.contention_ms?)),
        ];
        Some(Row::parts("would save", parts))
    }

    /// The findings that the verdict does not say elsewhere: neither why there is no headspace, nor what the
    /// bottleneck's evidence says.
    pub fn findings(&self) -> impl Iterator<Item = &'a FindingRecord> {
        let found = self.summary.bottleneck.as_ref();
        let resource = found
            .filter(|found| found.kind == "resource")
            .and_then(|found| found.name.as_deref());
        let is_said = move |finding: &&FindingRecord| match finding.code.as_str() {
            REFUSED => true,
            "oversubscribed" => matches!(resource, Some("cores" | "quota")),
            "cpu_throttled" => resource == Some("quota"),
            "gil_contended" => resource == Some("gil"),
            "gc_pauses" => resource == Some("gc"),
            "decoders_busy" => resource == Some("nvdec"),
            _ => false,
        };
        (self.summary.findings.iter()).filter(move |finding| !is_said(finding))
    }

    fn lost(&self) -> Option<Row> {
        let dropped = self.summary.dropped;
        (dropped.steps + dropped.records > 0).then(|| {
            Row::sentence(
                "lost",
                format!(
                    "{} and {} records are missing",
                    steps(dropped.steps),
                    dropped.records
                ),
            )
        })
    }

    fn cost(&self) -> Option<Row> {
        let cost = match self.summary.overhead_pct? {
            pct if pct < 0.01 => "less than 0.01".to_owned(),
            pct => percent(pct, 2),
        };
        Some(Row::sentence(
            "cost",
            format!("{cost} % of the run went to measuring"),
        ))
    }
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines() {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
