//! Measures OpenTelemetry's own SDK: the time to collect its instruments and to build the same message. It has as
//! many instruments as the run of the benchmark, and updates them as often.
//!
//! Its reader collects on a separate thread, so its time includes two thread switches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, InstrumentKind, PeriodicReader, SdkMeterProvider, Stream, Temporality,
};
use prost::Message;

/// One hour, which is longer than the benchmark. So metrics are collected on request only.
const NEVER: Duration = Duration::from_secs(3600);

/// Encodes the message and stores its length.
struct Encodes(Arc<AtomicUsize>);

impl PushMetricExporter for Encodes {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let bytes = ExportMetricsServiceRequest::from(metrics).encode_to_vec();
        let length = divan::black_box(bytes).len();
        self.0.store(length, Ordering::Relaxed);
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

/// The SDK with all its instruments.
pub(crate) struct Sdk {
    provider: SdkMeterProvider,
    length: Arc<AtomicUsize>,
}

fn exponential(instrument: &Instrument) -> Option<Stream> {
    if instrument.kind() != InstrumentKind::Histogram {
        return None;
    }
    let aggregation = Aggregation::Base2ExponentialHistogram {
        max_size: 160,
        max_scale: 20,
        record_min_max: true,
    };
    Stream::builder().with_aggregation(aggregation).build().ok()
}

impl Sdk {
    /// Creates the instruments and records 600 ticks. The instruments are three durations of a loop, the durations
    /// of 10 stages, 20 counters, and 6 gauges for each of 8 GPUs.
    #[expect(
        clippy::too_many_lines,
        reason = "the instruments, and what is recorded with each"
    )]
    pub(crate) fn after_ten_minutes() -> Self {
        let length = Arc::new(AtomicUsize::new(0));
        let reader = PeriodicReader::builder(Encodes(Arc::clone(&length)))
            .with_interval(NEVER)
            .build();
        let provider = SdkMeterProvider::builder()
            .with_view(exponential)
            .with_reader(reader)
            .build();
        let meter = provider.meter("headspace");
        let of = |pairs: &[(&'static str, String)]| -> Vec<KeyValue> {
            let common = [("run", "2026-11-21T09-30-12-4711".to_owned())];
            let all = common.iter().chain(pairs).cloned();
            all.map(|(key, value)| KeyValue::new(key, value))
                .chain([KeyValue::new("rank", 0)])
                .collect()
        };
        let times = ["step", "wait", "compute"].map(|what| {
            let name = format!("headspace.loop.{what}.time");
            meter.f64_histogram(name).with_unit("s").build()
        });
        let stage = meter
            .f64_histogram("headspace.stage.time")
            .with_unit("s")
            .build();
        let switches = meter.f64_counter("process.context_switches").build();
        let levels = [
            "headspace.gpu.sm.utilization",
            "hw.gpu.utilization",
            "hw.gpu.utilization.decoder",
            "hw.gpu.memory.usage",
            "hw.power",
            "hw.temperature",
        ]
        .map(|name| meter.f64_gauge(name).build());
        let of_loop = of(&[("loop", "loader".to_owned()), ("phase", "live".to_owned())]);
        let of_stages: Vec<_> = (0..10)
            .map(|stage| of(&[("stage", format!("stage {stage}"))]))
            .collect();
        let of_switches: Vec<_> = (0..20)
            .map(|kind| of(&[("type", kind.to_string())]))
            .collect();
        let of_gpus: Vec<_> = (0..8).map(|gpu| of(&[("gpu", gpu.to_string())])).collect();
        for tick in 0..600_u32 {
            let spread = |call: u32| f64::from((tick * 7919 + call * 104_729) % 500_000) * 1e-9;
            for call in 0..100 {
                for time in &times {
                    time.record(0.01 * (0.75 + 1000.0 * spread(call)), &of_loop);
                }
                for (number, of_stage) in (1_u32..).zip(&of_stages) {
                    stage.record(f64::from(number) * 1e-3 + spread(call), of_stage);
                }
            }
            for of_switch in &of_switches {
                switches.add(1.37, of_switch);
            }
            for of_gpu in &of_gpus {
                for level in &levels {
                    level.record(f64::from(tick % 100), of_gpu);
                }
            }
        }
        Self { provider, length }
    }

    /// Collects the metrics and encodes the message. Returns its length in bytes, or 0 after an error.
    pub(crate) fn request(&self) -> usize {
        match self.provider.force_flush() {
            Ok(()) => self.length.load(Ordering::Relaxed),
            Err(_) => 0,
        }
    }
}
