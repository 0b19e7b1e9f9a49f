//! Values from which a measurement is a finding. A finding about a resource that attribution also judges uses
//! the constants of attribution ([`Thresholds`](super::Thresholds)).

/// Share of time in which a GPU's clocks were reduced, in percent.
pub(crate) const REDUCED_CLOCKS_PCT: f64 = 5.0;

/// Share of time in which a task waits for storage, in percent.
pub(crate) const IO_PRESSURE_PCT: f64 = 10.0;

/// The same for memory. Reclaim is rare if there is enough memory.
pub(crate) const MEMORY_PRESSURE_PCT: f64 = 1.0;

/// Mean utilization of all decoders from which on they are busy, in percent. Attribution tries the decoders as
/// the bottleneck at much less (`candidate_utilization`), because it also asks what more of them would gain.
/// The finding says that no decoder is left.
pub(crate) const DECODERS_BUSY_PCT: f64 = 95.0;

/// Share of a GPU's used memory that other processes hold, in percent.
pub(crate) const OTHERS_MEMORY_PCT: f64 = 10.0;

/// Number of uncorrected memory errors. The driver counts each, and none is normal.
pub(crate) const MEMORY_ERRORS: f64 = 1.0;

/// Bytes per second of a `PCIe` link in use, as a share of the fastest one that GPU and machine allow. Below it, the link is
/// slow. The generations differ by a factor of two, and so do the usual numbers of lanes.
pub(crate) const SLOW_LINK_SHARE: f64 = 0.75;

/// Share of a slow `PCIe` link that is in use, from which on a faster one would matter. Chosen.
pub(crate) const SLOW_LINK_USE: f64 = 0.2;

/// Share of a stage's calls that ended in an exception, in percent. A data set of images from the web has a few
/// per mille that cannot be read.
pub(crate) const FAILURES_PCT: f64 = 1.0;

/// Minimum gain for a message during the run. For a remedy, it is a share of the step; for a slow part, a share of the
/// run. Chosen: less is not worth an interruption.
pub(crate) const LOST_SHARE: f64 = 0.1;

/// Bytes per second that come from storage, and not from the page cache, from which on they matter. Chosen.
pub(crate) const STORAGE_READS: f64 = 1e6;
