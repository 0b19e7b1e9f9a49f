//! What it costs on this machine to hand data over between processes: measured once, in about four
//! milliseconds of CPU time of the thread that asks.
//!
//! CPU time and not time: other programs may have the cores while this is measured.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use headspace_agent::analysis::pipeline::TransferCosts;
use headspace_agent::port::clock::thread_cpu_time;

/// Shared memory that is filled, mapped, read and given back, in mebibytes.
const MIB: u32 = 2;

/// How often that is done. The cheapest time counts: the others met something else.
const TIMES: u32 = 3;

/// Messages sent and received.
const MESSAGES: u32 = 64;

/// Bytes in one: about a descriptor's handle with its name.
const MESSAGE: [u8; 100] = [0; 100];

const PAGE: usize = 4096;

/// Measures both costs.
///
/// # Errors
///
/// Those of the system, where it gives no shared memory, no pipe or no CPU time.
pub fn measure() -> io::Result<TransferCosts> {
    let mut cheapest = Duration::MAX;
    for _ in 0..TIMES {
        cheapest = cheapest.min(shared_memory()?);
    }
    Ok(TransferCosts {
        shared_mib_ms: 1e3 * cheapest.as_secs_f64() / f64::from(MIB),
        message_us: 1e6 * messages()?.as_secs_f64() / f64::from(MESSAGES),
    })
}

fn cpu_time() -> io::Result<Duration> {
    thread_cpu_time().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// CPU time to read memory that was written elsewhere, and to give it back.
fn shared_memory() -> io::Result<Duration> {
    let bytes = (MIB as usize) << 20;
    let mut file = anonymous_file()?;
    let block = [1_u8; 1 << 13];
    for _ in 0..bytes / block.len() {
        file.write_all(&block)?;
    }
    let begun = cpu_time()?;
    read_all(&file, bytes)?;
    // The last descriptor: its memory is free again.
    drop(file);
    Ok(cpu_time()?.saturating_sub(begun))
}

/// A file that is nothing but memory, as torch and multiprocessing share it.
fn anonymous_file() -> io::Result<File> {
    // SAFETY: the name is a C string that lives through the call, which only copies it.
    let descriptor =
        unsafe { libc::memfd_create(c"headspace-transfer".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
}

/// Maps the file, reads a byte of each page, and takes the mapping back.
fn read_all(file: &File, bytes: usize) -> io::Result<()> {
    // SAFETY: the kernel chooses a place where nothing else is; the descriptor is open.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: the mapping is `bytes` long, and the file behind it as well: no page is missing.
        std::hint::black_box(unsafe { memory.cast::<u8>().add(offset).read_volatile() });
    }
    // SAFETY: exactly what was mapped above, to which no reference is left.
    if unsafe { libc::munmap(memory, bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// CPU time to send and to receive messages through a pipe, as multiprocessing's queues do.
fn messages() -> io::Result<Duration> {
    let (mut to, mut from) = io::pipe()?;
    let mut received = MESSAGE;
    let begun = cpu_time()?;
    for _ in 0..MESSAGES {
        from.write_all(&MESSAGE)?;
        to.read_exact(&mut received)?;
    }
    Ok(cpu_time()?.saturating_sub(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_costs_are_measured_and_no_descriptor_stays_open() {
        let costs = measure().unwrap();

        assert!(
            costs.shared_mib_ms > 0.001 && costs.shared_mib_ms < 50.0,
            "{costs:?}"
        );
        assert!(
            costs.message_us > 0.05 && costs.message_us < 1e3,
            "{costs:?}"
        );
    }
}
