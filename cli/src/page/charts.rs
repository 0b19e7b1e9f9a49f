//! Makes the charts of a rank: columns of numbers with titles, units and names. The page's script decides
//! how to draw them.

use std::collections::BTreeSet;

use headspace_agent::analysis::resources::{container_else_machine, tree_else_process};
use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::Attributes;
use headspace_agent::model::record::{RunRecord, SummaryRecord};
use headspace_agent::model::{GpuActivity, ReadingKey, Scope, attributes};
use headspace_agent::wording::cpu_labels::{
    CORES_USED, CPU_PRESSURE, CPU_THROTTLED, GC_PAUSES, IO_PRESSURE, MEMORY_PRESSURE,
    RUN_QUEUE_WAIT,
};
use headspace_agent::wording::gpu::activity_label;
use headspace_agent::wording::page::{CORES_OF_RUN, CPU_CAUSES, floor_mark};
use headspace_agent::wording::section::capitalized;
use serde::Serialize;

use super::history::{Column, History, Phases};

/// Maximum number of queues drawn: those that the summary lists first, including the last one before
/// the loop.
const MOST_QUEUES: usize = 8;

/// Maximum number of GPUs drawn.
const MOST_GPUS: usize = 8;

/// One chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Chart {
    /// Id for the script and the page.
    pub id: &'static str,
    /// Distinguishes charts of the same kind, such as the ordinal of a GPU.
    pub of: String,
    /// The title.
    pub title: String,
    /// The unit of all values.
    pub unit: &'static str,
    /// Its lines.
    pub lines: Vec<Line>,
    /// Values that are constant over the whole run, such as the floor.
    pub marks: Vec<Mark>,
}

/// One line of a chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// The colour: a name from the style sheet, or empty for the next unused colour.
    pub tone: &'static str,
    /// One value for each time of the rank; null if nothing was measured.
    pub values: Column,
}

/// A value that is constant over the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mark {
    /// The text, including the value.
    pub label: String,
    /// The colour: a name from the style sheet.
    pub tone: &'static str,
    /// The value, in the chart's unit.
    pub value: f64,
}

/// The data from which the charts of a rank are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn<'a> {
    pub(super) history: &'a History,
    pub(super) summary: Option<&'a SummaryRecord>,
    pub(super) run: Option<&'a RunRecord>,
    pub(super) loop_name: &'a str,
}

