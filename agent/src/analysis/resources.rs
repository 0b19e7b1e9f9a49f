//! Computes the available and used resources of a run from its readings: a pure function.
//!
//! Each value is a mean, a rate or a maximum over one part of the run, usually the steady state of its main
//! loop. A value without readings is absent.

use std::collections::BTreeSet;

use super::growth::growth;
use super::thresholds::findings::OTHERS_MEMORY_PCT;
use crate::model::metric::{
    CGROUP_CPU_PERIODS, CGROUP_CPU_THROTTLED_PERIODS, CGROUP_MEMORY_LIMIT, DISK_UTILIZATION,
    GC_PAUSE_LONGEST, GC_PAUSE_TIME, GIL_WAIT_TIME, GIL_WAITS, GPU_ECC_ERRORS,
    GPU_ENGINE_UTILIZATION, GPU_IO, GPU_MEMORY_LIMIT, GPU_MEMORY_OWNED, GPU_MEMORY_USAGE,
    GPU_PCIE_GENERATION, GPU_PCIE_WIDTH, GPU_SM_UTILIZATION, GPU_THROTTLED, GPU_UTILIZATION,
    HOST_CPU_FREQUENCY, HOST_CPU_USABLE, HOST_CPU_UTILIZATION, HOST_MEMORY_AVAILABLE,
    HOST_PAGING_OPERATIONS, HOST_THREADS_RUNNABLE, MOUNT_OPEN_FILES, MOUNT_READ_IO,
    MOUNT_READ_OPERATIONS, MOUNT_READ_TIME, MOUNT_RETRANSMISSIONS, Metric, NETWORK_IO,
    PAGE_CACHE_REFAULTS, PERF_CYCLES, PERF_INSTRUCTIONS, PRESSURE_TIME, PROCESS_COUNT,
    PROCESS_CPU_TIME, PROCESS_DISK_IO, PROCESS_IO_REQUESTED, PROCESS_MEMORY_ANONYMOUS,
    PROCESS_MEMORY_PROPORTIONAL, PROCESS_MEMORY_USAGE, THREAD_CPU_TIME, THREAD_RUN_QUEUE_TIME,
};
use crate::model::reading::Attributes;
use crate::model::reading_series::Span;
use crate::model::record::{
    ComputeGpu, Estimate, GpuRecord, GpuUse, MemoryScope, MountUse, PcieLink, ResourcesRecord,
    ThrottleReason,
};
use crate::model::{GpuActivity, ReadingSeries, Scope, attributes};
use crate::statistics::mean;

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Begin, in seconds since the run began.
    pub from_s: f64,
    /// End, in seconds since the run began.
    pub to_s: f64,
    /// Steps per second; `None` without a steady state.
    pub steps_per_s: Option<f64>,
}

/// Minimum growth of memory that is reported, in bytes. The agent itself grows by less in its first minutes.
const LEAST_GROWTH: f64 = 4.0 * 1024.0 * 1024.0;

/// Minimum number of readings of a state for a share of time.
const MIN_READINGS: usize = 10;

/// Share of time waiting for a core beyond which a loop hardly runs. Its step without this wait is then
/// unknown.
pub(super) const MOST_WAITING: f64 = 0.95;

/// Mean number of busy cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoresInUse {
    /// Used by this process and its children, except the thread that receives the batches.
    pub own_beside_loop: f64,
    /// Used by other processes: other ranks, and other programs.
    pub others: f64,
}

impl CoresInUse {
    /// Share of the loop's waits for a core that other processes cause: their share of the cores in use,
    /// without the core of the loop itself. The rest is caused by the loop's own helpers.
    pub(super) fn share_of_waits_by_others(self) -> f64 {
        self.others / (self.own_beside_loop + self.others).max(f64::MIN_POSITIVE)
    }
}

/// Mean cores in use in a part of the run; `None` if a reading is missing.
pub fn cores_in_use(span: &Span<'_>) -> Option<CoresInUse> {
    let own = cores_of_tree(span)?;
    let consumer = Scope::Thread(attributes::CONSUMER.into());
    let of_loop = span.of(&THREAD_CPU_TIME, &consumer, &[]).rate()?;
    Some(CoresInUse {
        own_beside_loop: (own - of_loop).max(0.0),
        others: others(span, own)?,
    })
}

