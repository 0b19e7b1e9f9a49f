//! Sets the series of the run as a whole: its environment, its settings and its results.

use headspace_agent::model::metric::{self, Metric};
use headspace_agent::model::record::{NoticeRecord, RunRecord, SummaryRecord};

use super::{Snapshot, named};

impl Snapshot {
    pub(super) fn add_run(&mut self, run: &RunRecord) {
        let gpus = run.gpus.iter();
        self.gpus = gpus.map(|gpu| (gpu.ordinal, gpu.clone())).collect();
        self.run = Some(Box::new(run.clone()));
    }

    pub(super) fn add_notice(&mut self, notice: &NoticeRecord) {
        let severity = named("severity", notice.severity.as_str());
        self.add(&metric::RUN_NOTICES, vec![severity], 1.0);
    }

    /// Removes the values that the summary does not contain or no longer contains.
    pub(super) fn add_summary(&mut self, summary: &SummaryRecord) {
        let (ms, pct) = (1e-3, 1e-2);
        self.replace(
            &metric::RUN_HEADSPACE_BOUND,
            summary.headspace_upper_bound_pct,
            pct,
        );
        self.replace(
            &metric::RUN_STEADY_STEP_TIME,
            summary.steady_step_mean_ms,
            ms,
        );
        self.replace(
            &metric::RUN_THROUGHPUT,
            summary.throughput_samples_per_s,
            1.0,
        );
        self.clear(&metric::RUN_UNIT_THROUGHPUT);
        if let Some(unit) = &summary.unit {
            let attributes = vec![named("unit", unit)];
            let rate = summary.throughput_units_per_s;
            self.set(&metric::RUN_UNIT_THROUGHPUT, attributes, rate);
        }
        let remaining = summary.run_time.as_ref().and_then(|time| time.remaining);
        let remaining = remaining.map(|rest| rest.duration_s);
        self.replace_estimate(
            &metric::RUN_REMAINING_TIME,
            remaining.map(|rest| rest.value),
            remaining.map(|rest| (rest.low, rest.high)),
            1.0,
        );
        self.replace(&metric::RUN_DATA_READINESS, summary.data_readiness_pct, pct);
        self.replace(&metric::RUN_OVERHEAD, summary.overhead_pct, pct);
        self.replace_estimate(
            &metric::RUN_FLOOR_TIME,
            summary.floor_step_ms,
            summary.floor_ci_ms,
            ms,
        );
        self.replace_estimate(
            &metric::RUN_HEADSPACE,
            summary.headspace_pct,
            summary.headspace_ci_pct,
            pct,
        );
        self.clear(&metric::RUN_BOTTLENECK);
        if let Some(found) = &summary.bottleneck {
            let name = found.name.clone().unwrap_or_default();
            let attributes = vec![named("kind", found.kind.as_str()), named("name", name)];
            self.set(&metric::RUN_BOTTLENECK, attributes, found.confidence);
        }
        self.clear(&metric::RUN_REMEDY_STEP_TIME);
        for remedy in &summary.remedies {
            let attributes = vec![named("remedy", &remedy.code), named("what", &remedy.what)];
            let step = remedy.predicted_step_ms * ms;
            self.set(&metric::RUN_REMEDY_STEP_TIME, attributes, step);
        }
    }

    fn replace(&mut self, metric: &'static Metric, value: Option<f64>, unit: f64) {
        self.clear(metric);
        self.set(metric, Vec::new(), value.map(|value| value * unit));
    }

    fn replace_estimate(
        &mut self,
        metric: &'static Metric,
        value: Option<f64>,
        ends: Option<(f64, f64)>,
        unit: f64,
    ) {
        self.clear(metric);
        let (low, high) = ends.unzip();
        for (which, value) in [("value", value), ("low", low), ("high", high)] {
            let value = value.map(|value| value * unit);
            self.set(metric, vec![named("estimate", which)], value);
        }
    }
}
