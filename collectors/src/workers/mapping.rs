//! Maps files into memory. Contains the only unsafe code for that.
//!
//! A mapping is never removed, so a reference to it is valid forever. A mapping that is no longer
//! needed is replaced by private zeroed memory ([`empty`]) and reused for the next file.

use std::ffi::c_void;
use std::fs::File as Handle;
use std::io;
use std::ops::Range;
use std::ptr::null_mut;

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use rustix::process::{Resource, getrlimit};

use super::layout::{File, SIZE, SwitchFile};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Maps a file of [`SIZE`] bytes, over a mapping that [`empty`] has cleared if there is one.
pub(super) fn map(file: &Handle, over: Option<&'static File>) -> io::Result<&'static File> {
    let (at, flags) = match over {
        Some(old) => (address(old), MapFlags::SHARED | MapFlags::FIXED),
        None => (null_mut(), MapFlags::SHARED),
    };
    // SAFETY: without `over` the kernel chooses an unused address range. With `over` the range is an
    // entire earlier mapping of ours with this exact size. Only shared references to atomics point into
    // it, and any content is valid for atomics.
    let memory = unsafe { mmap(at, SIZE, READ_WRITE, flags, file, 0) }?;
    // SAFETY: the mapping is as large as a `File`, is page-aligned as `File` requires, and is never
    // unmapped. All fields are atomic integers: any bytes are valid, and other processes may change
    // them.
    Ok(unsafe { &*memory.cast::<File>() })
}

/// Maps the file of a trainer's switches.
pub(super) fn map_switches(file: &Handle) -> io::Result<&'static SwitchFile> {
    // SAFETY: the kernel chooses an unused address range.
    let memory = unsafe {
        mmap(
            null_mut(),
            SwitchFile::SIZE,
            READ_WRITE,
            MapFlags::SHARED,
            file,
            0,
        )
    }?;
    // SAFETY: as in `map`.
    Ok(unsafe { &*memory.cast::<SwitchFile>() })
}

/// Replaces the mapping of a file by private zeroed memory.
pub(super) fn empty(file: &'static File) -> io::Result<&'static File> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: this replaces an entire mapping of ours by one of the same size and permissions, all
    // zeros. Zeros are valid for all remaining references, which point to atomics.
    unsafe { mmap_anonymous(address(file), SIZE, READ_WRITE, flags) }?;
    Ok(file)
}

fn address(file: &'static File) -> *mut c_void {
    std::ptr::from_ref(file).cast_mut().cast()
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

/// Whether the file-size limit permits a file of this size. Exceeding that limit raises a fatal signal.
pub(super) fn is_size_allowed(size: usize) -> bool {
    let limit = getrlimit(Resource::Fsize).current;
    limit.is_none_or(|limit| limit >= size as u64)
}