/// Mean number of cores that other processes use, if this process and its children use `own`.
fn others(span: &Span<'_>, own: f64) -> Option<f64> {
    let usable = span.of(&HOST_CPU_USABLE, &Scope::Host, &[]).mean()?;
    let all = usable * span.of(&HOST_CPU_UTILIZATION, &Scope::Host, &[]).mean()?;
    Some((all - own).max(0.0))
}

/// Numbers of ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct RankCounts {
    /// Number of ranks of the run; 0 or 1 if there are no others.
    pub in_run: u32,
    /// Ranks of the run on the machine; `None` if unknown.
    pub on_node: Option<u32>,
}

/// The machine of a rank, and the other ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct RankNode<'a> {
    /// The GPUs that the process may use.
    pub gpus: &'a [GpuRecord],
    /// The GPU that this rank computes on.
    pub compute_gpu: Option<ComputeGpu>,
    /// Numbers of ranks.
    pub ranks: RankCounts,
}

/// Divides the cores that other processes use into those of the other ranks, which use as many as this one,
/// and those of other programs.
fn divide_others(others: f64, own: f64, node: RankNode<'_>) -> (Option<f64>, f64) {
    let Some(ranks) = node.ranks.on_node.filter(|ranks| *ranks > 1) else {
        return (None, others);
    };
    let of_ranks = others.min(f64::from(ranks - 1) * own);
    (Some(of_ranks), others - of_ranks)
}

/// Share of the time of `part` in which the training thread was runnable: it ran, or waited for a core.
pub fn training_thread_runnable_share(history: &ReadingSeries, part: Part) -> Option<f64> {
    let span = history.between(part.from_s, part.to_s);
    let consumer = Scope::Thread(attributes::CONSUMER.into());
    let ran = span.of(&THREAD_CPU_TIME, &consumer, &[]).rate()?;
    let waited = span.of(&THREAD_RUN_QUEUE_TIME, &consumer, &[]).rate()?;
    Some((ran + waited).min(1.0))
}

/// The available and used resources in `part`.
#[expect(clippy::too_many_lines, reason = "one record, field by field")]
pub fn resources(history: &ReadingSeries, part: Part, node: RankNode<'_>) -> ResourcesRecord {
    let span = history.between(part.from_s, part.to_s);
    // Memory is read so rarely that a short part may have no reading.
    let until_end = history.between(0.0, part.to_s);
    let consumer = Scope::Thread(attributes::CONSUMER.into());
    let percent = |share: f64| 100.0 * share;
    let ratio = |part: Option<f64>, whole: Option<f64>| {
        let whole = whole.filter(|whole| *whole > 0.0)?;
        Some(part? / whole)
    };
    let (growing, growth) = memory_growth(&span, part).unzip();
    let cores_used = cores_of_tree(&span);
    let divided = cores_used.and_then(|own| Some(divide_others(others(&span, own)?, own, node)));
    let (other_ranks_cores, others_cores) = divided.unzip();
    ResourcesRecord {
        seconds: span.seconds(),
        gpus: ordinals(history)
            .map(|ordinal| gpu(&span, ordinal, node.gpus))
            .collect(),
        compute_gpu: node.compute_gpu,
        cores_used,
        cores_usable: span.of(&HOST_CPU_USABLE, &Scope::Host, &[]).mean(),
        other_ranks_cores: other_ranks_cores.flatten(),
        others_cores,
        runnable_threads: span.of(&HOST_THREADS_RUNNABLE, &Scope::Host, &[]).mean(),
        consumer_run_queue_pct: span
            .of(&THREAD_RUN_QUEUE_TIME, &consumer, &[])
            .rate()
            .map(percent),
        throttled_pct: ratio(
            span.of(&CGROUP_CPU_THROTTLED_PERIODS, &Scope::Cgroup, &[])
                .rate(),
            span.of(&CGROUP_CPU_PERIODS, &Scope::Cgroup, &[]).rate(),
        )
        .map(percent),
        cpu_pressure_pct: pressure(&span, attributes::STALLED_CPU),
        io_pressure_pct: pressure(&span, attributes::STALLED_IO),
        memory_pressure_pct: pressure(&span, attributes::STALLED_MEMORY),
        gil_wait_ms: ratio(
            span.of(&GIL_WAIT_TIME, &Scope::Process, &[]).rate(),
            span.of(&GIL_WAITS, &Scope::Process, &[]).rate(),
        )
        .map(|seconds| seconds * 1e3),
        gc_pct: span
            .rate_of_all(&GC_PAUSE_TIME, &Scope::Process)
            .map(percent),
        gc_longest_ms: span
            .of(&GC_PAUSE_LONGEST, &Scope::Process, &[])
            .max()
            .map(|seconds| seconds * 1e3),
        consumer_ipc: ratio(
            span.of(&PERF_INSTRUCTIONS, &consumer, &[]).rate(),
            span.of(&PERF_CYCLES, &consumer, &[]).rate(),
        ),
        memory_bytes: memory(&span, &PROCESS_MEMORY_USAGE).map(|of| of.whole_tree),
        memory_proportional_bytes: memory(&span, &PROCESS_MEMORY_PROPORTIONAL)
            .map(|of| of.whole_tree),
        children_memory_bytes: memory(&until_end, &PROCESS_MEMORY_PROPORTIONAL)
            .and_then(|of| of.children),
        memory_available_bytes: memory_available(&until_end, node),
        other_threads_cores: other_threads(&span),
        children_cores: cores_of_children(&span),
        memory_growth_per_step: growth,
        memory_growth_of: growing,
        memory_growth_cause: None,
        requested_bytes_per_s: rate_of_tree(&span, &PROCESS_IO_REQUESTED, attributes::DISK_READ),
        disk_read_bytes_per_s: rate_of_tree(&span, &PROCESS_DISK_IO, attributes::DISK_READ),
        refault_bytes_per_s: container_else_machine(|scope| {
            span.of(&PAGE_CACHE_REFAULTS, scope, &[]).rate()
        }),
        swapped_in_per_s: span
            .of(&HOST_PAGING_OPERATIONS, &Scope::Host, attributes::PAGING_IN)
            .rate(),
        cpu_frequency_hz: span.of(&HOST_CPU_FREQUENCY, &Scope::Host, &[]).mean(),
        processes: span.of(&PROCESS_COUNT, &Scope::Tree, &[]).mean(),
        mounts: mounts(history, &span),
        disk_utilization_pct: busiest_disk(history, &span).map(percent),
        network_receive_bytes_per_s: span
            .of(&NETWORK_IO, &Scope::Host, attributes::NETWORK_RECEIVE)
            .rate(),
    }
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

/// Whether the children of the process are read in this run: `scopes` are those of all readings.
fn has_tree<'a>(mut scopes: impl Iterator<Item = &'a Scope>) -> bool {
    scopes.any(|scope| *scope == Scope::Tree)
}

