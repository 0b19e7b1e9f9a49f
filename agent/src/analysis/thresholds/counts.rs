//! Whole numbers of attribution: defaults, factors and upper bounds. All are chosen, except where a source is
//! named.

// Defaults for settings that are not known.

/// Capacity of a queue, in items.
pub(crate) const QUEUE_CAPACITY: u32 = 2;
/// Batches that each worker prefetches. Source: torch's default of `prefetch_factor`.
pub(crate) const PREFETCH_FACTOR: u32 = 2;

// The search for the bottleneck: how much larger a term becomes by its relief.

/// Concurrency, threads, cores, decoders, and the speed of compute.
pub(crate) const RELIEF: u32 = 4;
/// Capacity of queues, to find out whether jitter is the bottleneck.
pub(crate) const RELIEF_OF_BUFFERS: u32 = 16;

// The simulation.

/// Approximate number of calls in a simulated run.
pub(crate) const SIMULATED_CALLS: f64 = 5_000.0;
/// Bounds of the number of batches in a simulated run.
pub(crate) const SIMULATED_BATCHES: (f64, f64) = (48.0, 500.0);
/// Bounds of the number of times that are drawn for the calls of a station. About as many are drawn as there
/// are calls, so their mean is exact.
pub(crate) const DRAWN_TIMES: (f64, f64) = (64.0, 4096.0);

// Remedies.

/// Number of lines, those with the largest shares of their stages, whose gain is predicted.
pub(crate) const TRIED_LINES: usize = 24;
/// Maximum number of lines with a gain.
pub(crate) const MAX_LINES: usize = 8;
/// Maximum number of remedies.
pub(crate) const MAX_REMEDIES: usize = 6;
/// Maximum factor of a stage's or pool's concurrency.
pub(crate) const MAX_CONCURRENCY_FACTOR: u32 = 8;
/// Number of stages, those with the longest limits, for which more concurrency is tried.
pub(crate) const STAGES_WITH_MORE_CALLS: usize = 2;
/// Number of stages, those with the longest limits, for which less concurrency is tried.
pub(crate) const STAGES_WITH_FEWER_CALLS: usize = 3;
/// Approximate number of concurrencies that are tried for a stage whose calls slow each other.
pub(crate) const TRIED_CONCURRENCIES: u32 = 16;
/// How often the parts of a simulated call are scaled, so that the call takes a given time. The time of a call that waits
/// for cores is not in proportion to its parts. The second time, it is within a percent.
pub(crate) const CALL_TIME_STEPS: u32 = 3;
/// Factor of the capacity of a buffer.
pub(crate) const BUFFER_FACTOR: u32 = 4;
/// Minimum increase of the capacity of a queue.
pub(crate) const MIN_BUFFER_INCREASE: u32 = 2;
/// Maximum number of batches that each worker prefetches.
pub(crate) const MAX_PREFETCH: u32 = 64;
/// Number of buffers that are tried, from the loop backwards.
pub(crate) const TRIED_BUFFERS: usize = 4;
/// A smaller capacity is at most the present one divided by this.
pub(crate) const LESS_BUFFER: u32 = 2;
/// Items by which a smaller capacity shortens a queue. Below this, it is not proposed.
pub(crate) const MIN_FREED_ITEMS: f64 = 4.0;
/// Bytes that a smaller capacity frees. Below this, it is not proposed.
pub(crate) const MIN_FREED_BYTES: f64 = (16 << 20) as f64;
/// Maximum number of a pool's stages that its evidence names.
pub(crate) const NAMED_STAGES: usize = 3;

/// Tensors of a batch whose tensors were joined: inputs, and a table of all targets.
pub(crate) const PACKED_TENSORS: u64 = 2;

/// Minimum bytes of a batch's tensors, or of its arrays and strings, for remedies that concern them. A mebibyte takes
/// about 0.3 ms as a tensor, and 1.2 ms through a pipe.
pub(crate) const LARGE_PART_BYTES: u64 = 1 << 20;

/// Batches that a larger message holds.
pub(crate) const BATCHES_PER_MESSAGE: u32 = 4;

/// From this number on, joining the other objects of a batch is proposed. Fewer cost less than 0.1 ms.
pub(crate) const MANY_OBJECTS: u64 = 1000;
