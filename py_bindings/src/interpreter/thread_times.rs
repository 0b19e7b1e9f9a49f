//! Reads how long the calling thread ran and waited for a core, from `/proc/thread-self/schedstat`.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use headspace_agent::model::ThreadTimes;

thread_local! {
    /// The open file of this thread, and the process that opened it, because a forked child inherits the
    /// file of its parent. Reading an open file takes 2 µs, opening it 10 µs.
    static SCHEDSTAT: RefCell<Option<(u32, File)>> = const { RefCell::new(None) };
}

/// The times of this thread, or None if the kernel does not count them. A probe calls this every few steps.
pub(crate) fn read() -> Option<ThreadTimes> {
    let mut buffer = [0_u8; 96];
    let length = SCHEDSTAT.with(|file| {
        let mut file = file.try_borrow_mut().ok()?;
        let process = std::process::id();
        if file.as_ref().is_none_or(|(owner, _)| *owner != process) {
            let opened = File::open("/proc/thread-self/schedstat").ok()?;
            *file = Some((process, opened));
        }
        file.as_ref()?.1.read_at(&mut buffer, 0).ok()
    })?;
    parse(buffer.get(..length)?)
}

/// Parses nanoseconds on a core, nanoseconds waiting for one, and the number of time slices. If all are 0,
/// the kernel does not count.
fn parse(schedstat: &[u8]) -> Option<ThreadTimes> {
    let text = std::str::from_utf8(schedstat).ok()?;
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran_ns, waited_ns) = (fields.next()?.ok()?, fields.next()?.ok()?);
    let slices = fields.next()?.ok()?;
    ([ran_ns, waited_ns, slices] != [0; 3]).then_some(ThreadTimes { ran_ns, waited_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_two_fields_are_the_times_and_all_zeros_mean_not_counted() {
        assert_eq!(
            parse(b"348251924 791062 81\n"),
            Some(ThreadTimes {
                ran_ns: 348_251_924,
                waited_ns: 791_062
            })
        );
        assert_eq!(parse(b"0 0 0\n"), None);
        assert_eq!(parse(b"12\n"), None);
    }
}
