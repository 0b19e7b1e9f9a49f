//! The sections about resources: GPUs, cores, memory, data. Values that were not read are left out.

use super::super::cpu_labels::{
    CORES_USED, CPU_PRESSURE, CPU_THROTTLED, GC_PAUSES, IO_PRESSURE, MEMORY_PRESSURE,
    RUN_QUEUE_WAIT,
};
use super::super::gpu::{GPU_BUSY, rule_text};
use super::super::section::{Block, Column, Fact, Row, Section, SectionId, Table, more_in_records};
use super::super::units::{amount, bytes, duration_ms, part_of, percent};
use super::Detail;
use crate::model::record::{ComputeGpu, GpuUse, GrowthCause, ResourcesRecord, SmSource};

/// Maximum number of GPUs, in brief and in full. The others are counted.
const MOST_GPUS: (usize, usize) = (8, 64);

/// A rate below this, in bytes per second, does not count as reading of data.
const LEAST_RATE: f64 = 256.0 * 1024.0;

const GPU_COLUMNS: [Column; 6] = [
    Column::new("GPU", "The process's own number for it"),
    Column::new(
        "SMs busy",
        "Share of SMs with work, over time, by the performance counters",
    ),
    Column::new(
        GPU_BUSY,
        "Share of time in which at least one kernel was running; does not show how many SMs were busy",
    ),
    Column::new("NVDEC", "Mean number of busy decoders, of all decoders"),
    Column::new("memory peak", "Highest memory use, of the total"),
    Column::new(
        "throttled",
        "Share of time in which the clocks were held down",
    ),
];

/// The sections with at least one value.
pub(super) fn sections(resources: &ResourcesRecord, detail: Detail) -> Vec<Section> {
    match detail {
        Detail::Brief => brief(resources),
        Detail::Full => full(resources),
    }
}

/// One line for each GPU, and one each for cores, memory and data.
fn brief(resources: &ResourcesRecord) -> Vec<Section> {
    let phrases = |id, parts: Vec<String>| {
        let facts: Vec<Fact> = parts.into_iter().map(Fact::phrase).collect();
        (!facts.is_empty()).then(|| Section::facts(id, facts))
    };
    let mut sections: Vec<Section> = Vec::new();
    let shown: Vec<&GpuUse> = resources.own_gpus().take(MOST_GPUS.0).collect();
    let several = resources.gpus.len() > 1 || resources.compute_gpu.is_some();
    let rank_gpu = |own: ComputeGpu| format!("GPU of this rank ({})", rule_text(own.rule));
    for gpu in &shown {
        let mut parts = gpu_parts(gpu, several);
        let own = (resources.compute_gpu).filter(|own| own.ordinal == gpu.ordinal);
        parts.extend(own.map(rank_gpu));
        sections.extend(phrases(SectionId::Gpu, parts));
    }
    let lost = (resources.compute_gpu).filter(|_| shown.is_empty() && !resources.gpus.is_empty());
    sections.extend(lost.and_then(|own| {
        let parts = vec![format!("{}: no readings", own.ordinal), rank_gpu(own)];
        phrases(SectionId::Gpu, parts)
    }));
    let more = resources.gpus.len() - shown.len();
    if more > 0 {
        sections.push(Section::sentence(SectionId::Gpu, more_in_records(more)));
    }
    sections.extend(phrases(SectionId::Cpu, cpu_parts(resources)));
    sections.extend(phrases(SectionId::Memory, memory_parts(resources)));
    sections.extend(phrases(SectionId::Data, data_parts(resources)));
    sections
}