/// Growth per second of a counter of this process and its children; of this process alone if its children are not read.
fn rate_of_tree(span: &Span<'_>, metric: &'static Metric, attributes: Attributes) -> Option<f64> {
    let own = span.of(metric, &Scope::Process, attributes).rate();
    if !has_tree(span.keys().map(|key| &key.scope)) {
        return own;
    }
    own.zip(rate_of_children(span, metric, attributes))
        .map(|(own, children)| own + children)
        .or_else(|| span.of(metric, &Scope::Tree, attributes).rate())
}

/// Growth per second of a counter of the children of this process and their descendants.
///
/// The tree is read less often than the process. So its growth is compared with that of the process between the same
/// readings. If parts of the run are left out, such as replayed steps, the tree's readings may also cover these.
fn rate_of_children(
    span: &Span<'_>,
    metric: &'static Metric,
    attributes: Attributes,
) -> Option<f64> {
    let of = |scope| span.of(metric, &scope, attributes);
    let rate = of(Scope::Tree).rate_beyond(of(Scope::Process))?;
    Some(rate.max(0.0))
}

/// Mean number of cores that this process and its children use.
fn cores_of_tree(span: &Span<'_>) -> Option<f64> {
    sum_of_modes(|mode| rate_of_tree(span, &PROCESS_CPU_TIME, mode))
}

/// Mean number of cores that the children of this process and their descendants use; `None` if they are not read.
fn cores_of_children(span: &Span<'_>) -> Option<f64> {
    sum_of_modes(|mode| rate_of_children(span, &PROCESS_CPU_TIME, mode))
}

/// Sum of the rates of CPU time in user mode and in the kernel.
fn sum_of_modes(rate: impl Fn(Attributes) -> Option<f64>) -> Option<f64> {
    Some(rate(attributes::CPU_USER)? + rate(attributes::CPU_SYSTEM)?)
}

