//! Maps files into memory. Contains the only unsafe code for that.
//!
//! A mapping is never removed, so a reference to it is valid forever. A mapping that is no longer
//! needed is replaced by private zeroed memory ([`empty`]) and reused for the next file.

use std::fs::File as Handle;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::fs::FallocateFlags;
use rustix::process::{Resource, getrlimit};

use super::layout::{File, SIZE};

/// Maps a file of [`SIZE`] bytes, over a mapping that [`empty`] has cleared if there is one.
pub(super) fn map(file: &Handle, over: Option<&'static File>) -> io::Result<&'static File> {
    let fixed = if over.is_some() { libc::MAP_FIXED } else { 0 };
    let at = over.map_or(std::ptr::null_mut(), |old| {
        std::ptr::from_ref(old).cast_mut().cast()
    });
    // SAFETY: without `over` the kernel chooses an unused address range. With `over` the range is an
    // entire earlier mapping of ours with this exact size. Only shared references to atomics point into
    // it, and any content is valid for atomics. The descriptor is open during the call.
    let memory = unsafe {
        libc::mmap(
            at,
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | fixed,
            file.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is as large as a `File`, is page-aligned as `File` requires, and is never
    // unmapped. All fields are atomic integers: any bytes are valid, and other processes may change
    // them.
    Ok(unsafe { &*memory.cast::<File>() })
}

/// Replaces the mapping of a file by private zeroed memory.
pub(super) fn empty(file: &'static File) -> io::Result<&'static File> {
    // SAFETY: this replaces an entire mapping of ours by one of the same size and permissions, all
    // zeros. Zeros are valid for all remaining references, which point to atomics.
    let memory = unsafe {
        libc::mmap(
            std::ptr::from_ref(file).cast_mut().cast(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Reserves these bytes of a file, so that they can be written now and later.
///
/// # Errors
///
/// Returns the system's error; `StorageFull` if the disk is full.
pub(super) fn reserve(file: &Handle, bytes: Range<usize>) -> io::Result<()> {
    let (offset, length) = (bytes.start as u64, bytes.len() as u64);
    let reserved = rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, length)
    });
    Ok(reserved?)
}

/// Whether the file-size limit permits our file. Exceeding that limit raises a fatal signal.
pub(super) fn size_is_allowed() -> bool {
    let limit = getrlimit(Resource::Fsize).current;
    limit.is_none_or(|limit| limit >= SIZE as u64)
}