/// A table of GPUs, and a list of all other values.
fn full(resources: &ResourcesRecord) -> Vec<Section> {
    let own = resources.compute_gpu.map(|own| own.ordinal);
    let rows = (resources.gpus.iter().take(MOST_GPUS.1))
        .map(|gpu| Row::new(gpu_cells(gpu)).marked_if(own == Some(gpu.ordinal), "of this rank"));
    let gpus = Table {
        columns: GPU_COLUMNS.to_vec(),
        rows: rows.collect(),
        more: resources.gpus.len().saturating_sub(MOST_GPUS.1),
    };
    let terms = terms(resources);
    let gpus = (!gpus.rows.is_empty()).then(|| Section::new(SectionId::Gpu, Block::Table(gpus)));
    let terms = (!terms.is_empty()).then(|| Section::new(SectionId::Cpu, Block::Terms(terms)));
    gpus.into_iter().chain(terms).collect()
}

fn gpu_cells(gpu: &GpuUse) -> Vec<String> {
    let nvdec = match (gpu.nvdec_busy, gpu.decoder_pct) {
        (Some(busy), _) => match gpu.nvdec_engines {
            Some(engines) => format!("{} of {engines} engines", amount(busy)),
            None => amount(busy),
        },
        (None, pct) => pct.map(share).unwrap_or_default(),
    };
    let throttled = gpu.throttled_pct.filter(|pct| *pct >= 0.5).map(|pct| {
        let by = gpu.throttled_by.map(|by| format!(" ({})", by.as_str()));
        percent(pct, 0) + " %" + &by.unwrap_or_default()
    });
    vec![
        gpu.ordinal.to_string(),
        gpu.sm_pct.map(share).unwrap_or_default(),
        gpu.any_kernel_pct.map(share).unwrap_or_default(),
        nvdec,
        gpu_memory(gpu).unwrap_or_default(),
        throttled.unwrap_or_default(),
    ]
}

/// Highest use of a GPU's memory.
fn gpu_memory(gpu: &GpuUse) -> Option<String> {
    Some(part_of(gpu.memory_peak_bytes?, gpu.memory_bytes, bytes))
}

/// Mean number of cores in use.
fn cores_used(r: &ResourcesRecord) -> Option<String> {
    Some(part_of(r.cores_used?, r.cores_usable, amount))
}

/// Growth of the memory, if it is certain.
fn growth(r: &ResourcesRecord) -> Option<String> {
    let growth = r.memory_growth_per_step.filter(|growth| growth.low > 0.0)?;
    Some(format!("{} in 1,000 steps", bytes(1e3 * growth.value)))
}

/// A percentage with its sign.
fn share(pct: f64) -> String {
    percent(pct, 0) + " %"
}

/// The values of all resources other than GPUs.
fn terms(r: &ResourcesRecord) -> Vec<(String, String)> {
    let rate = |value: Option<f64>| value.map(|rate| format!("{}/s", bytes(rate)));
    let pct = |value: Option<f64>| value.map(|pct| format!("{} % of the time", percent(pct, 1)));
    let throttled = r
        .throttled_pct
        .map(|pct| format!("in {} % of the quota's periods", percent(pct, 1)));
    let gil = r
        .gil_wait_ms
        .map(|ms| format!("{} an acquisition", duration_ms(ms)));
    let memory = r.memory_proportional_bytes.or(r.memory_bytes).map(bytes);
    let terms = [
        (CORES_USED, cores_used(r)),
        ("runnable threads (machine)", r.runnable_threads.map(amount)),
        (RUN_QUEUE_WAIT, pct(r.consumer_run_queue_pct)),
        (CPU_THROTTLED, throttled),
        (CPU_PRESSURE, pct(r.cpu_pressure_pct)),
        (IO_PRESSURE, pct(r.io_pressure_pct)),
        (MEMORY_PRESSURE, pct(r.memory_pressure_pct)),
        ("GIL wait", gil),
        (GC_PAUSES, pct(r.gc_pct)),
        ("longest GC pause", r.gc_longest_ms.map(duration_ms)),
        (
            "instructions per cycle",
            r.consumer_ipc.map(|ipc| format!("{ipc:.2}")),
        ),
        ("memory", memory),
        ("memory grows by", growth(r)),
        ("read from files", rate(r.requested_bytes_per_s)),
        ("read from storage", rate(r.disk_read_bytes_per_s)),
        ("busiest disk in use", pct(r.disk_utilization_pct)),
        (
            "received from the network",
            rate(r.network_receive_bytes_per_s),
        ),
    ];
    let terms = terms.into_iter();
    terms
        .filter_map(|(term, words)| Some((term.to_owned(), words?)))
        .collect()
}

