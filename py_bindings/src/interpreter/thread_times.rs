//! Reads how long the calling thread ran and waited for a core, from `/proc/thread-self/schedstat`.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use headspace_agent::model::ThreadTimes;
use headspace_agent::runtime::fork::Owner;
use headspace_collectors::process::parse_thread_times;

thread_local! {
    /// The open file of this thread, and the process that opened it, because a forked child inherits the
    /// file of its parent. Reading an open file takes 2 µs, opening it 10 µs.
    static SCHEDSTAT: RefCell<Option<(Owner, File)>> = const { RefCell::new(None) };
}

/// The times of this thread, or None if the kernel does not count them. A probe calls this every few steps.
pub(crate) fn read() -> Option<ThreadTimes> {
    let mut buffer = [0_u8; 96];
    let length = SCHEDSTAT.with(|file| {
        let mut file = file.try_borrow_mut().ok()?;
        if file.as_ref().is_none_or(|(owner, _)| !owner.is_here()) {
            let opened = File::open("/proc/thread-self/schedstat").ok()?;
            *file = Some((Owner::here(), opened));
        }
        file.as_ref()?.1.read_at(&mut buffer, 0).ok()
    })?;
    parse_thread_times(buffer.get(..length)?)
}