/// The value of the process with its children, if they are read in this run: `scopes` are those of all
/// readings. Otherwise that of the process alone.
pub fn tree_else_process<'a, T>(
    scopes: impl Iterator<Item = &'a Scope>,
    value: impl Fn(&Scope) -> T,
) -> T {
    value(if has_tree(scopes) {
        &Scope::Tree
    } else {
        &Scope::Process
    })
}

/// The value of the container if it is known, otherwise that of the machine.
pub fn container_else_machine<T>(value: impl Fn(&Scope) -> Option<T>) -> Option<T> {
    value(&Scope::Cgroup).or_else(|| value(&Scope::Host))
}

/// Pressure of the container if it is known, otherwise of the machine, in percent of time.
fn pressure(span: &Span<'_>, which: Attributes) -> Option<f64> {
    let rate = container_else_machine(|scope| span.of(&PRESSURE_TIME, scope, which).rate())?;
    Some(100.0 * rate)
}

/// Mean number of cores that this process uses, without the thread that receives the batches and without the
/// agent's threads.
fn other_threads(span: &Span<'_>) -> Option<f64> {
    let rate = |scope: &Scope| span.of(&THREAD_CPU_TIME, scope, &[]).rate();
    let all = rate(&Scope::Process)?;
    let consumer = rate(&Scope::Thread(attributes::CONSUMER.into()))?;
    let agent = rate(&Scope::Thread(attributes::AGENT.into())).unwrap_or(0.0);
    Some((all - consumer - agent).max(0.0))
}

/// Memory at one reading, in bytes.
#[derive(Debug, Clone, Copy)]
struct TreeMemory {
    /// Of this process and its children, or of this process alone if its children are not read.
    whole_tree: f64,
    /// Of the children; `None` if there were none, or if they are not read.
    children: Option<f64>,
}

/// The memory at the last reading at which there were children. At the last reading of a run, the workers have often
/// ended. If there never were children, that of the last reading.
fn memory(span: &Span<'_>, metric: &'static Metric) -> Option<TreeMemory> {
    let points = |scope| span.of(metric, &scope, &[]).points();
    let own: Vec<(f64, f64)> = points(Scope::Process).collect();
    let with_children = points(Scope::Tree).filter_map(|(at, whole_tree)| {
        let (_, own) = own
            .iter()
            .find(|(own_at, _)| own_at.total_cmp(&at).is_eq())?;
        let children = Some(whole_tree - own).filter(|bytes| *bytes > 0.0)?;
        Some(TreeMemory {
            whole_tree,
            children: Some(children),
        })
    });
    with_children.last().or_else(|| {
        let scopes = span.keys().map(|key| &key.scope);
        let last = tree_else_process(scopes, |scope| span.of(metric, scope, &[]).last())?;
        Some(TreeMemory {
            whole_tree: last,
            children: None,
        })
    })
}

/// Memory that this rank can still use, if all ranks of the machine take as much as this one.
fn memory_available(span: &Span<'_>, node: RankNode<'_>) -> Option<f64> {
    let ranks = f64::from(node.ranks.on_node.unwrap_or(1).max(1));
    let machine = span.of(&HOST_MEMORY_AVAILABLE, &Scope::Host, &[]).last()?;
    let Some(limit) = span.of(&CGROUP_MEMORY_LIMIT, &Scope::Cgroup, &[]).last() else {
        return Some(machine / ranks);
    };
    let used = memory(span, &PROCESS_MEMORY_PROPORTIONAL)?.whole_tree;
    Some((machine / ranks).min((limit / ranks - used).max(0.0)))
}

/// Growth of memory, and its scope. The process's own memory comes first, because that of its children
/// changes with their number. Pages of files do not count, because the kernel adds and drops them at any
/// time.
fn memory_growth(span: &Span<'_>, part: Part) -> Option<(MemoryScope, Estimate)> {
    let steps_per_s = part.steps_per_s.filter(|rate| *rate > 0.0)?;
    let scopes = [
        (MemoryScope::Process, Scope::Process),
        (MemoryScope::Tree, Scope::Tree),
    ];
    scopes.into_iter().find_map(|(memory_scope, scope)| {
        let mut points: Vec<(f64, f64)> = span
            .of(&PROCESS_MEMORY_ANONYMOUS, &scope, &[])
            .points()
            .map(|(at_s, bytes)| (at_s * steps_per_s, bytes))
            .collect();
        // The last reading may be after the loop, when the program has freed its data.
        points.pop();
        let steps = points.last()?.0 - points.first()?.0;
        let growth = growth(&points)
            .ok()
            .filter(|growth| growth.value * steps >= LEAST_GROWTH)?;
        Some((memory_scope, growth))
    })
}

