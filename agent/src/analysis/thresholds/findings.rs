//! Values above which a measurement is a finding.

/// Share of periods in which the quota ran out, or of time in which a GPU's clocks were reduced, in percent.
pub(crate) const THROTTLED_PCT: f64 = 5.0;

/// Share of time that the training thread waits for a core, in percent.
pub(crate) const RUN_QUEUE_PCT: f64 = 5.0;

/// Mean wait for the interpreter lock. Source: a fifth of Python's switch interval
/// (`sys.getswitchinterval()`, 5 ms), which is the longest wait for one other thread that runs Python code.
pub(crate) const GIL_WAIT_MS: f64 = 1.0;

/// Cores that the threads other than the training thread use.
pub(crate) const OTHER_THREADS_CORES: f64 = 0.1;

/// Share of time in which the garbage collector stops the process, in percent.
pub(crate) const GC_PCT: f64 = 1.0;

/// Share of time in which a task waits for storage, in percent.
pub(crate) const IO_PRESSURE_PCT: f64 = 10.0;

/// The same for memory. Reclaim is rare if there is enough memory.
pub(crate) const MEMORY_PRESSURE_PCT: f64 = 1.0;

/// Mean utilization of all decoders from which on they are busy, in percent.
pub(crate) const DECODERS_BUSY_PCT: f64 = 95.0;

/// Share of a GPU's used memory that other processes hold, in percent.
pub(crate) const OTHERS_MEMORY_PCT: f64 = 10.0;
