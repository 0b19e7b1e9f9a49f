//! What the process had and used, a row a kind: GPUs, cores, memory, data. What was not read is not
//! told.

use super::render::Row;
use super::units::{amount, bytes, duration_ms, percent};
use crate::model::record::{GpuUse, ResourcesRecord};

/// Rows of GPUs; what more there are is counted.
const MOST_GPUS: usize = 8;

/// A rate below this, in bytes a second, is no reading of data.
const LEAST_RATE: f64 = 256.0 * 1024.0;

/// The rows that have something to tell.
pub(super) fn rows(resources: &ResourcesRecord) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let own = resources.own_gpus();
    let shown: Vec<&GpuUse> = own.take(MOST_GPUS).collect();
    let several = resources.gpus.len() > 1 || resources.compute_gpu.is_some();
    for gpu in &shown {
        let mut parts = gpu_parts(gpu, several);
        if let Some(own) = resources
            .compute_gpu
            .filter(|own| own.ordinal == gpu.ordinal)
        {
            parts.push(format!("this rank's, by {}", own.rule.as_words()));
        }
        if !parts.is_empty() {
            rows.push(Row::parts("gpu", parts));
        }
    }
    if resources.gpus.len() > shown.len() {
        let more = resources.gpus.len() - shown.len();
        rows.push(Row::sentence(
            "gpu",
            format!("and {more} more, in the records"),
        ));
    }
    for (label, parts) in [
        ("cpu", cpu_parts(resources)),
        ("memory", memory_parts(resources)),
        ("data", data_parts(resources)),
    ] {
        if !parts.is_empty() {
            rows.push(Row::parts(label, parts));
        }
    }
    rows
}

fn gpu_parts(gpu: &GpuUse, several: bool) -> Vec<String> {
    let share = |pct: f64| format!("{} %", percent(pct, 0));
    let mut parts = Vec::new();
    if let Some(pct) = gpu.sm_pct {
        parts.push(match &gpu.sm_source {
            Some(source) if source == "gpm_mig" => {
                format!("SMs of the slice busy {} (GPM)", share(pct))
            }
            Some(source) => format!("SMs busy {} ({})", share(pct), source.to_uppercase()),
            None => format!("SMs busy {}", share(pct)),
        });
    } else if let Some(pct) = gpu.any_kernel_pct {
        // Not SM activity: one small kernel at a time makes it 100 %.
        parts.push(format!("some kernel running {} of the time", share(pct)));
    }
    match (gpu.nvdec_busy, gpu.nvdec_engines, gpu.decoder_pct) {
        (Some(busy), Some(engines), _) => {
            parts.push(format!("NVDEC {} of {engines} engines busy", amount(busy)));
        }
        (None, Some(engines), Some(pct)) => {
            parts.push(format!("NVDEC {} over {engines} engines", share(pct)));
        }
        (None, None, Some(pct)) => parts.push(format!("NVDEC {}", share(pct))),
        _ => {}
    }
    match (gpu.memory_peak_bytes, gpu.memory_bytes) {
        (Some(peak), Some(all)) => {
            parts.push(format!("memory {} of {}", bytes(peak), bytes(all)));
        }
        (Some(peak), None) => parts.push(format!("memory {}", bytes(peak))),
        _ => {}
    }
    if several && let Some(first) = parts.first_mut() {
        *first = format!("{}: {first}", gpu.ordinal);
    }
    parts
}

fn cpu_parts(r: &ResourcesRecord) -> Vec<String> {
    let mut parts = Vec::new();
    match (r.cores_used, r.cores_usable) {
        (Some(used), Some(usable)) => {
            parts.push(format!("{} of {} cores used", amount(used), amount(usable)));
        }
        (Some(used), None) => parts.push(format!("{} cores used", amount(used))),
        _ => {}
    }
    if let Some(pct) = r.throttled_pct.filter(|pct| *pct >= 0.5) {
        parts.push(format!("throttled in {} % of periods", percent(pct, 0)));
    }
    if let Some(pct) = r.consumer_run_queue_pct.filter(|pct| *pct >= 0.5) {
        parts.push(format!(
            "training thread waits for a core {} %",
            percent(pct, 0)
        ));
    }
    if let Some(ms) = r.gil_wait_ms {
        parts.push(format!("GIL wait {}", duration_ms(ms)));
    }
    if let Some(pct) = r.gc_pct.filter(|pct| *pct >= 0.05) {
        parts.push(format!("GC {} %", percent(pct, 1)));
    }
    if let Some(ipc) = r.consumer_ipc {
        parts.push(format!("IPC {ipc:.2}"));
    }
    parts
}

fn memory_parts(r: &ResourcesRecord) -> Vec<String> {
    let memory = r.memory_proportional_bytes.or(r.memory_bytes);
    let mut parts: Vec<String> = memory.map(bytes).into_iter().collect();
    if let Some(growth) = r.memory_growth_per_step.filter(|growth| growth.low > 0.0) {
        parts.push(format!(
            "grows by {} in 1,000 steps",
            bytes(1e3 * growth.value)
        ));
    }
    parts
}

/// Where the data comes from: what was asked for, what storage really read, the network.
fn data_parts(r: &ResourcesRecord) -> Vec<String> {
    let rate = |value: Option<f64>| value.filter(|rate| *rate >= LEAST_RATE);
    let mut parts = Vec::new();
    let (asked, read) = (r.requested_bytes_per_s, r.disk_read_bytes_per_s);
    match (rate(asked), rate(read)) {
        (Some(asked), Some(read)) if asked >= read => {
            parts.push(format!(
                "reads {}/s, {}/s from storage",
                bytes(asked),
                bytes(read)
            ));
        }
        // Mapped files are read without being asked for.
        (_, Some(read)) => parts.push(format!("reads {}/s from storage", bytes(read))),
        (Some(asked), None) => {
            let none = r.disk_read_bytes_per_s.map(|_| ", none of it from storage");
            parts.push(format!("reads {}/s{}", bytes(asked), none.unwrap_or("")));
        }
        (None, None) => {}
    }
    if rate(r.disk_read_bytes_per_s).is_some()
        && let Some(pct) = r.disk_utilization_pct
    {
        parts.push(format!("disk busy {} %", percent(pct, 0)));
    }
    if let Some(received) = rate(r.network_receive_bytes_per_s) {
        parts.push(format!("network {}/s", bytes(received)));
    }
    parts
}
