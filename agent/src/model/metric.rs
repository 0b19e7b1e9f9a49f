//! Declares every metric once: name, unit, kind, help.
//!
//! All other forms of a metric are generated from these declarations, so all forms agree: the JSON name, the
//! OpenTelemetry name and unit, the Prometheus name and help, the table in `docs/metrics.md`, and the
//! dashboards. A name comes from OpenTelemetry's semantic conventions if they define one. Otherwise it begins
//! with `headspace.`. Units are UCUM.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How a metric's values combine over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricKind {
    /// A total that only grows while the process lives. The later value replaces the earlier one.
    Counter,
    /// A level at one moment. Its mean over time is meaningful.
    Gauge,
    /// A level at one moment that adds up over processes (bytes, threads).
    UpDownCounter,
    /// The highest value since the previous reading. The highest of several values replaces them.
    Maximum,
    /// A distribution of durations since the run began.
    Histogram,
}

/// A value and the length of the time interval that it covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedValue {
    /// The value, in the metric's unit.
    pub value: f64,
    /// Length of the interval.
    pub seconds: f64,
}

impl MetricKind {
    /// Merges the values of two neighbouring time intervals.
    ///
    /// A total keeps its last value, a maximum the higher one, and a level its mean over time.
    pub fn merge(self, earlier: TimedValue, later: TimedValue) -> TimedValue {
        let seconds = earlier.seconds + later.seconds;
        let value = match self {
            Self::Maximum => earlier.value.max(later.value),
            Self::Gauge | Self::UpDownCounter if seconds > 0.0 => {
                (earlier.value * earlier.seconds + later.value * later.seconds) / seconds
            }
            // A level without a duration has no mean.
            Self::Counter | Self::Histogram | Self::Gauge | Self::UpDownCounter => later.value,
        };
        TimedValue { value, seconds }
    }
}

/// The moment from which a total counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Since {
    /// The beginning of the run, for totals that headspace itself counts.
    #[default]
    Run,
    /// The start of the process, for totals of the process and its children. The total of a single
    /// thread may have begun at a later, unknown moment.
    Process,
    /// An unknown moment before the run: the start of the machine or of a driver, or the creation of
    /// a cgroup.
    Before,
}

/// The declaration of one metric. Metrics are declared only in this module; other code refers to their
/// constants. A metric is identified by its name, and metrics are ordered by their names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// Dotted lower-case name, as OpenTelemetry writes it.
    pub name: &'static str,
    /// UCUM unit; `1` is a ratio, `{thing}` counts things.
    pub unit: &'static str,
    /// How values combine over time.
    pub kind: MetricKind,
    /// Kinds of [`Scope`](super::Scope) on which the metric is measured, at least one.
    pub scopes: &'static [&'static str],
    /// Names of the attributes that distinguish the metric's values in one scope. Empty if there is only one
    /// value.
    pub attributes: &'static [&'static str],
    /// The moment from which the metric counts, if it is a total.
    pub since: Since,
    /// Definition for the user, mostly one sentence, without a final full stop.
    pub help: &'static str,
}

impl Metric {
    /// The metric with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        static BY_NAME: LazyLock<HashMap<&str, &Metric>> =
            LazyLock::new(|| ALL.iter().map(|metric| (metric.name, *metric)).collect());
        BY_NAME.get(name).copied()
    }
}

