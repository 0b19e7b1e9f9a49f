//! Finds what a thread waits for, from its current system call (`/proc/<pid>/task/<tid>/syscall`).
//!
//! A thread that waits for a lock is in the system call `futex`, except for file locks (`flock`, `fcntl`) and
//! System V semaphores (`semop`). Python's interpreter lock is a static variable of the interpreter, and other locks
//! are in allocated memory. So the address of the lock shows which one it is. The C library marks a lock that only
//! one process uses as private.
//!
//! [`thread_locks`](super::thread_locks) and [`retried_locks`](super::retried_locks) tell more about locks.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use headspace_agent::model::stack::WaitFor;

/// A wait of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    /// What the thread waits for.
    pub(super) what: WaitFor,
    /// Address of the lock. `None` unless `what` is [`WaitFor::Lock`].
    pub(super) lock: Option<u64>,
}

/// Addresses of the interpreter's static variables in a process.
pub(super) struct InterpreterStatics(Vec<Range<u64>>);

impl InterpreterStatics {
    /// Reads the memory map of the process. Without it, the interpreter lock counts as any other lock.
    pub(super) fn read(pid: u32) -> Self {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Self(static_variables(&maps))
    }

    /// The wait of the thread. `None` if it runs, or if the system does not show it.
    pub(super) fn wait(&self, pid: u32, tid: u32) -> Option<Wait> {
        let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        let mut words = call.split_whitespace();
        // The first word of a thread that runs is `running`.
        let number: i64 = words.next()?.parse().ok()?;
        let mut argument = || words.next().and_then(hexadecimal).unwrap_or(0);
        let arguments = [argument(), argument(), argument()];
        let what = self.waits_for(pid, number, arguments);
        // The stack pointer follows the six arguments.
        let stack_pointer = words.nth(3).and_then(hexadecimal).unwrap_or(0);
        let lock = (what == WaitFor::Lock).then(|| lock_address(pid, arguments[0], stack_pointer));
        Some(Wait { what, lock })
    }

    /// What a thread in the system call `number` waits for. `arguments` are the first three of the call.
    fn waits_for(&self, pid: u32, number: i64, arguments: [u64; 3]) -> WaitFor {
        match number {
            libc::SYS_futex => self.waits_for_futex(pid, arguments),
            // `fcntl` waits only for a file lock (`F_SETLKW`), and `semop` for a semaphore of System V.
            libc::SYS_flock | libc::SYS_fcntl | libc::SYS_semop | libc::SYS_semtimedop => {
                WaitFor::SharedLock
            }
            libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => {
                waits_for_file(pid, arguments[0])
            }
            // -1: outside a system call. It waits for memory, whose page is read from a file.
            -1
            | libc::SYS_pread64
            | libc::SYS_preadv
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_openat
            | libc::SYS_newfstatat
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_getdents64
            | libc::SYS_close => WaitFor::File,
            libc::SYS_ppoll
            | libc::SYS_pselect6
            | libc::SYS_epoll_pwait
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_accept4
            | libc::SYS_connect => WaitFor::Connection,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => WaitFor::Timer,
            libc::SYS_wait4 | libc::SYS_waitid => WaitFor::Process,
            other => wait_in_legacy_call(other),
        }
    }

    fn waits_for_futex(&self, pid: u32, [address, operation, expected]: [u64; 3]) -> WaitFor {
        let is_private = operation & FUTEX_PRIVATE_FLAG != 0;
        if self.0.iter().any(|range| range.contains(&address)) {
            WaitFor::InterpreterLock
        } else if is_private || is_thread(pid, expected) {
            WaitFor::Lock
        } else {
            WaitFor::SharedLock
        }
    }
}

/// Maximum distance between the stack pointer of a waiting thread and its semaphore. Three small functions lie between them.
const MAX_DISTANCE: u64 = 4096;

/// The bits of a locked `PyMutex` for which a thread waits: `_Py_LOCKED` and `_Py_HAS_PARKED`. Without `_Py_LOCKED`, it may be
/// an event (`PyEvent`) for which threads wait.
const LOCKED_AND_WAITED_FOR: u8 = 3;

/// Address of the lock of a thread that waits in `futex` at `address`.
///
/// From Python 3.14 on, each thread waits at a semaphore in its own stack: the field `sema` of `struct wait_entry` in
/// Python's `parking_lot.c`. The field before it is the address of the lock, a `PyMutex`.
fn lock_address(pid: u32, address: u64, stack_pointer: u64) -> u64 {
    let distance = address.checked_sub(stack_pointer);
    if distance.is_none_or(|distance| distance >= MAX_DISTANCE) {
        return address;
    }
    locked_mutex(pid, address).unwrap_or(address)
}

/// Address of the `PyMutex` for which a thread waits at this semaphore. `None` if the field before it is no such address.
fn locked_mutex(pid: u32, semaphore: u64) -> Option<u64> {
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut mutex = [0; size_of::<u64>()];
    let field = semaphore.checked_sub(size_of::<u64>() as u64)?;
    memory.read_exact_at(&mut mutex, field).ok()?;
    let mutex = u64::from_ne_bytes(mutex);
    let mut bits = [0];
    memory.read_exact_at(&mut bits, mutex).ok()?;
    (bits == [LOCKED_AND_WAITED_FOR]).then_some(mutex)
}

/// Whether `id` is a thread of the process. `pthread_join` waits until the futex no longer has the ID of the thread. This
/// futex is not private, because the kernel wakes it.
fn is_thread(pid: u32, id: u64) -> bool {
    id != 0 && fs::exists(format!("/proc/{pid}/task/{id}")).unwrap_or(false)
}

