//! Measures the cost of passing memory between processes on this machine. Measuring takes about three
//! milliseconds of CPU time of the calling thread.
//!
//! CPU time is measured instead of elapsed time, because other programs may use the cores meanwhile.

use std::fs::File;
use std::io::{self, Write};
use std::ptr::null_mut;
use std::time::Duration;

use headspace_agent::port::clock::thread_cpu_time;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Size of the shared memory that is filled, mapped, read and freed, in mebibytes.
const MIB: u32 = 2;

/// Number of repetitions. The minimum counts, because the other times include disturbances.
const TIMES: u32 = 3;

const PAGE: usize = 4096;

/// Milliseconds of CPU time to map a mebibyte of shared memory, to read one byte of each page for the
/// first time, and to free the memory.
///
/// # Errors
///
/// Returns the system's error if it provides no shared memory or no CPU time.
pub fn mib_ms() -> io::Result<f64> {
    let mut cheapest = Duration::MAX;
    for _ in 0..TIMES {
        cheapest = cheapest.min(hand_over()?);
    }
    Ok(1e3 * cheapest.as_secs_f64() / f64::from(MIB))
}

fn cpu_time() -> io::Result<Duration> {
    thread_cpu_time().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// CPU time to read memory that was written elsewhere, and to free it.
fn hand_over() -> io::Result<Duration> {
    let bytes = (MIB as usize) << 20;
    // In memory only, as torch and multiprocessing share it.
    let mut file: File = memfd_create(c"headspace-shared-memory", MemfdFlags::CLOEXEC)?.into();
    let block = [1_u8; 1 << 13];
    for _ in 0..bytes / block.len() {
        file.write_all(&block)?;
    }
    let begun = cpu_time()?;
    read_all(&file, bytes)?;
    // This was the last descriptor, so the memory is freed.
    drop(file);
    Ok(cpu_time()?.saturating_sub(begun))
}

/// Maps the file, reads one byte of each page, and removes the mapping.
fn read_all(file: &File, bytes: usize) -> io::Result<()> {
    let flags = MapFlags::SHARED;
    // SAFETY: the kernel chooses an unused address range.
    let memory = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, flags, file, 0) }?;
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: the mapping and its file are `bytes` long, so no page is missing.
        std::hint::black_box(unsafe { memory.cast::<u8>().add(offset).read_volatile() });
    }
    // SAFETY: this is exactly the mapping from above, and no reference to it is left.
    unsafe { munmap(memory, bytes) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_mebibyte_is_measured() {
        let cost = mib_ms().unwrap();
        assert!(cost > 0.001 && cost < 50.0, "{cost}");
    }
}
