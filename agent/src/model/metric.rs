//! The one declaration of every metric: name, unit, kind, help.
//!
//! The JSON name, the OpenTelemetry name and unit, the Prometheus name and help, the table in
//! `docs/metrics.md` and the dashboards all come from here, so that they cannot disagree. Names
//! follow OpenTelemetry's semantic conventions where those have one, else the `headspace.`
//! namespace. Units are UCUM.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

/// How a metric's values combine over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// A total that only grows while the process lives. Of two ticks, the later says more.
    Counter,
    /// A level at one moment, meaningful to average.
    Gauge,
    /// A level at one moment that adds up over processes (bytes, threads).
    UpDownCounter,
    /// The highest since the reading before. Of several, the highest says what they all say.
    Maximum,
    /// Durations, counted by length since the run began.
    Histogram,
}

/// A value that speaks for some seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedValue {
    /// The value, in the metric's unit.
    pub value: f64,
    /// How long it speaks for.
    pub seconds: f64,
}

impl MetricKind {
    /// What two neighbouring spans of time say together: a total its last value, a maximum the higher
    /// one, a level the mean over time.
    #[must_use]
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

/// Since when a total counts: where its zero lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Since {
    /// The run's beginning. What no system counts does.
    #[default]
    Run,
    /// The process's beginning, for the process and its children. A single thread's count may have
    /// begun later, nobody knows when.
    Process,
    /// Some moment before the run that nobody knows: the machine or a driver was started, a group
    /// was made.
    Before,
}

/// The declaration of one metric. Made only in this module; refer to it by its constant.
#[derive(Debug)]
pub struct Metric {
    /// Dotted lower-case name, as OpenTelemetry writes it.
    pub name: &'static str,
    /// UCUM unit; `1` is a ratio, `{thing}` counts things.
    pub unit: &'static str,
    /// How values combine over time.
    pub kind: MetricKind,
    /// What it is measured on: kinds of [`Scope`](super::Scope), at least one.
    pub scopes: &'static [&'static str],
    /// Names of the attributes that tell its values apart in one scope; empty where it has one.
    pub attributes: &'static [&'static str],
    /// Since when it counts, where it is a total.
    pub since: Since,
    /// One sentence for people, without a final stop.
    pub help: &'static str,
}

impl Metric {
    /// The metric of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        static BY_NAME: LazyLock<HashMap<&str, &Metric>> =
            LazyLock::new(|| ALL.iter().map(|metric| (metric.name, *metric)).collect());
        BY_NAME.get(name).copied()
    }
}

/// A metric is its name: no two are declared with one.
impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Metric {}

impl PartialOrd for Metric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Metric {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl Hash for Metric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
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

        /// Every metric there is, in the order of the documentation table.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
    (@since) => { Since::Run };
    (@since $since:ident) => { Since::$since };
}