/// The flag in the operation of `futex(2)` for a lock that only one process uses.
const FUTEX_PRIVATE_FLAG: u64 = libc::FUTEX_PRIVATE_FLAG.unsigned_abs() as u64;

/// Older system calls, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
fn wait_in_legacy_call(number: i64) -> WaitFor {
    match number {
        libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait | libc::SYS_accept => {
            WaitFor::Connection
        }
        libc::SYS_open | libc::SYS_stat | libc::SYS_lstat => WaitFor::File,
        _ => WaitFor::Other,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn wait_in_legacy_call(_: i64) -> WaitFor {
    WaitFor::Other
}

/// A descriptor is a file, or a pipe or socket.
fn waits_for_file(pid: u32, descriptor: u64) -> WaitFor {
    let target = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap_or_default();
    let target = target.to_string_lossy();
    let is_stream = |kind: &str| target.starts_with(kind);
    if is_stream("pipe:") || is_stream("socket:") {
        WaitFor::Connection
    } else {
        WaitFor::File
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The writable mappings of the interpreter's file, and the zeroed memory that follows each.
pub(super) fn static_variables(maps: &str) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(mode)) = (words.next(), words.next()) else {
            continue;
        };
        let path = words.nth(3).unwrap_or_default();
        let bounds = range.split_once('-').and_then(|(begin, end)| {
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some(address(begin)?..address(end)?)
        });
        let Some(bounds) = bounds.filter(|_| mode.starts_with("rw")) else {
            continue;
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_interpreter = name.starts_with("python") || name.starts_with("libpython");
        let follows = |last: &Range<u64>| last.end == bounds.start && path.is_empty();
        match found.last_mut() {
            Some(last) if follows(last) => last.end = bounds.end,
            _ if is_interpreter => found.push(bounds),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    const MAPS: &str = "\
00400000-00401000 r-xp 00000000 08:01 11 /usr/bin/python3.11
00a00000-00a10000 rw-p 00600000 08:01 11 /usr/bin/python3.11
00a10000-00a50000 rw-p 00000000 00:00 0
01000000-01100000 rw-p 00000000 00:00 0 [heap]
7f00a000-7f00b000 rw-p 00000000 08:01 12 /usr/lib/libc.so.6
7f00b000-7f00d000 rw-p 00000000 00:00 0
";

    fn here() -> (u32, u32) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        (std::process::id(), tid.unsigned_abs())
    }

    /// Waits until this thread waits for `expected`.
    fn wait_until(tid: u32, expected: Option<WaitFor>) {
        let memory = InterpreterStatics(Vec::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let wait = memory.wait(here().0, tid).map(|wait| wait.what);
            if wait == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{wait:?}, not {expected:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn static_variables_are_the_writable_mappings_of_the_interpreter_and_the_zeroed_memory_after_them()
     {
        let found = static_variables(MAPS);
        assert_eq!(
            found.as_slice(),
            std::slice::from_ref(&(0x00a0_0000..0x00a5_0000))
        );
    }

    #[test]
    fn a_futex_in_static_memory_is_the_interpreter_lock_and_one_that_is_not_private_is_shared() {
        let memory = InterpreterStatics(static_variables(MAPS));
        let (pid, tid) = here();
        let futex_with = |expected: u64, address, operation| {
            memory.waits_for(pid, libc::SYS_futex, [address, operation, expected])
        };
        let futex = |address, operation| futex_with(0, address, operation);
        let wait = libc::FUTEX_WAIT_BITSET.unsigned_abs().into();
        let private = FUTEX_PRIVATE_FLAG | wait;
        assert_eq!(futex(0x00a2_0000, private), WaitFor::InterpreterLock);
        assert_eq!(futex(0x0100_0040, private), WaitFor::Lock);
        assert_eq!(futex(0x7f00_c000, wait), WaitFor::SharedLock);
        let joined = futex_with(tid.into(), 0x7f00_c000, wait);
        assert_eq!(joined, WaitFor::Lock, "it waits for the end of a thread");
    }

    #[test]
    fn a_thread_that_waits_in_its_own_stack_waits_for_the_lock_that_its_semaphore_belongs_to() {
        // A mutex for which threads wait, an event for which they wait, a mutex for which none waits, a free one.
        let bits = [LOCKED_AND_WAITED_FOR, 2, 1, 0];
        let [lock, event, unwaited, free] =
            bits.each_ref().map(|bits| std::ptr::from_ref(bits) as u64);
        let found = |before: u64, distance: u64| {
            let entry = [before, 0];
            let semaphore = std::ptr::from_ref(&entry[1]) as u64;
            let found = lock_address(here().0, semaphore, semaphore - distance);
            (found != semaphore).then_some(found)
        };

        assert_eq!(found(lock, 200), Some(lock));
        assert_eq!(found(lock, 10_000), None, "not in the frames of the wait");
        for no_lock in [event, unwaited, free, 0, 2, u64::MAX] {
            assert_eq!(found(no_lock, 200), None);
        }
        assert_eq!(lock_address(here().0, 64, 64), 64, "cannot be read");
    }

    #[test]
    fn a_running_thread_does_not_wait_and_a_blocked_thread_has_a_reason() {
        let (reader, writer) = std::io::pipe().unwrap();
        let runs = Arc::new(AtomicBool::new(true));
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn({
            let runs = Arc::clone(&runs);
            move || {
                send.send(here().1).unwrap();
                while runs.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                std::io::Read::read(&mut { reader }, &mut [0]).unwrap()
            }
        });
        let tid = receive.recv().unwrap();

        wait_until(tid, None);
        runs.store(false, Ordering::Relaxed);
        wait_until(tid, Some(WaitFor::Connection));

        drop(writer);
        assert_eq!(thread.join().unwrap(), 0);
    }
}