macro_rules! metrics {
    ($($(#[$meta:meta])* $id:ident = $kind:ident $name:literal [$unit:literal]
        on $($scope:literal)+ $(by $($attribute:literal)+)? $(since $since:ident)? =>
        $help:literal;)*) => {
        $(
            #[doc = $help]
            #[allow(clippy::doc_markdown, reason = "the text is for people who read no Rust")]
            $(#[$meta])*
            pub static $id: Metric = Metric {
                name: $name,
                unit: $unit,
                kind: MetricKind::$kind,
                scopes: &[$($scope),+],
                attributes: &[$($($attribute),+)?],
                since: metrics!(@since $($since)?),
                help: $help,
            };
        )*

        /// All metrics, in the order of the documentation table.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
    (@since) => { Since::Run };
    (@since $since:ident) => { Since::$since };
}

metrics! {
    PROCESS_CPU_TIME = Counter "process.cpu.time" ["s"] on "process" "tree" by "cpu.mode" since Process =>
        "CPU seconds used, by `cpu.mode` (user, system)";
    PROCESS_MEMORY_USAGE = UpDownCounter "process.memory.usage" ["By"] on "process" "tree" =>
        "Resident memory. In a tree, a page that several processes share counts once for each of them";
    PROCESS_MEMORY_ANONYMOUS = UpDownCounter "headspace.process.memory.anonymous" ["By"] on "process" "tree" =>
        "Resident memory that is backed by no file and no shared segment. A memory leak increases it";
    PROCESS_MEMORY_VIRTUAL = UpDownCounter "process.memory.virtual" ["By"] on "process" =>
        "Size of the address space that the process has mapped";
    PROCESS_MEMORY_PROPORTIONAL = UpDownCounter "headspace.process.memory.proportional" ["By"] on "process" "tree" =>
        "Proportional set size (PSS): resident memory, with each page divided by the number of processes that share it";
    PROCESS_THREAD_COUNT = UpDownCounter "process.thread.count" ["{thread}"] on "process" "tree" =>
        "Number of threads";
    PROCESS_FILE_DESCRIPTOR_COUNT = UpDownCounter "process.unix.file_descriptor.count" ["{file_descriptor}"] on "process" "tree" =>
        "Number of open file descriptors";
    PROCESS_COUNT = UpDownCounter "headspace.process.count" ["{process}"] on "tree" =>
        "Number of processes in the tree: the training process and all its descendants";
    PROCESS_DISK_IO = Counter "process.disk.io" ["By"] on "process" "tree" by "disk.io.direction" since Process =>
        "Bytes read from and written to storage, by `disk.io.direction`. Includes children that have exited";
    PROCESS_IO_REQUESTED = Counter "headspace.process.io.requested" ["By"] on "process" "tree" by "disk.io.direction" since Process =>
        "Bytes requested by read and write calls, by `disk.io.direction`. Includes page-cache hits and children that have exited";
    PROCESS_CONTEXT_SWITCHES = Counter "process.context_switches" ["{context_switch}"] on "process" "thread" by "process.context_switch.type" since Process =>
        "Number of context switches, by `process.context_switch.type`";
    PROCESS_PAGING_FAULTS = Counter "process.paging.faults" ["{fault}"] on "process" "tree" by "system.paging.fault.type" since Process =>
        "Number of page faults, by `system.paging.fault.type` (a minor fault reads no disk)";

    THREAD_CPU_TIME = Counter "headspace.thread.cpu.time" ["s"] on "process" "thread" =>
        "CPU time of the threads that have their own perf counters (task clock)";
    THREAD_PAGE_FAULTS = Counter "headspace.thread.page_faults" ["{fault}"] on "process" "thread" =>
        "Number of page faults, minor and major, in user mode, of the threads that have their own perf counters";
    THREAD_RUN_QUEUE_TIME = Counter "headspace.thread.run_queue.time" ["s"] on "process" "thread" since Before =>
        "Time that threads were ready to run but waited for a core";
    PERF_INSTRUCTIONS = Counter "headspace.perf.instructions" ["{instruction}"] on "process" "thread" =>
        "Number of instructions retired";
    PERF_CYCLES = Counter "headspace.perf.cycles" ["{cycle}"] on "process" "thread" =>
        "Number of core cycles while the thread ran";
    PERF_CACHE_REFERENCES = Counter "headspace.perf.cache.references" ["{reference}"] on "process" "thread" =>
        "Number of accesses to the last cache level that the processor counts";
    PERF_CACHE_MISSES = Counter "headspace.perf.cache.misses" ["{miss}"] on "process" "thread" =>
        "Number of accesses that missed the last cache level and went to memory";
    PERF_STALLED_CYCLES = Counter "headspace.perf.stalled_cycles" ["{cycle}"] on "process" "thread" by "end" =>
        "Number of stalled cycles, by `end` of the processor's pipeline (front: waits for instructions; back: waits for data)";
    PERF_IPC = Gauge "headspace.perf.ipc" ["{instruction}/{cycle}"] on "process" "thread" =>
        "Instructions per cycle since the previous reading. Below 1, memory is usually the limit";
    PERF_CACHE_MISS_RATIO = Gauge "headspace.perf.cache.miss_ratio" ["1"] on "process" "thread" =>
        "Ratio of misses to accesses of the last cache level since the previous reading";

    GIL_WAITS = Counter "headspace.gil.waits" ["{wait}"] on "process" =>
        "Number of times that the GIL probe, a thread of the agent, requested Python's interpreter lock";
    GIL_WAIT_TIME = Counter "headspace.gil.wait.time" ["s"] on "process" =>
        "Time that the GIL probe waited for Python's interpreter lock";
    GIL_WAIT_LONGEST = Maximum "headspace.gil.wait.longest" ["s"] on "process" =>
        "Longest wait of the GIL probe since the previous reading";
    GC_COLLECTIONS = Counter "cpython.gc.collections" ["{collection}"] on "process" by "cpython.gc.generation" =>
        "Number of runs of Python's garbage collector, by `cpython.gc.generation`";
    GC_COLLECTED = Counter "cpython.gc.collected_objects" ["{object}"] on "process" by "cpython.gc.generation" =>
        "Number of objects that Python's garbage collector freed, by `cpython.gc.generation`";
    GC_UNCOLLECTABLE = Counter "cpython.gc.uncollectable_objects" ["{object}"] on "process" by "cpython.gc.generation" =>
        "Number of objects that Python's garbage collector could not free, by `cpython.gc.generation`";
    GC_PAUSE_TIME = Counter "headspace.gc.pause.time" ["s"] on "process" by "cpython.gc.generation" =>
        "Time that Python's garbage collector paused all Python threads, by `cpython.gc.generation`";
    GC_PAUSE_LONGEST = Maximum "headspace.gc.pause.longest" ["s"] on "process" =>
        "Longest pause by Python's garbage collector since the previous reading";

    HOST_CPU_UTILIZATION = Gauge "headspace.host.cpu.utilization" ["1"] on "host" =>
        "Utilisation of the cores that this process may use, by all programs, since the previous tick";
    HOST_CPU_USABLE = Gauge "headspace.host.cpu.usable" ["{cpu}"] on "host" =>
        "Number of cores that this process may use: the smaller of its affinity mask and its cgroup quota";
    HOST_CPU_ONLINE = UpDownCounter "system.cpu.logical.count" ["{cpu}"] on "host" =>
        "Number of cores of the machine that are online";
    HOST_CPU_AFFINITY = Gauge "headspace.host.cpu.affinity" ["{cpu}"] on "host" =>
        "Number of cores in the affinity mask of this process";
    HOST_CPU_QUOTA = Gauge "headspace.host.cpu.quota" ["{cpu}"] on "host" =>
        "CPU quota of the tightest cgroup above this process, in cores. Absent without a limit";
    HOST_THREADS_RUNNABLE = Gauge "headspace.host.threads.runnable" ["{thread}"] on "host" =>
        "Number of threads on the whole machine that run or wait for a core, without the thread that reads this value";
    HOST_MEMORY_AVAILABLE = UpDownCounter "system.linux.memory.available" ["By"] on "host" =>
        "Memory that programs can still use without swapping: free memory, and most of the page cache (MemAvailable)";
    HOST_MEMORY_STATE = UpDownCounter "system.memory.usage" ["By"] on "host" by "system.memory.state" =>
        "Memory of the machine, by `system.memory.state` (free: used for nothing; cached: the page cache, with shared memory)";
    HOST_PAGING_OPERATIONS = Counter "system.paging.operations" ["{operation}"] on "host" by "system.paging.direction" since Before =>
        "Number of pages that the machine moved between memory and swap, by `system.paging.direction` (in: from swap; out: to swap)";
    PAGE_CACHE_REFAULTS = Counter "headspace.page_cache.refaults" ["By"] on "host" "cgroup" since Before =>
        "Bytes of files that were read from storage again after the kernel had evicted them from the page cache: the files in use do not fit into memory";
    HOST_CPU_FREQUENCY = Gauge "system.cpu.frequency" ["Hz"] on "host" =>
        "Clock frequency of the cores that this process may use, averaged over up to eight of them. Absent if the kernel does not report it, as on most virtual machines";
    PRESSURE_TIME = Counter "headspace.pressure.time" ["s"] on "host" "cgroup" by "resource" "stalled" since Before =>
        "Time that tasks waited for a `resource` (cpu, io, memory), by `stalled` (some: at least one task waited; full: all tasks waited)";
    NETWORK_IO = Counter "system.network.io" ["By"] on "host" by "network.io.direction" since Before =>
        "Bytes transferred by the network interfaces of this network namespace, without loopback, by `network.io.direction` (receive, transmit)";
    CGROUP_CPU_PERIODS = Counter "headspace.cgroup.cpu.periods" ["{period}"] on "cgroup" since Before =>
        "Number of CPU quota periods in which a thread of the cgroup was ready to run";
    CGROUP_CPU_THROTTLED_PERIODS = Counter "headspace.cgroup.cpu.throttled.periods" ["{period}"] on "cgroup" since Before =>
        "Number of CPU quota periods in which the cgroup used up its quota";
    CGROUP_CPU_THROTTLED_TIME = Counter "headspace.cgroup.cpu.throttled.time" ["s"] on "cgroup" since Before =>
        "Time that the cgroup was throttled because its CPU quota was used up, summed over cores";
    CGROUP_MEMORY_USAGE = UpDownCounter "headspace.cgroup.memory.usage" ["By"] on "cgroup" =>
        "Memory charged to the cgroup, including page cache";
    CGROUP_MEMORY_LIMIT = UpDownCounter "headspace.cgroup.memory.limit" ["By"] on "cgroup" =>
        "Tightest memory limit above this process. Absent without a limit";
    CGROUP_MEMORY_EVENTS = Counter "headspace.cgroup.memory.events" ["{event}"] on "cgroup" by "event" since Before =>
        "Number of memory events of the cgroup, by `event` (high: processes were slowed down; max: the limit was reached; oom: an allocation failed; oom_kill: a process was killed)";
    DISK_IO = Counter "system.disk.io" ["By"] on "disk" by "disk.io.direction" since Before =>
        "Bytes that the device read and wrote for all programs, by `disk.io.direction`";
    DISK_OPERATIONS = Counter "system.disk.operations" ["{operation}"] on "disk" by "disk.io.direction" since Before =>
        "Number of operations that the device completed, by `disk.io.direction`";
    DISK_OPERATION_TIME = Counter "system.disk.operation_time" ["s"] on "disk" by "disk.io.direction" since Before =>
        "Time of completed operations of the device, summed over operations, by `disk.io.direction`";
    DISK_UTILIZATION = Gauge "headspace.disk.utilization" ["1"] on "disk" =>
        "Share of time since the previous reading in which the device had at least one request. A device that serves requests in parallel may have capacity left at 1";

    MOUNT_OPEN_FILES = UpDownCounter "headspace.mount.open_files" ["{file}"] on "mount" by "system.filesystem.type" =>
        "Number of open files, and working directories, of this process and its descendants on a network or FUSE file system, by `system.filesystem.type`";
    MOUNT_READ_OPERATIONS = Counter "headspace.mount.read.operations" ["{operation}"] on "mount" since Before =>
        "Number of read requests that the NFS client completed on this mount, for all programs";
    MOUNT_READ_IO = Counter "headspace.mount.read.io" ["By"] on "mount" since Before =>
        "Bytes that the NFS client received from the server in answer to read requests on this mount, for all programs";
    MOUNT_READ_TIME = Counter "headspace.mount.read.time" ["s"] on "mount" by "part" since Before =>
        "Time of read requests of the NFS client on this mount, summed over requests, by `part` (round_trip: from sending to the answer; execute: from the creation of the request to its end)";
    MOUNT_RETRANSMISSIONS = Counter "headspace.mount.retransmissions" ["{operation}"] on "mount" since Before =>
        "Number of read requests that the NFS client sent again on this mount, because no answer came";

    GPU_UTILIZATION = Gauge "hw.gpu.utilization" ["1"] on "gpu" by "hw.gpu.task" =>
        "Share of the driver's last sampling period in which the GPU executed work of a `hw.gpu.task` (general, encoder, decoder, jpeg, ofa), over all engines of that kind. The general value counts kernels and copies, and does not show how many SMs were busy";
    GPU_SAMPLING_PERIOD = Gauge "headspace.gpu.sampling.period" ["s"] on "gpu" by "hw.gpu.task" =>
        "The driver's sampling period for GPU utilisation, by `hw.gpu.task`";
    GPU_SM_UTILIZATION = Gauge "headspace.gpu.sm.utilization" ["1"] on "gpu" by "source" =>
        "Share of the SMs (streaming multiprocessors) that were busy, averaged over time, by `source` of the value (gpm, gpm_mig)";
    GPU_SM_OCCUPANCY = Gauge "headspace.gpu.sm.occupancy" ["1"] on "gpu" =>
        "Resident warps on the SMs, as a share of the maximum";
    GPU_TENSOR_UTILIZATION = Gauge "headspace.gpu.tensor.utilization" ["1"] on "gpu" =>
        "Share of time in which the tensor cores were busy";
    GPU_DRAM_UTILIZATION = Gauge "headspace.gpu.dram.utilization" ["1"] on "gpu" =>
        "Used bandwidth of the GPU's memory, as a share of the maximum";
    GPU_ENGINE_UTILIZATION = Gauge "headspace.gpu.engine.utilization" ["1"] on "gpu" by "engine" =>
        "Share of time in which a single `engine` was busy (nvdec0, nvjpg0, ofa0 and so on)";
    GPU_MEMORY_USAGE = UpDownCounter "hw.gpu.memory.usage" ["By"] on "gpu" =>
        "GPU memory in use by all processes";
    GPU_MEMORY_LIMIT = UpDownCounter "hw.gpu.memory.limit" ["By"] on "gpu" =>
        "Total memory of the GPU";
    GPU_MEMORY_OWNED = UpDownCounter "headspace.gpu.memory.owned" ["By"] on "gpu" by "owner" =>
        "GPU memory in use, by `owner` (own: this process and its children; others: all other processes)";
    GPU_SM_OWNED = Gauge "headspace.gpu.process.utilization" ["1"] on "gpu" by "owner" =>
        "Share of the driver's sampling period in which kernels ran, by `owner` (own: this process and its children; others: all other processes)";
    GPU_IO = Counter "hw.gpu.io" ["By"] on "gpu" by "network.io.direction" since Before =>
        "Bytes transferred over PCIe, by `network.io.direction` (receive: into the GPU; transmit: out of the GPU). With GPM: since headspace began to read; otherwise since the driver was loaded";
    GPU_PCIE_GENERATION = Maximum "headspace.gpu.pcie.generation" ["1"] on "gpu" =>
        "Generation of the PCIe link to the GPU: the highest since the previous reading. An idle GPU uses a lower one to save power";
    GPU_PCIE_WIDTH = Maximum "headspace.gpu.pcie.width" ["{lane}"] on "gpu" =>
        "Number of lanes of the PCIe link to the GPU: the highest since the previous reading";
    GPU_POWER = Gauge "hw.power" ["W"] on "gpu" =>
        "Power draw, on most GPUs averaged over the last second";
    GPU_ENERGY = Counter "hw.energy" ["J"] on "gpu" since Before =>
        "Energy used since the driver was loaded";
    GPU_TEMPERATURE = Gauge "hw.temperature" ["Cel"] on "gpu" =>
        "Temperature of the GPU chip";
    GPU_CLOCK = Gauge "headspace.gpu.clock" ["Hz"] on "gpu" by "domain" =>
        "Clock frequency, by `domain` (sm, memory, video)";
    GPU_THROTTLED = Gauge "headspace.gpu.throttled" ["1"] on "gpu" by "reason" =>
        "Whether the clocks are throttled (0 or 1), by `reason` (power: the power cap; thermal: temperature; hardware: power brake or another slowdown). The mean is the share of time";
    GPU_ECC_ERRORS = Counter "headspace.gpu.ecc.errors" ["{error}"] on "gpu" by "severity" since Before =>
        "Number of memory errors since the driver was loaded, by `severity` (corrected, uncorrected)";

    LOOP_STEP_TIME = Histogram "headspace.loop.step.time" ["s"] on "loop" by "phase" =>
        "Time from the receipt of a batch to the receipt of the next batch of the same epoch, by `phase` (live: batches from the loader; settle: batches from the loader directly after a replay, which the verdict does not use; replay: batches from the cache; changed: batches from the loader while a what-if changes a stage, and until the loop has settled)";
    LOOP_WAIT_TIME = Histogram "headspace.loop.wait.time" ["s"] on "loop" by "phase" =>
        "Part of the step time in which the loop waits for a batch, by `phase`";
    LOOP_COMPUTE_TIME = Histogram "headspace.loop.compute.time" ["s"] on "loop" by "phase" =>
        "Part of the step time in which the loop processes a batch, by `phase`";
    LOOP_STEPS = Counter "headspace.loop.steps" ["{step}"] on "loop" by "phase" =>
        "Number of batches received, by `phase`";
    LOOP_SAMPLES = Counter "headspace.loop.samples" ["{sample}"] on "loop" by "phase" =>
        "Number of samples received, by `phase`. Absent if the batch size is unknown";
    LOOP_EPOCHS = Counter "headspace.loop.epochs" ["{epoch}"] on "loop" =>
        "Number of epochs that have ended";
    LOOP_FIRST_BATCH_TIME = Gauge "headspace.loop.first_batch.time" ["s"] on "loop" =>
        "Time from `iter()` to the first batch of the most recent epoch, including worker start-up";
    LOOP_BOUNDARY_TIME = Gauge "headspace.loop.boundary.time" ["s"] on "loop" =>
        "Time from the last batch of an epoch to the first batch of the next epoch, at the most recent boundary";

    STAGE_TIME = Histogram "headspace.stage.time" ["s"] on "stage" =>
        "Duration of a call of a stage";
    STAGE_ITEMS = Counter "headspace.stage.items" ["{item}"] on "stage" by "direction" =>
        "Number of items that a stage processed, by `direction` (in, out)";
    STAGE_FAILURES = Counter "headspace.stage.failures" ["{call}"] on "stage" =>
        "Number of calls of a stage that raised an exception";
    STAGE_IO = Counter "headspace.stage.io" ["By"] on "stage" =>
        "Bytes that a stage processed. Absent if the program does not report them";
    STAGE_CONCURRENCY = Gauge "headspace.stage.concurrency" ["{call}"] on "stage" =>
        "Maximum number of concurrent calls of a stage in one process: the declared number, or else the highest number observed";

    QUEUE_DEPTH = Gauge "headspace.queue.depth" ["{item}"] on "queue" =>
        "Number of items in a queue, averaged over the measurements since the previous reading";
    QUEUE_CAPACITY = Gauge "headspace.queue.capacity" ["{item}"] on "queue" =>
        "Maximum number of items in a queue. Absent if unknown";
    QUEUE_TIME = Counter "headspace.queue.time" ["s"] on "queue" =>
        "Time covered by the samples of a queue's depth";
    QUEUE_EMPTY_TIME = Counter "headspace.queue.empty.time" ["s"] on "queue" =>
        "Part of `headspace.queue.time` in which the queue was empty";
    QUEUE_FULL_TIME = Counter "headspace.queue.full.time" ["s"] on "queue" =>
        "Part of `headspace.queue.time` in which the queue was full";

    RUN_FLOOR_TIME = Gauge "headspace.run.floor.time" ["s"] on "run" by "estimate" =>
        "Floor: step time if data were free, measured by the probe, by `estimate` (value; low and high: the 95 % confidence interval)";
    RUN_HEADSPACE = Gauge "headspace.run.headspace" ["1"] on "run" by "estimate" =>
        "Headspace: share of the step time that free data would save, measured by the probe, by `estimate` (value; low and high: the 95 % confidence interval)";
    RUN_HEADSPACE_BOUND = Gauge "headspace.run.headspace.upper_bound" ["1"] on "run" =>
        "Upper bound on what less waiting saves, as a share of the step time: the smaller of the wait for data and the time in which the GPU is idle. It is not an upper bound on the headspace, because free data also ends the contention with the loader";
    RUN_STEADY_STEP_TIME = Gauge "headspace.run.steady_step.time" ["s"] on "run" =>
        "Mean step time of the training loop in steady state";
    RUN_THROUGHPUT = Gauge "headspace.run.throughput" ["{sample}/s"] on "run" =>
        "Samples per second of the training loop in steady state";
    RUN_UNIT_THROUGHPUT = Gauge "headspace.run.unit.throughput" ["{unit}/s"] on "run" by "unit" =>
        "Units per second of the training loop in steady state, in the `unit` that the user counts, for example frames or tokens";
    RUN_REMAINING_TIME = Gauge "headspace.run.remaining.time" ["s"] on "run" by "estimate" =>
        "Time until the last step of the run, if the length of the run is known, by `estimate` (value; low and high: the 95 % interval)";
    RUN_DATA_READINESS = Gauge "headspace.run.data_readiness" ["1"] on "run" =>
        "Share of time in which the last queue before the loop was not empty";
    RUN_BOTTLENECK = Gauge "headspace.run.bottleneck" ["1"] on "run" by "kind" "name" =>
        "Confidence, from 0 to 1, that the bottleneck is the one given by `kind` and `name`";
    RUN_REMEDY_STEP_TIME = Gauge "headspace.run.remedy.step.time" ["s"] on "run" by "remedy" "what" =>
        "Predicted step time with a `remedy`. The label `what` describes the remedy";
    RUN_OVERHEAD = Gauge "headspace.run.overhead" ["1"] on "run" =>
        "CPU time of the agent's threads and of recording, as a share of the elapsed time";
    RUN_NOTICES = Counter "headspace.run.notices" ["{notice}"] on "run" by "severity" =>
        "Number of notices shown to the user, by `severity`";

    AGENT_CPU_TIME = Counter "headspace.agent.cpu.time" ["s"] on "agent" =>
        "CPU time of the agent's own threads";
    AGENT_STEP_COST = Gauge "headspace.agent.step.cost" ["s"] on "agent" =>
        "Time that recording one batch costs the training thread, calibrated at the start of the run";
    AGENT_TICK_LATENESS = Gauge "headspace.agent.tick.lateness" ["s"] on "agent" =>
        "Delay between the scheduled and the actual start of the tick";
    AGENT_DROPPED_STEPS = Counter "headspace.agent.dropped.steps" ["{step}"] on "agent" =>
        "Number of steps dropped because the ring buffer was full";
    AGENT_DROPPED_RECORDS = Counter "headspace.agent.dropped.records" ["{record}"] on "agent" =>
        "Number of records dropped because an exporter was slow or failed";
    AGENT_DROPPED_EXPORTS = Counter "headspace.agent.dropped.exports" ["{export}"] on "agent" =>
        "Number of exports that were given up (OpenTelemetry, textfile). The next successful export contains the totals. Absent before the first loss";
    AGENT_DROPPED_SPANS = Counter "headspace.agent.dropped.spans" ["{span}"] on "agent" =>
        "Number of spans that were lost because the collector refused them or was too slow. Absent before the first loss";
    AGENT_DROPPED_LOG_RECORDS = Counter "headspace.agent.dropped.log_records" ["{log_record}"] on "agent" =>
        "Number of log records that were lost because the collector refused them or was too slow. Absent before the first loss";
    AGENT_DROPPED_LINES = Counter "headspace.agent.dropped.lines" ["{line}"] on "agent" =>
        "Number of records dropped because the reader of a pipe or the library of a tracker was too slow. The run folder contains them. Absent before the first loss";
    AGENT_DROPPED_SERIES = Gauge "headspace.agent.dropped.series" ["{series}"] on "agent" =>
        "Number of series that are not exported because the limit of 10,000 is reached. This value is exported but is not in the records. Absent if no series is left out";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_metric_has_a_unique_name_and_a_help_text() {
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

    #[test]
    fn values_of_neighbouring_intervals_merge_by_their_kind() {
        let of = |value, seconds| TimedValue { value, seconds };
        let merged = |kind: MetricKind| kind.merge(of(9.0, 3.0), of(5.0, 1.0));

        assert_eq!(merged(MetricKind::Counter), of(5.0, 4.0));
        assert_eq!(merged(MetricKind::Histogram), of(5.0, 4.0));
        assert_eq!(merged(MetricKind::Maximum), of(9.0, 4.0));
        assert_eq!(merged(MetricKind::Gauge), of(8.0, 4.0));
        assert_eq!(merged(MetricKind::UpDownCounter), of(8.0, 4.0));
        let untimed = MetricKind::Gauge.merge(of(9.0, 0.0), of(5.0, 0.0));
        assert_eq!(untimed, of(5.0, 0.0));
    }
}
