//! Files as memory, and the only unsafe code around them.
//!
//! A mapping is never undone, so that a reference to it is good for ever: what is not needed any
//! more becomes empty memory of this process ([`empty`]) and takes the next file.

use std::fs::File as Handle;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::fs::FallocateFlags;
use rustix::process::{Resource, getrlimit};

use super::layout::{File, SIZE};

/// Maps a file of [`SIZE`] bytes, over memory that [`empty`] has emptied where there is some.
pub(super) fn map(file: &Handle, over: Option<&'static File>) -> io::Result<&'static File> {
    let fixed = if over.is_some() { libc::MAP_FIXED } else { 0 };
    let at = over.map_or(std::ptr::null_mut(), |old| {
        std::ptr::from_ref(old).cast_mut().cast()
    });
    // SAFETY: without `over` the kernel chooses where nothing else is. With it the place is a whole
    // earlier mapping of ours of this very size, referred to only by shared references to atomics,
    // which any content satisfies. The descriptor is open through the call.
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
    // SAFETY: the mapping is as large as a `File`, aligned to a page as `File` is, and never
    // unmapped. All fields are atomic integers: any bytes are valid, and others may change them.
    Ok(unsafe { &*memory.cast::<File>() })
}

/// Puts empty memory in the place of a file.
pub(super) fn empty(file: &'static File) -> io::Result<&'static File> {
    // SAFETY: replaces a whole mapping of ours by one of the same size and rights, all zeros, which
    // the references to atomics that there may be are content with.
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

/// Makes sure that these bytes of a file can be written, now or later.
///
/// # Errors
///
/// Those of the system; `StorageFull` where the disk is full.
pub(super) fn reserve(file: &Handle, bytes: Range<usize>) -> io::Result<()> {
    let (offset, length) = (bytes.start as u64, bytes.len() as u64);
    let reserved = rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, length)
    });
    Ok(reserved?)
}

/// Whether a file may be as large as ours. Where it may not, making it is a signal, and death.
pub(super) fn size_is_allowed() -> bool {
    let limit = getrlimit(Resource::Fsize).current;
    limit.is_none_or(|limit| limit >= SIZE as u64)
}
