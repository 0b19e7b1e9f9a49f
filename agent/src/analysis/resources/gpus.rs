//! Use of each GPU.

use std::collections::BTreeSet;

use crate::analysis::thresholds::findings::OTHERS_MEMORY_PCT;
use crate::model::metric::{
    GPU_ECC_ERRORS, GPU_ENGINE_UTILIZATION, GPU_IO, GPU_MEMORY_LIMIT, GPU_MEMORY_OWNED,
    GPU_MEMORY_USAGE, GPU_PCIE_GENERATION, GPU_PCIE_WIDTH, GPU_SM_UTILIZATION, GPU_THROTTLED,
    GPU_UTILIZATION, Metric,
};
use crate::model::reading::{Attributes, attribute_value};
use crate::model::reading_series::Span;
use crate::model::record::{
    ComputeGpu, GpuRecord, GpuUse, PcieLink, ResourcesRecord, ThrottleReason,
};
use crate::model::{GpuActivity, ReadingSeries, Scope, attributes};
use crate::statistics::mean;

/// Minimum number of readings of a state for a share of time.
const MIN_READINGS: usize = 10;

/// The use of each GPU that has readings. `records` describe the GPUs.
pub(super) fn gpus(history: &ReadingSeries, span: &Span<'_>, records: &[GpuRecord]) -> Vec<GpuUse> {
    ordinals(history)
        .map(|ordinal| gpu(span, ordinal, records))
        .collect()
}

/// SM utilization of the GPU that the rank computes on, in percent. If it is not known which GPU that is, the
/// mean of all GPUs. `None` without readings: other GPUs do not replace a GPU that was lost.
pub fn sm_utilization_pct(
    history: &ReadingSeries,
    (from_s, to_s): (f64, f64),
    compute_gpu: Option<ComputeGpu>,
) -> Option<f64> {
    let span = history.between(from_s, to_s);
    let read = |ordinal| Some(100.0 * sm(&span, ordinal)?.0);
    if let Some(own) = compute_gpu {
        return read(own.ordinal);
    }
    let all: Vec<f64> = ordinals(history).filter_map(read).collect();
    (!all.is_empty()).then(|| mean(&all))
}

/// Share of the time in which the GPU of this rank executes kernels or copies. Of several GPUs, the busiest counts.
///
/// `None` if it is unknown whether the rank needs this work: with other ranks, because a kernel also runs while it
/// waits for them, and without a GPU that almost only this rank has memory on, because the driver does not show whose
/// kernels ran.
pub(in crate::analysis) fn gpu_busy_share(
    resources: &ResourcesRecord,
    ranks_in_run: u32,
) -> Option<f64> {
    if ranks_in_run > 1 {
        return None;
    }
    let is_own = |gpu: &&GpuUse| (gpu.others_memory_pct).is_some_and(|pct| pct < OTHERS_MEMORY_PCT);
    let busy = (resources.own_gpus().filter(is_own)).filter_map(|gpu| gpu.any_kernel_pct);
    busy.reduce(f64::max).map(|pct| pct / 100.0)
}

/// SM utilization as a share, and its source.
fn sm(span: &Span<'_>, ordinal: u32) -> Option<(f64, Option<&'static str>)> {
    let scope = Scope::Gpu(ordinal);
    attributes_of(span, &GPU_SM_UTILIZATION, &scope)
        .into_iter()
        .find_map(|attributes| {
            let mean = span.of(&GPU_SM_UTILIZATION, &scope, attributes).mean()?;
            Some((mean, attribute_value(attributes, "source")))
        })
}