impl Drawn<'_> {
    /// The charts that have data.
    pub(super) fn charts(&self) -> Vec<Chart> {
        let mut charts = vec![self.steps(), self.queues()];
        charts.extend(self.gpus());
        charts.push(self.cores());
        charts.push(self.causes());
        for chart in &mut charts {
            chart
                .lines
                .retain(|line| line.values.iter().any(Option::is_some));
            for value in chart.lines.iter_mut().flat_map(|line| &mut line.values) {
                *value = value.map(rounded);
            }
        }
        charts.retain(|chart| !chart.lines.is_empty());
        charts
    }

    fn steps(&self) -> Chart {
        let all = self.history.steps(self.loop_name).unwrap_or_default();
        let of = |take: fn(&Phases) -> Option<f64>| -> Column {
            all.iter().map(|phases| phases.and_then(take)).collect()
        };
        let floor = self.summary.and_then(|s| s.floor_step_ms);
        let mark = |value| Mark {
            label: floor_mark(value),
            tone: "floor",
            value: rounded(value),
        };
        Chart {
            id: "step",
            title: "Step, wait and compute".to_owned(),
            unit: "ms",
            lines: vec![
                line("step", "step", of(|p| p.live.step.mean_ms())),
                line("step p95", "p95", of(|p| p.live.step.quantile_ms(0.95))),
                line("wait", "wait", of(|p| p.live.wait.mean_ms())),
                line("compute", "compute", of(|p| p.live.compute.mean_ms())),
                line("step in replay", "replay", of(|p| p.replay.step.mean_ms())),
            ],
            marks: floor.map(mark).into_iter().collect(),
            ..Chart::default()
        }
    }

    fn queues(&self) -> Chart {
        let queues = self.summary.map_or(&[][..], |s| &s.queues);
        let mut named: Vec<_> = queues.iter().collect();
        named.sort_by_key(|queue| !queue.last);
        named.truncate(MOST_QUEUES);
        let lines = named.into_iter().map(|queue| {
            let mut name = queue.name.clone();
            if queue.last {
                name += " (before the loop)";
            }
            line(name, "", self.history.depth(&queue.name))
        });
        Chart {
            id: "queues",
            title: "Queue depths".to_owned(),
            unit: "items",
            lines: lines.collect(),
            ..Chart::default()
        }
    }

    fn gpus(&self) -> Vec<Chart> {
        let ordinal = |key: &ReadingKey<'_>| match key.scope {
            Scope::Gpu(ordinal) => Some(ordinal),
            _ => None,
        };
        let readings = self.history.readings().iter();
        let ordinals: BTreeSet<u32> = readings.filter_map(ordinal).collect();
        let shown = ordinals.into_iter().take(MOST_GPUS);
        shown.map(|ordinal| self.gpu(ordinal)).collect()
    }

    fn gpu(&self, ordinal: u32) -> Chart {
        let model = self.run.and_then(|run| {
            let gpu = run.gpus.iter().find(|gpu| gpu.ordinal == ordinal)?;
            gpu.name.clone()
        });
        let of_gpu = |key: &&ReadingKey<'_>| key.scope == Scope::Gpu(ordinal);
        let mut keys: Vec<_> = self.history.readings().iter().filter(of_gpu).collect();
        keys.sort_unstable();
        let mut drawn: Vec<_> = keys
            .into_iter()
            .filter_map(|key| {
                let activity = GpuActivity::from_key(key)?;
                let values = percents(self.history.level(key));
                let line = line(activity_label(activity), tone(activity)?, values);
                Some((activity, line))
            })
            .collect();
        let has = |wanted: fn(GpuActivity<'_>) -> bool| drawn.iter().any(|(one, _)| wanted(*one));
        let has_sms = has(|one| one == GpuActivity::Sms);
        let has_decoders = has(|one| matches!(one, GpuActivity::Decoder(_)));
        drawn.retain(|(activity, _)| match activity {
            // That any kernel runs does not show how many SMs were busy.
            GpuActivity::AnyKernel => !has_sms,
            // If the value of each decoder is known, their mean is less useful.
            GpuActivity::AllDecoders => !has_decoders,
            _ => true,
        });
        drawn.sort_by_key(|(activity, _)| *activity);
        let title = model.map_or_else(String::new, |name| format!(", {name}"));
        Chart {
            id: "gpu",
            of: ordinal.to_string(),
            title: format!("GPU {ordinal}{title}"),
            unit: "%",
            lines: drawn.into_iter().map(|(_, line)| line).collect(),
            ..Chart::default()
        }
    }

    fn cores(&self) -> Chart {
        let scopes = self.history.readings().iter().map(|key| &key.scope);
        let used = tree_else_process(scopes, |scope| {
            self.sum_of_rates(scope, &metric::PROCESS_CPU_TIME)
        });
        let usable = self.summary.and_then(|s| s.resources.cores_usable);
        let mark = |value| Mark {
            label: format!("{value} usable"),
            tone: "quiet",
            value,
        };
        let busy = ReadingKey::new(&metric::HOST_CPU_UTILIZATION, Scope::Host);
        let busy = self.history.level(&busy).into_iter();
        let busy = busy.map(|share| Some(share? * usable?)).collect();
        Chart {
            id: "cores",
            title: capitalized(CORES_USED),
            unit: "cores",
            lines: vec![
                line(CORES_OF_RUN, "step", used),
                line("whole machine", "quiet", busy),
            ],
            marks: usable.map(mark).into_iter().collect(),
            ..Chart::default()
        }
    }

    fn causes(&self) -> Chart {
        let history = self.history;
        let rate = |metric, scope| history.rate(&ReadingKey::new(metric, scope));
        let consumer = Scope::Thread(attributes::CONSUMER.into());
        let queue = rate(&metric::THREAD_RUN_QUEUE_TIME, consumer);
        let throttled = ratio(
            &rate(&metric::CGROUP_CPU_THROTTLED_PERIODS, Scope::Cgroup),
            &rate(&metric::CGROUP_CPU_PERIODS, Scope::Cgroup),
        );
        let pressure = |stalled: Attributes| {
            let find = |scope: &Scope| {
                history.readings().iter().find(|key| {
                    key.scope == *scope
                        && *key.metric == metric::PRESSURE_TIME
                        && key.has_attributes(stalled)
                })
            };
            container_else_machine(find).map_or_else(Vec::new, |key| percents(history.rate(key)))
        };
        let collecting = self.sum_of_rates(&Scope::Process, &metric::GC_PAUSE_TIME);
        Chart {
            id: "causes",
            title: CPU_CAUSES.to_owned(),
            unit: "%",
            lines: vec![
                line(RUN_QUEUE_WAIT, "", percents(queue)),
                line(CPU_THROTTLED, "", percents(throttled)),
                line(CPU_PRESSURE, "", pressure(attributes::STALLED_CPU)),
                line(IO_PRESSURE, "", pressure(attributes::STALLED_IO)),
                line(MEMORY_PRESSURE, "", pressure(attributes::STALLED_MEMORY)),
                line(GC_PAUSES, "", percents(collecting)),
            ],
            ..Chart::default()
        }
    }

    fn sum_of_rates(&self, scope: &Scope, metric: &Metric) -> Column {
        let wanted = |key: &&ReadingKey<'_>| key.scope == *scope && key.metric == metric;
        let keys = self.history.readings().iter().filter(wanted);
        let sum = |(a, b): (Option<f64>, Option<f64>)| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
        keys.map(|key| self.history.rate(key))
            .reduce(|all, rates| all.into_iter().zip(rates).map(sum).collect())
            .unwrap_or_default()
    }
}

/// The colour of an activity's line in the chart of a GPU. `None` if it is not drawn.
fn tone(activity: GpuActivity<'_>) -> Option<&'static str> {
    match activity {
        GpuActivity::Sms | GpuActivity::AnyKernel => Some("step"),
        GpuActivity::AllDecoders => Some("wait"),
        GpuActivity::Decoder(_) => Some(""),
        GpuActivity::AllEncoders | GpuActivity::Engine(_) => None,
    }
}

fn line(name: impl Into<String>, tone: &'static str, values: Column) -> Line {
    Line {
        name: name.into(),
        tone,
        values,
    }
}

fn percents(shares: Column) -> Column {
    shares
        .into_iter()
        .map(|share| share.map(|share| 100.0 * share))
        .collect()
}

fn ratio(part: &Column, whole: &Column) -> Column {
    let of = |(part, whole): (&Option<f64>, &Option<f64>)| {
        let whole = (*whole)?;
        (whole > 0.0).then_some((*part)? / whole)
    };
    part.iter().zip(whole).map(of).collect()
}

/// Rounds to five significant digits: as much as a chart can show, in fewer bytes.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a logarithm of an f64 is small"
    )]
    let digits = 4 - value.abs().log10().floor() as i32;
    let digits = digits.clamp(0, 12);
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;
