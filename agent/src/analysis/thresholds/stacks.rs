//! Constants of sampled stacks. All are chosen.

/// Maximum number of different stacks that are kept. The time of further ones counts for their place only.
pub(crate) const MAX_STACKS: usize = 4096;
/// Minimum number of samples of a stage from which on its threads are known. A thread that was not sampled may be missing.
pub(crate) const MIN_SAMPLES_OF_THREADS: u32 = 5;
/// Maximum number of threads that are kept for a place.
pub(crate) const MAX_THREADS: usize = 256;
/// Number of the last samples whose lines are kept with their times, to compare them with stalls. As many readings are
/// kept with their open data files.
pub(crate) const MAX_RECENT_LINES: usize = 1024;
/// Maximum number of data files that are kept and recorded: the first ones of the run. They are enough to compare the
/// order of the files of two ranks, and keep a summary short.
pub(crate) const MAX_FILES: usize = 64;
/// Maximum number of stacks in a record.
pub(crate) const MAX_RECORDED_STACKS: usize = 400;
/// Minimum number of samples of a place. With fewer, the shares of its lines are too uncertain.
pub(crate) const MIN_SAMPLES: u32 = 30;
/// Minimum number of samples of a line.
pub(crate) const MIN_LINE_SAMPLES: u32 = 3;
/// Minimum share of the time that a line holds the interpreter lock, to be reported.
pub(crate) const MIN_HELD_SHARE: f64 = 0.05;
/// Maximum number of holders of the interpreter lock that are reported.
pub(crate) const MAX_HOLDERS: usize = 3;
/// Minimum share of a place's time in which its calls wait for threads to which they handed work. Below it, a call may
/// have waited for something else while an unrelated thread worked.
pub(crate) const MIN_HELPER_SHARE: f64 = 0.05;
/// Minimum share of a kind of work in a stage's time, to be reported.
pub(crate) const MIN_WORK_SHARE: f64 = 0.05;
