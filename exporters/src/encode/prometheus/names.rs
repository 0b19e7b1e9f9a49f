//! Translates metric names to Prometheus by OpenTelemetry's rules. A scraped metric and the same metric
//! over OTLP therefore have the same name.
//!
//! The rules are those of "Prometheus and OpenMetrics Compatibility" in OpenTelemetry's specification,
//! section "OTLP Metric points to Prometheus". Characters other than letters and digits become one
//! underscore. The full unit is appended if the name does not contain it. Then `_total` is appended for
//! totals, and `_ratio` for levels without a unit.

use headspace_agent::model::metric::{Metric, MetricKind};

/// The name of the metric's series. A histogram's series append `_bucket`, `_sum` and `_count`.
pub fn name(metric: &Metric) -> String {
    let mut tokens: Vec<&str> = tokens(metric.name).collect();
    let (unit, per) = metric.unit.split_once('/').unwrap_or((metric.unit, ""));
    if let Some(unit) = spelled(unit)
        && !tokens.contains(&unit)
    {
        tokens.push(unit);
    }
    if per == "s" {
        tokens.extend(["per", "second"]);
    }
    let last = match metric.kind {
        MetricKind::Counter => Some("total"),
        MetricKind::Gauge | MetricKind::Maximum if metric.unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(last) = last {
        tokens.retain(|token| *token != last);
        tokens.push(last);
    }
    tokens.join("_")
}

/// The label for an attribute.
pub fn label(attribute: &str) -> String {
    let mut name: String = attribute
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "key_");
    } else if name.starts_with('_') && !name.starts_with("__") {
        name.insert_str(0, "key");
    }
    name
}

/// The unit in a name, which OpenMetrics also writes separately; `None` if the name has no unit.
pub(super) fn unit(metric: &Metric) -> Option<&'static str> {
    match (metric.unit, metric.kind) {
        ("1", MetricKind::Gauge | MetricKind::Maximum) => Some("ratio"),
        (unit, _) if unit.contains('/') => None,
        (unit, _) => spelled(unit),
    }
}

fn tokens(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != ':')
        .filter(|token| !token.is_empty())
}

/// A UCUM unit in words: all units of the declared metrics. Ratios and counts of things have none.
fn spelled(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "s" => "seconds",
        "By" => "bytes",
        "J" => "joules",
        "W" => "watts",
        "Cel" => "celsius",
        "Hz" => "hertz",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use headspace_agent::model::metric::{self, ALL};

    use super::*;

    #[test]
    fn names_follow_opentelemetrys_translation() {
        for (metric, expected) in [
            (&metric::PROCESS_CPU_TIME, "process_cpu_time_seconds_total"),
            (&metric::PROCESS_MEMORY_USAGE, "process_memory_usage_bytes"),
            (&metric::PROCESS_THREAD_COUNT, "process_thread_count"),
            (&metric::PROCESS_DISK_IO, "process_disk_io_bytes_total"),
            (&metric::GPU_UTILIZATION, "hw_gpu_utilization_ratio"),
            (&metric::GPU_POWER, "hw_power_watts"),
            (&metric::GPU_ENERGY, "hw_energy_joules_total"),
            (&metric::GPU_TEMPERATURE, "hw_temperature_celsius"),
            (&metric::GPU_CLOCK, "headspace_gpu_clock_hertz"),
            (&metric::LOOP_STEP_TIME, "headspace_loop_step_time_seconds"),
            (&metric::LOOP_STEPS, "headspace_loop_steps_total"),
            (
                &metric::RUN_THROUGHPUT,
                "headspace_run_throughput_per_second",
            ),
            (&metric::PERF_IPC, "headspace_perf_ipc"),
            // The name already contains the word, which moves to the end.
            (
                &metric::PERF_CACHE_MISS_RATIO,
                "headspace_perf_cache_miss_ratio",
            ),
        ] {
            assert_eq!(name(metric), expected);
        }
    }

    #[test]
    fn every_declared_unit_has_words_or_counts_things() {
        for metric in ALL {
            let (unit, per) = metric.unit.split_once('/').unwrap_or((metric.unit, "s"));
            let has_none = |unit: &str| unit == "1" || unit.starts_with('{');
            assert!(spelled(unit).is_some() || has_none(unit), "{}", metric.name);
            assert!(per == "s" || has_none(per), "{}", metric.name);
        }
    }

    #[test]
    fn no_two_metrics_share_a_name() {
        let mut seen = HashSet::new();
        for metric in ALL {
            assert!(seen.insert(name(metric)), "{}", metric.name);
        }
    }

    #[test]
    fn labels_have_no_dots_and_no_first_digit() {
        assert_eq!(label("hw.gpu.task"), "hw_gpu_task");
        assert_eq!(label("0th"), "key_0th");
        assert_eq!(label("_own"), "key_own");
    }
}