fn gpu_parts(gpu: &GpuUse, several: bool) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(pct) = gpu.sm_pct {
        parts.push(match gpu.sm_source.as_deref().and_then(SmSource::named) {
            Some(SmSource::GpmMig) => format!("SMs of the slice busy {} (GPM)", share(pct)),
            Some(SmSource::Gpm) => format!("SMs busy {} (GPM)", share(pct)),
            None => format!("SMs busy {}", share(pct)),
        });
    } else if let Some(pct) = gpu.any_kernel_pct {
        // This is not SM activity: one small kernel at a time gives 100 %.
        parts.push(format!("{GPU_BUSY} {} of the time", share(pct)));
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
    parts.extend(gpu_memory(gpu).map(|memory| format!("memory {memory}")));
    if several && let Some(first) = parts.first_mut() {
        *first = format!("{}: {first}", gpu.ordinal);
    }
    parts
}

fn cpu_parts(r: &ResourcesRecord) -> Vec<String> {
    let whole = |pct: Option<f64>| pct.filter(|pct| *pct >= 0.5).map(share);
    let gc = r.gc_pct.filter(|pct| *pct >= 0.05);
    let parts = [
        cores_used(r).map(|cores| format!("{cores} cores used")),
        whole(r.throttled_pct).map(|pct| format!("throttled in {pct} of periods")),
        whole(r.consumer_run_queue_pct)
            .map(|pct| format!("training thread waits for a core {pct}")),
        r.gil_wait_ms
            .map(|ms| format!("mean GIL wait {}", duration_ms(ms))),
        gc.map(|pct| format!("GC {} %", percent(pct, 1))),
        r.consumer_ipc.map(|ipc| format!("IPC {ipc:.2}")),
    ];
    parts.into_iter().flatten().collect()
}

fn memory_parts(r: &ResourcesRecord) -> Vec<String> {
    let memory = r.memory_proportional_bytes.or(r.memory_bytes);
    let fills = (r.memory_growth_cause.as_ref())
        .is_some_and(|found| found.cause == GrowthCause::BoundedBuffer);
    let why = if fills {
        " while the last queue fills"
    } else {
        ""
    };
    let grows = growth(r).map(|growth| format!("grows by {growth}{why}"));
    memory.map(bytes).into_iter().chain(grows).collect()
}

/// Sources of the data: requested bytes, bytes read from storage, network.
fn data_parts(r: &ResourcesRecord) -> Vec<String> {
    let rate = |value: Option<f64>| value.filter(|rate| *rate >= LEAST_RATE);
    let (requested, read) = (rate(r.requested_bytes_per_s), rate(r.disk_read_bytes_per_s));
    let cached = r
        .disk_read_bytes_per_s
        .map(|_| ", from the page cache or pipes");
    let reads = match (requested.map(bytes), read.map(bytes)) {
        (Some(all), Some(stored)) if requested >= read => {
            format!("reads {all}/s, {stored}/s from storage")
        }
        // Mapped files are read without a request.
        (_, Some(stored)) => format!("reads {stored}/s from storage"),
        (Some(all), None) => format!("reads {all}/s{}", cached.unwrap_or_default()),
        (None, None) => String::new(),
    };
    let disk = read.and(r.disk_utilization_pct);
    let network = rate(r.network_receive_bytes_per_s);
    let parts = [
        Some(reads).filter(|reads| !reads.is_empty()),
        disk.map(|pct| format!("disk busy {}", share(pct))),
        network.map(|received| format!("the machine receives {}/s", bytes(received))),
    ];
    parts.into_iter().flatten().collect()
}