fn gpu(span: &Span<'_>, ordinal: u32, gpus: &[GpuRecord]) -> GpuUse {
    let scope = Scope::Gpu(ordinal);
    let of = |metric, attributes| span.of(metric, &scope, attributes).mean();
    let sm = sm(span, ordinal);
    let is_decoder = |engine| matches!(GpuActivity::of_engine(engine), GpuActivity::Decoder(_));
    let decoders: Vec<f64> = attributes_of(span, &GPU_ENGINE_UTILIZATION, &scope)
        .into_iter()
        .filter(|attributes| attribute_value(attributes, "engine").is_some_and(is_decoder))
        .filter_map(|attributes| of(&GPU_ENGINE_UTILIZATION, attributes))
        .collect();
    let throttled = attributes_of(span, &GPU_THROTTLED, &scope)
        .into_iter()
        // Each reading is the state at one moment.
        .filter(|attributes| {
            span.of(&GPU_THROTTLED, &scope, attributes).points().count() >= MIN_READINGS
        })
        .filter_map(|attributes| {
            Some((
                of(&GPU_THROTTLED, attributes)?,
                attribute_value(attributes, "reason")?,
            ))
        })
        .reduce(|a, b| if b.0 > a.0 { b } else { a });
    let owned = |owner| of(&GPU_MEMORY_OWNED, owner);
    let bytes_per_s = |direction| span.of(&GPU_IO, &scope, direction).rate();
    let record = gpus.iter().find(|gpu| gpu.ordinal == ordinal);
    let (own, others) = (
        owned(attributes::OWNER_OWN),
        owned(attributes::OWNER_OTHERS),
    );
    GpuUse {
        ordinal,
        sm_pct: sm.map(|(share, _)| 100.0 * share),
        sm_source: sm.and_then(|(_, source)| source.map(ToOwned::to_owned)),
        any_kernel_pct: of(&GPU_UTILIZATION, attributes::GPU_GENERAL).map(|s| 100.0 * s),
        nvdec_busy: (!decoders.is_empty()).then(|| decoders.iter().sum()),
        nvdec_engines: record.and_then(|gpu| gpu.nvdec_engines),
        decoder_pct: of(&GPU_UTILIZATION, attributes::GPU_DECODER).map(|s| 100.0 * s),
        pcie_receive_bytes_per_s: bytes_per_s(attributes::NETWORK_RECEIVE),
        pcie_transmit_bytes_per_s: bytes_per_s(attributes::NETWORK_TRANSMIT),
        pcie_link: pcie_link(span, &scope),
        pcie_link_max: record.and_then(pcie_link_max),
        memory_peak_bytes: span.of(&GPU_MEMORY_USAGE, &scope, &[]).max(),
        memory_bytes: span.of(&GPU_MEMORY_LIMIT, &scope, &[]).last(),
        throttled_pct: throttled.map(|(share, _)| 100.0 * share),
        throttled_by: throttled
            .filter(|(share, _)| *share > 0.0)
            .and_then(|(_, reason)| ThrottleReason::named(reason)),
        ecc_uncorrected: span
            .of(&GPU_ECC_ERRORS, &scope, attributes::ECC_UNCORRECTED)
            .growth()
            .map(|(grown, _)| grown),
        others_memory_pct: own
            .zip(others)
            .filter(|(own, others)| own + others > 0.0)
            .map(|(own, others)| 100.0 * (others / (own + others))),
    }
}

/// The GPUs that have readings.
fn ordinals(history: &ReadingSeries) -> impl Iterator<Item = u32> {
    let ordinals = history.keys().filter_map(|key| match key.scope {
        Scope::Gpu(ordinal) => Some(ordinal),
        _ => None,
    });
    ordinals.collect::<BTreeSet<u32>>().into_iter()
}

/// The attributes with which a metric of one GPU was read.
fn attributes_of(span: &Span<'_>, metric: &'static Metric, scope: &Scope) -> Vec<Attributes> {
    span.keys()
        .filter(|key| key.metric == metric && key.scope == *scope)
        .map(|key| key.attributes)
        .collect()
}

/// The fastest `PCIe` link that was read.
fn pcie_link(span: &Span<'_>, scope: &Scope) -> Option<PcieLink> {
    let highest = |metric| whole_number(span.of(metric, scope, &[]).max()?);
    Some(PcieLink {
        generation: highest(&GPU_PCIE_GENERATION)?,
        width: highest(&GPU_PCIE_WIDTH)?,
    })
}

/// The fastest `PCIe` link of the GPU and the machine.
fn pcie_link_max(gpu: &GpuRecord) -> Option<PcieLink> {
    Some(PcieLink {
        generation: gpu.pcie_generation_max?,
        width: gpu.pcie_width_max?,
    })
}

/// The nearest small whole number.
fn whole_number(value: f64) -> Option<u32> {
    (0..=128).find(|number| (f64::from(*number) - value).abs() <= 0.5)
}
