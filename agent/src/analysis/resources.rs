//! Computes the available and used resources of a run from its readings: a pure function.
//!
//! Each value is a mean, a rate or a maximum over one part of the run, usually the steady state of its main
//! loop. A value without readings is absent.

mod gpus;
mod memory;
mod mounts;
mod process_tree;

use self::gpus::gpus;
use self::memory::{memory_available, memory_growth, tree_memory};
use self::mounts::mounts;
use self::process_tree::{cores_of_children, cores_of_tree, is_tree_read, rate_of_tree};
use crate::model::metric::{
    CGROUP_CPU_PERIODS, CGROUP_CPU_THROTTLED_PERIODS, DISK_UTILIZATION, GC_PAUSE_LONGEST,
    GC_PAUSE_TIME, GIL_WAIT_TIME, GIL_WAITS, HOST_CPU_FREQUENCY, HOST_CPU_USABLE,
    HOST_CPU_UTILIZATION, HOST_PAGING_OPERATIONS, HOST_THREADS_RUNNABLE, NETWORK_IO,
    PAGE_CACHE_REFAULTS, PERF_CYCLES, PERF_INSTRUCTIONS, PRESSURE_TIME, PROCESS_COUNT,
    PROCESS_DISK_IO, PROCESS_IO_REQUESTED, PROCESS_MEMORY_PROPORTIONAL, PROCESS_MEMORY_USAGE,
    THREAD_CPU_TIME, THREAD_RUN_QUEUE_TIME,
};
use crate::model::reading::Attributes;
use crate::model::reading_series::Span;
use crate::model::record::{ComputeGpu, GpuRecord, ResourcesRecord};
use crate::model::{ReadingSeries, Scope, attributes};

pub(super) use self::gpus::gpu_busy_share;
pub use self::gpus::sm_utilization_pct;

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

/// Mean cores in use in a part of the run; `None` if a reading is missing. Without readings of the children, their cores
/// would count as those of other processes.
pub fn cores_in_use(span: &Span<'_>) -> Option<CoresInUse> {
    let own = cores_of_tree(span).filter(|_| is_tree_read(span))?;
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

impl RankCounts {
    /// Ranks that share the machine, at least this one.
    fn sharing_node(self) -> u32 {
        self.on_node.unwrap_or(1).max(1)
    }
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
    let ranks = node.ranks.sharing_node();
    if ranks == 1 {
        return (None, others);
    }
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
    let steps_per_s = part.steps_per_s.filter(|rate| *rate > 0.0);
    let growth = steps_per_s.and_then(|rate| memory_growth(&span, rate));
    let (growing, growth) = growth.unzip();
    let cores_used = cores_of_tree(&span);
    let read = &[attributes::DISK_READ];
    let divided = cores_used.and_then(|own| Some(divide_others(others(&span, own)?, own, node)));
    let (other_ranks_cores, others_cores) = divided.unzip();
    ResourcesRecord {
        seconds: span.seconds(),
        gpus: gpus(history, &span, node.gpus),
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
        memory_bytes: tree_memory(&span, &PROCESS_MEMORY_USAGE).map(|of| of.whole_tree),
        memory_proportional_bytes: tree_memory(&span, &PROCESS_MEMORY_PROPORTIONAL)
            .map(|of| of.whole_tree),
        children_memory_bytes: tree_memory(&until_end, &PROCESS_MEMORY_PROPORTIONAL)
            .and_then(|of| of.children),
        memory_available_bytes: memory_available(&until_end, node.ranks.sharing_node()),
        other_threads_cores: other_threads(&span),
        children_cores: cores_of_children(&span),
        memory_growth_per_step: growth,
        memory_growth_of: growing,
        memory_growth_cause: None,
        requested_bytes_per_s: rate_of_tree(&span, &PROCESS_IO_REQUESTED, read),
        disk_read_bytes_per_s: rate_of_tree(&span, &PROCESS_DISK_IO, read),
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

/// The value of the process with its children, if they are read in this run: `scopes` are those of all
/// readings. Otherwise that of the process alone.
pub fn tree_else_process<'a, T>(
    mut scopes: impl Iterator<Item = &'a Scope>,
    value: impl Fn(&Scope) -> T,
) -> T {
    let has_tree = scopes.any(|scope| *scope == Scope::Tree);
    value(if has_tree {
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

#[cfg(test)]
mod tests;
