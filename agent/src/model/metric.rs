//! The one declaration of every metric: name, unit, kind, help.
//!
//! The JSON name, the OpenTelemetry name and unit, the Prometheus name and help, the table in
//! `docs/metrics.md` and the dashboards all come from here, so that they cannot disagree. Names
//! follow OpenTelemetry's semantic conventions where those have one, else the `headspace.`
//! namespace. Units are UCUM.

/// How a metric's values combine over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// A total that only grows while the process lives. Of two ticks, the later says more.
    Counter,
    /// A level at one moment, meaningful to average.
    Gauge,
    /// A level at one moment that adds up over processes (bytes, threads).
    UpDownCounter,
}

/// The declaration of one metric. Made only in this module; refer to it by its constant.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// Dotted lower-case name, as OpenTelemetry writes it.
    pub name: &'static str,
    /// UCUM unit; `1` is a ratio, `{thing}` counts things.
    pub unit: &'static str,
    /// How values combine over time.
    pub kind: MetricKind,
    /// Names of the attributes that tell its values apart in one scope; empty where it has one.
    pub attributes: &'static [&'static str],
    /// One sentence for people, without a final stop.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($(#[$meta:meta])* $id:ident = $kind:ident $name:literal [$unit:literal]
        $(by $($attribute:literal)+ =>)? $help:literal;)*) => {
        $(
            #[doc = $help]
            $(#[$meta])*
            pub static $id: Metric = Metric {
                name: $name,
                unit: $unit,
                kind: MetricKind::$kind,
                attributes: &[$($($attribute),+)?],
                help: $help,
            };
        )*

        /// Every metric there is, in the order of the documentation table.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    PROCESS_CPU_TIME = Counter "process.cpu.time" ["s"] by "cpu.mode" =>
        "CPU seconds the process has used, by `cpu.mode` (user, system)";
    PROCESS_MEMORY_USAGE = UpDownCounter "process.memory.usage" ["By"]
        "Resident memory of the process";
    PROCESS_MEMORY_VIRTUAL = UpDownCounter "process.memory.virtual" ["By"]
        "Address space the process has mapped";
    PROCESS_THREAD_COUNT = UpDownCounter "process.thread.count" ["{thread}"]
        "Threads of the process";
    PROCESS_DISK_IO = Counter "process.disk.io" ["By"] by "disk.io.direction" =>
        "Bytes the process made storage read or write, by `disk.io.direction`";
    PROCESS_IO_REQUESTED = Counter "headspace.process.io.requested" ["By"] by "disk.io.direction" =>
        "Bytes the process asked for through read and write calls, page-cache hits included, by `disk.io.direction`";
    PROCESS_CONTEXT_SWITCHES = Counter "process.context_switches" ["{context_switch}"] by "process.context_switch.type" =>
        "Times a thread of the process left its core, by `process.context_switch.type`";
    PROCESS_PAGING_FAULTS = Counter "process.paging.faults" ["{fault}"] by "system.paging.fault.type" =>
        "Page faults of the process, by `system.paging.fault.type` (minor: no disk read)";
    HOST_CPU_UTILIZATION = Gauge "headspace.host.cpu.utilization" ["1"]
        "Share of time since the last tick that the cores usable by this process were busy, whoever used them";
    HOST_CPU_USABLE = Gauge "headspace.host.cpu.usable" ["{cpu}"]
        "Cores this process may use: the smaller of its affinity and its cgroup quota";
    HOST_CPU_ONLINE = UpDownCounter "system.cpu.logical.count" ["{cpu}"]
        "Cores of the machine that are online";
    HOST_CPU_AFFINITY = Gauge "headspace.host.cpu.affinity" ["{cpu}"]
        "Cores the scheduler may place this process on";
    HOST_CPU_QUOTA = Gauge "headspace.host.cpu.quota" ["{cpu}"]
        "Cores' worth of time the tightest cgroup above this process allows; absent without a limit";
    AGENT_CPU_TIME = Counter "headspace.agent.cpu.time" ["s"]
        "CPU seconds of the agent's own threads";
    AGENT_STEP_COST = Gauge "headspace.agent.step.cost" ["ns"]
        "What recording one batch costs the training thread, calibrated when the run began";
    AGENT_TICK_LATENESS = Gauge "headspace.agent.tick.lateness" ["s"]
        "How much later than planned the tick began";
    AGENT_DROPPED_STEPS = Counter "headspace.agent.dropped.steps" ["{step}"]
        "Steps the recorder had no room for";
    AGENT_DROPPED_RECORDS = Counter "headspace.agent.dropped.records" ["{record}"]
        "Records dropped because an exporter was slow or failed";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_metric_is_named_once_and_explained() {
        let mut seen = HashSet::new();
        for metric in ALL {
            assert!(
                seen.insert(metric.name),
                "`{}` is declared twice",
                metric.name
            );
            assert!(
                !metric.help.is_empty() && !metric.help.ends_with('.'),
                "{}",
                metric.name
            );
            assert!(
                metric
                    .name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '.' || c == '_'),
                "{}",
                metric.name
            );
        }
    }
}
