//! Converts records to named scalars at a step, for experiment trackers.
//!
//! Means and percentiles cover one tick, so a curve follows the training. Results of the whole run are
//! under `run/`. The step is that of the main loop.

use std::collections::{BTreeMap, HashMap};

use headspace_agent::analysis::main_loop::MainLoop;
use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::record::{
    LoopTick, Phase, Record, RecordBody, StageTick, SummaryRecord, TickRecord,
};
use headspace_agent::model::{Distribution, ReadingKey};

/// The scalars of one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scalars {
    /// Number of batches that the main loop had received.
    pub step: u64,
    /// When the record was written, nanoseconds since 1970-01-01 UTC.
    pub time_unix_nano: u64,
    /// Values by name. The name ends with the unit. All values are finite.
    pub values: BTreeMap<String, f64>,
}

/// The exported readings: the metric, an attribute that becomes part of the name, the name, and the
/// conversion factor to its unit.
const READINGS: &[(&Metric, Option<&str>, &str, f64)] = &[
    (&metric::GPU_SM_UTILIZATION, None, "sm_pct", 100.0),
    (
        &metric::GPU_ENGINE_UTILIZATION,
        Some("engine"),
        "pct",
        100.0,
    ),
    (&metric::GPU_MEMORY_USAGE, None, "memory_bytes", 1.0),
    (&metric::HOST_CPU_UTILIZATION, None, "cpu_pct", 100.0),
    (&metric::PROCESS_MEMORY_USAGE, None, "memory_bytes", 1.0),
];

/// Converts records to scalars, and tracks the current step. Records of one process must come in order.
#[derive(Debug, Default)]
pub struct ScalarConverter {
    steps: HashMap<String, u64>,
    main_loop: MainLoop,
}

impl ScalarConverter {
    /// The record's scalars, if it has any.
    pub fn add_record(&mut self, record: &Record) -> Option<Scalars> {
        let mut values = BTreeMap::new();
        self.main_loop.add_record(&record.body);
        match &record.body {
            RecordBody::Tick(tick) => self.add_tick(tick, &mut values),
            RecordBody::Summary(summary) => concluded(summary, &mut values),
            _ => {}
        }
        values.retain(|_, value| value.is_finite());
        let main = self.main_loop.name();
        (!values.is_empty()).then(|| Scalars {
            step: main.and_then(|name| self.steps.get(name)).map_or(0, |n| *n),
            time_unix_nano: record.time_unix_nano,
            values,
        })
    }

    fn add_tick(&mut self, tick: &TickRecord, to: &mut BTreeMap<String, f64>) {
        for entry in &tick.loops {
            let end = entry.first_step + entry.steps;
            let steps = self.steps.entry(entry.name.clone()).or_default();
            *steps = end.max(*steps);
            let mut place = String::new();
            if self.main_loop.name() != Some(&entry.name) {
                place = format!("loop/{}/", entry.name);
            }
            place += match entry.phase {
                Phase::Live => "",
                Phase::Settle => "settle/",
                Phase::Replay => "replay/",
                Phase::Changed => "changed/",
            };
            add_loop(entry, tick.interval_s, &place, to);
        }
        let mut stages: BTreeMap<&str, Distribution> = BTreeMap::new();
        for StageTick { name, time, .. } in &tick.stages {
            stages.entry(name).or_default().merge_record(time);
        }
        for (name, times) in stages {
            put(to, format!("stage/{name}/mean_ms"), times.mean_ms());
            put(to, format!("stage/{name}/p95_ms"), times.quantile_ms(0.95));
        }
        for queue in &tick.queues {
            let of = queue.worker.as_ref().map(|worker| format!("/{worker}"));
            let of = of.unwrap_or_default();
            let name = format!("queue/{}{of}/depth", queue.name);
            put(to, name, Some(queue.depth));
        }
        for (key, value) in tick.known_readings() {
            add_reading(&key, value, to);
        }
    }
}

fn add_loop(entry: &LoopTick, interval_s: f64, place: &str, to: &mut BTreeMap<String, f64>) {
    for (name, times) in [
        ("step", &entry.step),
        ("wait", &entry.wait),
        ("compute", &entry.compute),
    ] {
        let times = Distribution::from(times);
        put(to, format!("{place}{name}_ms"), times.mean_ms());
        put(to, format!("{place}{name}_p95_ms"), times.quantile_ms(0.95));
    }
    if interval_s > 0.0 {
        let rate = |count: u64| count as f64 / interval_s;
        put(to, format!("{place}steps_per_s"), Some(rate(entry.steps)));
        put(to, format!("{place}samples_per_s"), entry.samples.map(rate));
    }
}

fn add_reading(key: &ReadingKey<'_>, value: f64, to: &mut BTreeMap<String, f64>) {
    let Some((_, by, unit, factor)) = READINGS.iter().find(|row| row.0 == key.metric) else {
        return;
    };
    let of = by.and_then(|by| key.attribute(by));
    let of = of.map(|of| format!("{of}_")).unwrap_or_default();
    let place = key.scope.to_string().replace(':', "/");
    put(to, format!("{place}/{of}{unit}"), Some(value * factor));
}

