//! Labels of what delays work on the CPU: of the rows of the verdict, and of the lines of the page's chart.

/// Title of the cores that are in use.
pub const CORES_USED: &str = "cores used";

/// Share of time in which the training thread was runnable and waited for a core.
pub const RUN_QUEUE_WAIT: &str = "run-queue wait (training thread)";

/// Share of the quota's periods in which the container was throttled.
pub const CPU_THROTTLED: &str = "CPU throttled";

/// Pressure stall information: share of time in which some thread waited for a core.
pub const CPU_PRESSURE: &str = "CPU pressure (some)";

/// Pressure stall information: share of time in which some thread waited for I/O.
pub const IO_PRESSURE: &str = "I/O pressure (some)";

/// Pressure stall information: share of time in which some thread waited for memory.
pub const MEMORY_PRESSURE: &str = "memory pressure (some)";

/// Share of time in which Python's garbage collector ran.
pub const GC_PAUSES: &str = "GC pauses";