metrics! {
    PROCESS_CPU_TIME = Counter "process.cpu.time" ["s"] on "process" "tree" by "cpu.mode" since Process =>
        "CPU seconds used, by `cpu.mode` (user, system)";
    PROCESS_MEMORY_USAGE = UpDownCounter "process.memory.usage" ["By"] on "process" "tree" =>
        "Resident memory; pages that several processes of the tree share count once for each";
    PROCESS_MEMORY_ANONYMOUS = UpDownCounter "headspace.process.memory.anonymous" ["By"] on "process" "tree" =>
        "Resident memory that neither a file nor a shared segment stands behind: what a leak makes grow";
    PROCESS_MEMORY_VIRTUAL = UpDownCounter "process.memory.virtual" ["By"] on "process" =>
        "Address space the process has mapped";
    PROCESS_MEMORY_PROPORTIONAL = UpDownCounter "headspace.process.memory.proportional" ["By"] on "process" "tree" =>
        "Resident memory, each page divided by the number of processes that share it (PSS)";
    PROCESS_THREAD_COUNT = UpDownCounter "process.thread.count" ["{thread}"] on "process" "tree" =>
        "Threads";
    PROCESS_FILE_DESCRIPTOR_COUNT = UpDownCounter "process.unix.file_descriptor.count" ["{file_descriptor}"] on "process" "tree" =>
        "Open file descriptors";
    PROCESS_COUNT = UpDownCounter "headspace.process.count" ["{process}"] on "tree" =>
        "Processes of the tree: the training process and all its descendants";
    PROCESS_DISK_IO = Counter "process.disk.io" ["By"] on "process" "tree" by "disk.io.direction" since Process =>
        "Bytes that storage was made to read or write, children that have ended included, by `disk.io.direction`";
    PROCESS_IO_REQUESTED = Counter "headspace.process.io.requested" ["By"] on "process" "tree" by "disk.io.direction" since Process =>
        "Bytes asked for through read and write calls, page-cache hits and children that have ended included, by `disk.io.direction`";
    PROCESS_CONTEXT_SWITCHES = Counter "process.context_switches" ["{context_switch}"] on "process" "thread" by "process.context_switch.type" since Process =>
        "Times a thread left its core, by `process.context_switch.type`";
    PROCESS_PAGING_FAULTS = Counter "process.paging.faults" ["{fault}"] on "process" "tree" by "system.paging.fault.type" since Process =>
        "Page faults, by `system.paging.fault.type` (minor: no disk read)";

    THREAD_CPU_TIME = Counter "headspace.thread.cpu.time" ["s"] on "process" "thread" =>
        "CPU seconds of the threads that are counted one by one (perf's task clock)";
    THREAD_PAGE_FAULTS = Counter "headspace.thread.page_faults" ["{fault}"] on "process" "thread" =>
        "Page faults in user mode of the threads that are counted one by one, minor and major together";
    THREAD_RUN_QUEUE_TIME = Counter "headspace.thread.run_queue.time" ["s"] on "process" "thread" since Before =>
        "Seconds that threads could have run but waited for a core";
    PERF_INSTRUCTIONS = Counter "headspace.perf.instructions" ["{instruction}"] on "process" "thread" =>
        "Instructions retired";
    PERF_CYCLES = Counter "headspace.perf.cycles" ["{cycle}"] on "process" "thread" =>
        "Core cycles while running";
    PERF_CACHE_REFERENCES = Counter "headspace.perf.cache.references" ["{reference}"] on "process" "thread" =>
        "Accesses to the last cache level that the processor counts";
    PERF_CACHE_MISSES = Counter "headspace.perf.cache.misses" ["{miss}"] on "process" "thread" =>
        "Those of the accesses that went to memory";
    PERF_STALLED_CYCLES = Counter "headspace.perf.stalled_cycles" ["{cycle}"] on "process" "thread" by "end" =>
        "Cycles without progress, by `end` of the pipeline (front: waiting for instructions; back: waiting for data)";
    PERF_IPC = Gauge "headspace.perf.ipc" ["{instruction}/{cycle}"] on "process" "thread" =>
        "Instructions per cycle since the reading before; below 1, memory is usually in the way";
    PERF_CACHE_MISS_RATIO = Gauge "headspace.perf.cache.miss_ratio" ["1"] on "process" "thread" =>
        "Misses per access of the last cache level since the reading before";

    GIL_WAITS = Counter "headspace.gil.waits" ["{wait}"] on "process" =>
        "Times that a thread of the agent asked for Python's interpreter lock, to see how long it takes";
    GIL_WAIT_TIME = Counter "headspace.gil.wait.time" ["s"] on "process" =>
        "Seconds that these waits took together";
    GIL_WAIT_LONGEST = Maximum "headspace.gil.wait.longest" ["s"] on "process" =>
        "The longest of these waits since the reading before";
    GC_COLLECTIONS = Counter "cpython.gc.collections" ["{collection}"] on "process" by "cpython.gc.generation" =>
        "Times Python's garbage collector ran, by `cpython.gc.generation`";
    GC_COLLECTED = Counter "cpython.gc.collected_objects" ["{object}"] on "process" by "cpython.gc.generation" =>
        "Objects it freed, by `cpython.gc.generation`";
    GC_UNCOLLECTABLE = Counter "cpython.gc.uncollectable_objects" ["{object}"] on "process" by "cpython.gc.generation" =>
        "Objects it could not free, by `cpython.gc.generation`";
    GC_PAUSE_TIME = Counter "headspace.gc.pause.time" ["s"] on "process" by "cpython.gc.generation" =>
        "Seconds that all Python threads stood still for it, by `cpython.gc.generation`";
    GC_PAUSE_LONGEST = Maximum "headspace.gc.pause.longest" ["s"] on "process" =>
        "The longest of these pauses since the reading before";

    HOST_CPU_UTILIZATION = Gauge "headspace.host.cpu.utilization" ["1"] on "host" =>
        "Share of time since the last tick that the cores usable by this process were busy, whoever used them";
    HOST_CPU_USABLE = Gauge "headspace.host.cpu.usable" ["{cpu}"] on "host" =>
        "Cores this process may use: the smaller of its affinity and its cgroup quota";
    HOST_CPU_ONLINE = UpDownCounter "system.cpu.logical.count" ["{cpu}"] on "host" =>
        "Cores of the machine that are online";
    HOST_CPU_AFFINITY = Gauge "headspace.host.cpu.affinity" ["{cpu}"] on "host" =>
        "Cores the scheduler may place this process on";
    HOST_CPU_QUOTA = Gauge "headspace.host.cpu.quota" ["{cpu}"] on "host" =>
        "Cores' worth of time the tightest cgroup above this process allows; absent without a limit";
    HOST_THREADS_RUNNABLE = Gauge "headspace.host.threads.runnable" ["{thread}"] on "host" =>
        "Threads of the whole machine that run or wait for a core, without the one that looks";
    PRESSURE_TIME = Counter "headspace.pressure.time" ["s"] on "host" "cgroup" by "resource" "stalled" since Before =>
        "Seconds that work waited for a `resource` (cpu, io, memory), by who was `stalled` (some: at least one thread; full: all of them)";
    NETWORK_IO = Counter "system.network.io" ["By"] on "host" by "network.io.direction" since Before =>
        "Bytes over the network interfaces of this namespace without loopback, by `network.io.direction` (receive, transmit)";
    CGROUP_CPU_PERIODS = Counter "headspace.cgroup.cpu.periods" ["{period}"] on "cgroup" since Before =>
        "Periods of the CPU quota in which the group had something to run";
    CGROUP_CPU_THROTTLED_PERIODS = Counter "headspace.cgroup.cpu.throttled.periods" ["{period}"] on "cgroup" since Before =>
        "Those of the periods in which the quota ran out";
    CGROUP_CPU_THROTTLED_TIME = Counter "headspace.cgroup.cpu.throttled.time" ["s"] on "cgroup" since Before =>
        "Seconds that the group was kept from running because its quota had run out, added up over its cores";
    CGROUP_MEMORY_USAGE = UpDownCounter "headspace.cgroup.memory.usage" ["By"] on "cgroup" =>
        "Memory charged to the group, page cache included";
    CGROUP_MEMORY_LIMIT = UpDownCounter "headspace.cgroup.memory.limit" ["By"] on "cgroup" =>
        "The tightest memory limit above this process; absent without one";
    CGROUP_MEMORY_EVENTS = Counter "headspace.cgroup.memory.events" ["{event}"] on "cgroup" by "event" since Before =>
        "Times that memory became scarce, by `event` (high: slowed down; max: the limit was hit; oom: no memory was found; oom_kill: a process was killed)";
    DISK_IO = Counter "system.disk.io" ["By"] on "disk" by "disk.io.direction" since Before =>
        "Bytes the device read or wrote, whoever asked, by `disk.io.direction`";
    DISK_OPERATIONS = Counter "system.disk.operations" ["{operation}"] on "disk" by "disk.io.direction" since Before =>
        "Operations the device has finished, by `disk.io.direction`";
    DISK_OPERATION_TIME = Counter "system.disk.operation_time" ["s"] on "disk" by "disk.io.direction" since Before =>
        "Seconds these operations took, added up, by `disk.io.direction`";
    DISK_UTILIZATION = Gauge "headspace.disk.utilization" ["1"] on "disk" =>
        "Share of time since the reading before in which the device had something to do; a device that serves many requests at once may be far from full at 1";

    GPU_UTILIZATION = Gauge "hw.gpu.utilization" ["1"] on "gpu" by "hw.gpu.task" =>
        "Share of the driver's last sampling period in which the GPU did anything of a `hw.gpu.task` (general, encoder, decoder, jpeg, ofa), over all engines of that kind; general says nothing about how many SMs were busy";
    GPU_SAMPLING_PERIOD = Gauge "headspace.gpu.sampling.period" ["s"] on "gpu" by "hw.gpu.task" =>
        "The driver's sampling period of the utilisation, by `hw.gpu.task`";
    GPU_SM_UTILIZATION = Gauge "headspace.gpu.sm.utilization" ["1"] on "gpu" by "source" =>
        "Share of SMs (streaming multiprocessors) with work, over time, by its `source` (gpm, gpm_mig)";
    GPU_SM_OCCUPANCY = Gauge "headspace.gpu.sm.occupancy" ["1"] on "gpu" =>
        "Warps on the SMs as a share of the most they can hold";
    GPU_TENSOR_UTILIZATION = Gauge "headspace.gpu.tensor.utilization" ["1"] on "gpu" =>
        "Share of time the tensor cores were busy";
    GPU_DRAM_UTILIZATION = Gauge "headspace.gpu.dram.utilization" ["1"] on "gpu" =>
        "Bandwidth of the GPU's memory that was used, as a share of the most there is";
    GPU_ENGINE_UTILIZATION = Gauge "headspace.gpu.engine.utilization" ["1"] on "gpu" by "engine" =>
        "Share of time that a single `engine` was busy (nvdec0, nvjpg0, ofa0 and so on)";
    GPU_MEMORY_USAGE = UpDownCounter "hw.gpu.memory.usage" ["By"] on "gpu" =>
        "Memory of the GPU in use, whoever uses it";
    GPU_MEMORY_LIMIT = UpDownCounter "hw.gpu.memory.limit" ["By"] on "gpu" =>
        "Memory of the GPU";
    GPU_MEMORY_OWNED = UpDownCounter "headspace.gpu.memory.owned" ["By"] on "gpu" by "owner" =>
        "Memory of the GPU by its `owner` (own: this process and its children; others)";
    GPU_SM_OWNED = Gauge "headspace.gpu.process.utilization" ["1"] on "gpu" by "owner" =>
        "Share of the driver's sampling period in which kernels of an `owner` ran (own: this process and its children; others)";
    GPU_IO = Counter "hw.gpu.io" ["By"] on "gpu" by "network.io.direction" since Before =>
        "Bytes over PCIe since the driver was loaded, by `network.io.direction` (receive: into the GPU; transmit)";
    GPU_POWER = Gauge "hw.power" ["W"] on "gpu" =>
        "Power draw, an average over one second on most GPUs";
    GPU_ENERGY = Counter "hw.energy" ["J"] on "gpu" since Before =>
        "Energy used since the driver was loaded";
    GPU_TEMPERATURE = Gauge "hw.temperature" ["Cel"] on "gpu" =>
        "Temperature of the chip";
    GPU_CLOCK = Gauge "headspace.gpu.clock" ["Hz"] on "gpu" by "domain" =>
        "Clock rate, by `domain` (sm, memory, video)";
    GPU_THROTTLED = Gauge "headspace.gpu.throttled" ["1"] on "gpu" by "reason" =>
        "Whether the clocks are held down, by `reason` (power: the power cap; thermal; hardware: brake or slowdown); averaged, the share of time";
    GPU_ECC_ERRORS = Counter "headspace.gpu.ecc.errors" ["{error}"] on "gpu" by "severity" since Before =>
        "Memory errors since the driver was loaded, by `severity` (corrected, uncorrected)";

    LOOP_STEP_TIME = Histogram "headspace.loop.step.time" ["s"] on "loop" by "phase" =>
        "From a batch to the next within an epoch, by `phase` (live, settle, replay: where batches come from)";
    LOOP_WAIT_TIME = Histogram "headspace.loop.wait.time" ["s"] on "loop" by "phase" =>
        "Part of a step in which the loop waits for a batch, by `phase`";
    LOOP_COMPUTE_TIME = Histogram "headspace.loop.compute.time" ["s"] on "loop" by "phase" =>
        "Part of a step in which the loop works with the batch, by `phase`";
    LOOP_STEPS = Counter "headspace.loop.steps" ["{step}"] on "loop" by "phase" =>
        "Batches received, by `phase`";
    LOOP_SAMPLES = Counter "headspace.loop.samples" ["{sample}"] on "loop" by "phase" =>
        "Samples received, where the batch size is known, by `phase`";
    LOOP_EPOCHS = Counter "headspace.loop.epochs" ["{epoch}"] on "loop" =>
        "Epochs that have ended";
    LOOP_FIRST_BATCH_TIME = Gauge "headspace.loop.first_batch.time" ["s"] on "loop" =>
        "From `iter()` to the first batch of the last epoch, worker start-up included";
    LOOP_BOUNDARY_TIME = Gauge "headspace.loop.boundary.time" ["s"] on "loop" =>
        "From the last batch of an epoch to the first of the one that ended last";

    STAGE_TIME = Histogram "headspace.stage.time" ["s"] on "stage" =>
        "Time of a call of a stage";
    STAGE_ITEMS = Counter "headspace.stage.items" ["{item}"] on "stage" by "direction" =>
        "Items that a stage has handled, by `direction` (in, out)";
    STAGE_FAILURES = Counter "headspace.stage.failures" ["{call}"] on "stage" =>
        "Calls of a stage that ended in an exception";
    STAGE_IO = Counter "headspace.stage.io" ["By"] on "stage" =>
        "Bytes that a stage has handled, where the user says";
    STAGE_CONCURRENCY = Gauge "headspace.stage.concurrency" ["{call}"] on "stage" =>
        "Calls of a stage that may run at once in a process: as the user says, else the most seen";

    QUEUE_DEPTH = Gauge "headspace.queue.depth" ["{item}"] on "queue" =>
        "Items in a queue, a mean over the looks since the reading before";
    QUEUE_CAPACITY = Gauge "headspace.queue.capacity" ["{item}"] on "queue" =>
        "Items that a queue holds at most, where somebody says";
    QUEUE_TIME = Counter "headspace.queue.time" ["s"] on "queue" =>
        "Seconds for which the looks at a queue speak";
    QUEUE_EMPTY_TIME = Counter "headspace.queue.empty.time" ["s"] on "queue" =>
        "Those of the seconds in which the queue was empty";
    QUEUE_FULL_TIME = Counter "headspace.queue.full.time" ["s"] on "queue" =>
        "Those of the seconds in which the queue was full";

    RUN_FLOOR_TIME = Gauge "headspace.run.floor.time" ["s"] on "run" by "estimate" =>
        "Step with data for free, from the probe, by `estimate` (value, low, high: the 95 % interval)";
    RUN_HEADSPACE = Gauge "headspace.run.headspace" ["1"] on "run" by "estimate" =>
        "Share of the step that data for free would save, from the probe, by `estimate` (value, low, high: the 95 % interval)";
    RUN_HEADSPACE_BOUND = Gauge "headspace.run.headspace.upper_bound" ["1"] on "run" =>
        "Share of the step that is waiting for data: what less waiting can gain at most";
    RUN_STEADY_STEP_TIME = Gauge "headspace.run.steady_step.time" ["s"] on "run" =>
        "Mean step of the main loop in steady state";
    RUN_THROUGHPUT = Gauge "headspace.run.throughput" ["{sample}/s"] on "run" =>
        "Samples of the main loop in a second, in steady state";
    RUN_DATA_READINESS = Gauge "headspace.run.data_readiness" ["1"] on "run" =>
        "Share of time in which the last queue before the loop was not empty";
    RUN_BOTTLENECK = Gauge "headspace.run.bottleneck" ["1"] on "run" by "kind" "name" =>
        "What limits throughput, by `kind` and `name`: the confidence in it, from 0 to 1";
    RUN_REMEDY_STEP_TIME = Gauge "headspace.run.remedy.step.time" ["s"] on "run" by "remedy" "what" =>
        "Step that a `remedy` is predicted to lead to; `what` it is in words";
    RUN_OVERHEAD = Gauge "headspace.run.overhead" ["1"] on "run" =>
        "Share of the run that went to measuring";
    RUN_NOTICES = Counter "headspace.run.notices" ["{notice}"] on "run" by "severity" =>
        "What the user was told, by `severity`";

    AGENT_CPU_TIME = Counter "headspace.agent.cpu.time" ["s"] on "agent" =>
        "CPU seconds of the agent's own threads";
    AGENT_STEP_COST = Gauge "headspace.agent.step.cost" ["s"] on "agent" =>
        "What recording one batch costs the training thread, calibrated when the run began";
    AGENT_TICK_LATENESS = Gauge "headspace.agent.tick.lateness" ["s"] on "agent" =>
        "How much later than planned the tick began";
    AGENT_DROPPED_STEPS = Counter "headspace.agent.dropped.steps" ["{step}"] on "agent" =>
        "Steps the recorder had no room for";
    AGENT_DROPPED_RECORDS = Counter "headspace.agent.dropped.records" ["{record}"] on "agent" =>
        "Records dropped because an exporter was slow or failed";
    AGENT_DROPPED_EXPORTS = Counter "headspace.agent.dropped.exports" ["{export}"] on "agent" =>
        "Deliveries of the run as it stands that were given up (OpenTelemetry, textfile); totals come with the next one that arrives. Absent until there is one";
    AGENT_DROPPED_SPANS = Counter "headspace.agent.dropped.spans" ["{span}"] on "agent" =>
        "Spans that no collector took: it refused them, or was too slow. Absent until there is one";
    AGENT_DROPPED_LINES = Counter "headspace.agent.dropped.lines" ["{line}"] on "agent" =>
        "Records that readers of a pipe were too slow for, or a tracker's library: the run folder has them. Absent until there is one";
    AGENT_DROPPED_SERIES = Gauge "headspace.agent.dropped.series" ["{series}"] on "agent" =>
        "Series that are not exported because there are more than 10,000; what is exported tells it, records do not. Absent without any";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_metric_is_named_once_and_explained() {
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
    fn values_of_neighbouring_spans_merge_as_their_kind_demands() {
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
