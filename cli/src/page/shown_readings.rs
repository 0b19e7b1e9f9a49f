//! The readings that the page shows.

use headspace_agent::model::Scope;
use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::reading::ReadingKey;

/// Whether a chart shows a reading.
pub(super) fn is_shown(key: &ReadingKey<'_>) -> bool {
    let metrics: &[&Metric] = match key.scope {
        Scope::Gpu(_) => &[
            &metric::GPU_SM_UTILIZATION,
            &metric::GPU_UTILIZATION,
            &metric::GPU_ENGINE_UTILIZATION,
        ],
        Scope::Tree => &[&metric::PROCESS_CPU_TIME],
        Scope::Process => &[&metric::PROCESS_CPU_TIME, &metric::GC_PAUSE_TIME],
        Scope::Thread(_) => &[&metric::THREAD_RUN_QUEUE_TIME],
        Scope::Host => &[&metric::HOST_CPU_UTILIZATION, &metric::PRESSURE_TIME],
        Scope::Cgroup => &[
            &metric::CGROUP_CPU_PERIODS,
            &metric::CGROUP_CPU_THROTTLED_PERIODS,
            &metric::PRESSURE_TIME,
        ],
        _ => &[],
    };
    metrics.contains(&key.metric)
}