/// The network and FUSE file systems that had files open.
fn mounts(history: &ReadingSeries, span: &Span<'_>) -> Vec<MountUse> {
    let keys = (history.keys()).filter(|key| *key.metric == MOUNT_OPEN_FILES);
    let used = keys.filter_map(|key| {
        let of = |metric, attributes| span.of(metric, &key.scope, attributes);
        let Scope::Mount(path) = &key.scope else {
            return None;
        };
        let open_files = of(&MOUNT_OPEN_FILES, key.attributes).mean()?;
        let reads_per_s = of(&MOUNT_READ_OPERATIONS, &[]).rate();
        let per_read = |metric, attributes| {
            let reads = reads_per_s.filter(|reads| *reads > 0.0)?;
            Some(of(metric, attributes).rate()? / reads)
        };
        let milliseconds = |part| Some(1e3 * per_read(&MOUNT_READ_TIME, part)?);
        Some(MountUse {
            path: path.to_string(),
            file_system: attribute(key.attributes, "system.filesystem.type")?.to_owned(),
            open_files,
            reads_per_s,
            read_ms: milliseconds(attributes::PART_EXECUTE),
            round_trip_ms: milliseconds(attributes::PART_ROUND_TRIP),
            bytes_per_s: of(&MOUNT_READ_IO, &[]).rate(),
            retransmitted_pct: per_read(&MOUNT_RETRANSMISSIONS, &[]).map(|share| 100.0 * share),
        })
    });
    used.collect()
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

fn busiest_disk(history: &ReadingSeries, span: &Span<'_>) -> Option<f64> {
    history
        .keys()
        .filter(|key| *key.metric == DISK_UTILIZATION)
        .filter_map(|key| {
            span.of(&DISK_UTILIZATION, &key.scope, key.attributes)
                .mean()
        })
        .reduce(f64::max)
}

/// Share of the time in which the GPU of this rank executes kernels or copies. Of several GPUs, the busiest counts.
///
/// `None` if it is unknown whether the rank needs this work: with other ranks, because a kernel also runs while it
/// waits for them, and without a GPU that almost only this rank has memory on, because the driver does not show whose
/// kernels ran.
pub(super) fn gpu_busy_share(resources: &ResourcesRecord, ranks_in_run: u32) -> Option<f64> {
    if ranks_in_run > 1 {
        return None;
    }
    let is_own = |gpu: &&GpuUse| (gpu.others_memory_pct).is_some_and(|pct| pct < OTHERS_MEMORY_PCT);
    let busy = (resources.own_gpus().filter(is_own)).filter_map(|gpu| gpu.any_kernel_pct);
    busy.reduce(f64::max).map(|pct| pct / 100.0)
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

/// The value of one attribute.
fn attribute(attributes: Attributes, name: &str) -> Option<&'static str> {
    Some(attributes.iter().find(|(key, _)| *key == name)?.1)
}

/// SM utilization as a share, and its source.
fn sm(span: &Span<'_>, ordinal: u32) -> Option<(f64, Option<&'static str>)> {
    let scope = Scope::Gpu(ordinal);
    attributes_of(span, &GPU_SM_UTILIZATION, &scope)
        .into_iter()
        .find_map(|attributes| {
            let mean = span.of(&GPU_SM_UTILIZATION, &scope, attributes).mean()?;
            Some((mean, attribute(attributes, "source")))
        })
}

fn gpu(span: &Span<'_>, ordinal: u32, gpus: &[GpuRecord]) -> GpuUse {
    let scope = Scope::Gpu(ordinal);
    let of = |metric, attributes| span.of(metric, &scope, attributes).mean();
    let sm = sm(span, ordinal);
    let is_decoder = |engine| matches!(GpuActivity::of_engine(engine), GpuActivity::Decoder(_));
    let decoders: Vec<f64> = attributes_of(span, &GPU_ENGINE_UTILIZATION, &scope)
        .into_iter()
        .filter(|attributes| attribute(attributes, "engine").is_some_and(is_decoder))
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
                attribute(attributes, "reason")?,
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
            .map(|(own, others)| 100.0 * others / (own + others)),
    }
}

#[cfg(test)]
#[path = "resources_tests.rs"]
mod tests;