fn concluded(summary: &SummaryRecord, to: &mut BTreeMap<String, f64>) {
    let (low, high) = summary.headspace_ci_pct.unzip();
    for (name, value) in [
        ("step_ms", summary.steady_step_mean_ms),
        ("step_p95_ms", summary.step_p95_ms),
        ("wait_ms", summary.wait_ms),
        ("compute_ms", summary.compute_ms),
        ("samples_per_s", summary.throughput_samples_per_s),
        ("data_readiness_pct", summary.data_readiness_pct),
        ("floor_ms", summary.floor_step_ms),
        ("headspace_pct", summary.headspace_pct),
        ("headspace_low_pct", low),
        ("headspace_high_pct", high),
        (
            "less_waiting_at_most_pct",
            summary.headspace_upper_bound_pct,
        ),
        ("sm_pct", summary.steady_sm_utilization_pct),
        ("cpu_pct", summary.cpu_utilization_pct),
        ("overhead_pct", summary.overhead_pct),
    ] {
        put(to, format!("run/{name}"), value);
    }
}

fn put(to: &mut BTreeMap<String, f64>, name: String, value: Option<f64>) {
    if let Some(value) = value {
        to.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::distribution::DistributionRecord;

    use super::super::test_records;
    use super::*;

    fn times(millis: &[u64]) -> DistributionRecord {
        let mut d = Distribution::default();
        for ms in millis {
            d.record(ms * 1_000_000);
        }
        DistributionRecord::from(&d)
    }

    fn entry(name: &str, phase: Phase, first_step: u64, steps: u64) -> LoopTick {
        LoopTick {
            name: name.into(),
            phase,
            first_step,
            steps,
            samples: Some(8 * steps),
            step: times(&[10, 10, 40]),
            ..LoopTick::default()
        }
    }

    fn tick(loops: Vec<LoopTick>) -> Record {
        let tick = TickRecord {
            interval_s: 0.5,
            loops,
            ..TickRecord::default()
        };
        test_records::record(7, RecordBody::Tick(tick))
    }

    #[test]
    fn the_main_loop_has_names_without_prefix_and_determines_the_step() {
        let mut scalar = ScalarConverter::default();
        let scalars = scalar
            .add_record(&tick(vec![
                entry("train", Phase::Live, 0, 3),
                entry("train", Phase::Replay, 3, 2),
                entry("check", Phase::Live, 0, 9),
            ]))
            .unwrap();
        assert_eq!((scalars.step, scalars.time_unix_nano), (5, 7));
        assert!((scalars.values["step_ms"] - 20.0).abs() < 1e-9);
        assert!((scalars.values["step_p95_ms"] - 40.0).abs() < 0.4);
        assert!((scalars.values["samples_per_s"] - 48.0).abs() < 1e-9);
        assert!((scalars.values["replay/steps_per_s"] - 4.0).abs() < 1e-9);
        assert!((scalars.values["loop/check/steps_per_s"] - 18.0).abs() < 1e-9);
        assert!(
            !scalars.values.contains_key("wait_ms"),
            "no wait was measured"
        );
    }

    #[test]
    fn the_summary_names_the_main_loop_and_unknown_values_are_absent() {
        let mut scalar = ScalarConverter::default();
        scalar.add_record(&tick(vec![
            entry("check", Phase::Live, 0, 9),
            entry("train", Phase::Live, 0, 3),
        ]));
        let summary = SummaryRecord {
            loop_name: Some("train".into()),
            headspace_pct: Some(60.0),
            headspace_ci_pct: Some((58.0, 61.0)),
            ..SummaryRecord::default()
        };
        let record = test_records::record(8, RecordBody::Summary(Box::new(summary)));
        let scalars = scalar.add_record(&record).unwrap();
        assert_eq!(scalars.step, 3);
        let names: Vec<_> = scalars.values.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "run/headspace_high_pct",
                "run/headspace_low_pct",
                "run/headspace_pct"
            ]
        );
    }

    #[test]
    fn workers_of_a_stage_share_one_curve_and_readings_keep_their_device() {
        let stage = |worker: &str, millis: &[u64]| StageTick {
            name: "decode".into(),
            worker: Some(worker.into()),
            time: times(millis),
            ..StageTick::default()
        };
        let read = |key: &str, value| BTreeMap::from([(key.to_owned(), value)]);
        let body = RecordBody::Tick(TickRecord {
            stages: vec![stage("worker 0", &[10]), stage("worker 1", &[30, 50])],
            readings: BTreeMap::from([
                (
                    "gpu:1".into(),
                    read("headspace.gpu.engine.utilization{engine=nvdec0}", 0.5),
                ),
                ("tree".into(), read("process.memory.usage", 9.0)),
            ]),
            ..TickRecord::default()
        });
        let scalars = ScalarConverter::default()
            .add_record(&test_records::record(1, body))
            .unwrap();
        assert!((scalars.values["stage/decode/mean_ms"] - 30.0).abs() < 1e-9);
        assert!((scalars.values["gpu/1/nvdec0_pct"] - 50.0).abs() < 1e-9);
        assert!((scalars.values["tree/memory_bytes"] - 9.0).abs() < 1e-9);
    }
}
