//! The readings that the page shows.

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::ReadingKey;

/// The readings in charts, by kind of scope.
const READINGS: &[(&str, &Metric)] = &[
    ("gpu", &metric::GPU_SM_UTILIZATION),
    ("gpu", &metric::GPU_UTILIZATION),
    ("gpu", &metric::GPU_ENGINE_UTILIZATION),
    ("tree", &metric::PROCESS_CPU_TIME),
    ("process", &metric::PROCESS_CPU_TIME),
    ("host", &metric::HOST_CPU_UTILIZATION),
    ("thread", &metric::THREAD_RUN_QUEUE_TIME),
    ("cgroup", &metric::CGROUP_CPU_PERIODS),
    ("cgroup", &metric::CGROUP_CPU_THROTTLED_PERIODS),
    ("host", &metric::PRESSURE_TIME),
    ("cgroup", &metric::PRESSURE_TIME),
    ("process", &metric::GIL_WAITS),
    ("process", &metric::GIL_WAIT_TIME),
    ("process", &metric::GC_PAUSE_TIME),
];

/// Whether the page shows a reading.
pub(super) fn is_shown(key: &ReadingKey<'_>) -> bool {
    let shown = (key.scope.kind(), key.metric);
    READINGS.contains(&shown)
}
