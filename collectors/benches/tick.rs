//! What one tick costs.
//!
//! `cargo bench -p headspace-collectors --bench tick`; the target is 1 ms for all sources together.
//! `file_opened` and `file_kept` show what opening a file anew at each tick adds.
//!
//! Baseline, November 2026, virtual machine with 2 Xeon cores at 2.3 GHz, Linux 6.18, medians:
//! `process` 7.7 µs (8.3 with 10 threads, 14 with 100, 59 with 1,000), `host` 13 µs; a file opened
//! anew costs 2.1 µs more than one kept open.

#![allow(
    clippy::expect_used,
    reason = "a benchmark stops where it cannot measure"
)]

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use divan::Bencher;
use headspace_agent::port::Collector;
use headspace_collectors::host::{self, Host};
use headspace_collectors::process::{self, Process};

fn main() {
    divan::main();
}

fn collect(bencher: Bencher, source: &mut impl Collector) {
    let mut readings = Vec::with_capacity(64);
    bencher.bench_local(|| {
        readings.clear();
        source
            .collect(Duration::ZERO, &mut readings)
            .expect("the source works here");
        readings.len()
    });
}

#[divan::bench]
fn tick_of_process(bencher: Bencher) {
    collect(bencher, &mut Process::new().expect("/proc is there"));
}

#[divan::bench]
fn tick_of_host(bencher: Bencher) {
    collect(bencher, &mut Host::new().expect("/proc is there"));
}

/// As in a training process: the kernel adds up counts over all threads at each look.
#[divan::bench(args = [10, 100, 1_000])]
fn tick_of_process_with_threads(bencher: Bencher, threads: usize) {
    let end = std::sync::Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| end.wait());
        }
        collect(bencher, &mut Process::new().expect("/proc is there"));
        end.wait();
    });
}

#[divan::bench]
fn once_new_process() -> Process {
    Process::new().expect("/proc is there")
}

#[divan::bench]
fn once_new_host() -> Host {
    Host::new().expect("/proc is there")
}

#[divan::bench]
fn once_describe() -> Option<u64> {
    host::describe().memory_bytes
}

#[divan::bench]
fn once_started_at() -> Option<Duration> {
    process::started_at()
}

const FILES: [&str; 3] = ["/proc/self/stat", "/proc/self/statm", "/proc/stat"];

#[divan::bench(args = FILES)]
fn file_opened(bencher: Bencher, path: &str) {
    let mut buffer = Vec::with_capacity(65_536);
    bencher.bench_local(|| {
        buffer.clear();
        File::open(path).and_then(|mut file| file.read_to_end(&mut buffer))
    });
}

#[divan::bench(args = FILES)]
fn file_kept(bencher: Bencher, path: &str) {
    let file = File::open(path).expect("/proc is there");
    let mut buffer = vec![0; 65_536];
    bencher.bench_local(|| file.read_at(&mut buffer, 0));
}
