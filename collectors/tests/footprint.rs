//! Checks that a tick of the sources allocates no memory and keeps no descriptor.
//!
//! There is only one test in this process, because it counts for the whole process.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headspace_agent::port::Collector;
use headspace_collectors::host::{ControlGroup, Host, Pressure};
use headspace_collectors::io::Network;
use headspace_collectors::process::Process;

/// The system's allocator. It counts the allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, through `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_tick_leaves_no_descriptor_open_and_allocates_nothing_once_warm() {
    let before = descriptors();
    let (mut process, mut host) = (Process::new().unwrap(), Host::new().unwrap());
    // These sources are not available on some machines.
    let mut pressure = Pressure::new().ok();
    let (mut group, mut network) = (ControlGroup::new().ok(), Network::new().ok());
    assert_eq!(descriptors(), before);

    let mut readings = Vec::with_capacity(64);
    let mut tick = || {
        readings.clear();
        process.collect(Duration::ZERO, &mut readings).unwrap();
        host.collect(Duration::ZERO, &mut readings).unwrap();
        if let Some(source) = &mut pressure {
            source.collect(Duration::ZERO, &mut readings).unwrap();
        }
        if let Some(source) = &mut group {
            source.collect(Duration::ZERO, &mut readings).unwrap();
        }
        if let Some(source) = &mut network {
            source.collect(Duration::ZERO, &mut readings).unwrap();
        }
    };
    (0..10).for_each(|_| tick());
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    (0..1_000).for_each(|_| tick());

    // The main thread of the test harness may allocate meanwhile. If ticks allocated, there would be at least 1,000.
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    assert!(allocated < 100, "{allocated} allocations in 1,000 ticks");
    assert_eq!(descriptors(), before);
}
