//! Measures the cost of one tick.
//!
//! `cargo bench -p headspace-collectors --bench tick`. The target is 1 ms for all sources together.
//! `file_opened` and `file_kept` show the cost of opening a file again at each tick.
//!
//! All values are medians, measured in November 2026, from virtual machines with 2 cores.
//!
//! Xeon cores at 2.3 GHz, Linux 6.18:
//! - `process`: 7.7 µs (8.3 µs with 10 threads, 14 µs with 100, 59 µs with 1,000);
//! - `host`: 13 µs;
//! - to open a file at each tick costs 2.1 µs more than to keep it open.
//!
//! EPYC cores:
//! - `pressure`: 12 µs; `cgroup`: 27 µs; `network`: 8.5 µs;
//! - `disk`: 6.4 µs (230 µs if it searches for the files in use).
//!
//! The following sources have their own threads. Each is read at most once in one or two seconds. By default, it
//! then pauses for at least 1,000 times the CPU time of the reading. Xeon cores:
//! - `tree`: 24 µs without children, 0.18 ms with 8, 1.3 ms with 64;
//! - `tree_memory`: 57 µs without children, 0.40 ms with 8, 3.1 ms with 64;
//! - `threads`: 38 µs for one thread, 0.18 ms for 10, 1.8 ms for 100;
//! - `perf`: 15 µs for one thread, 0.11 ms for 10, 0.38 ms for 100 (it watches 32 of them).

#![allow(
    clippy::expect_used,
    reason = "a benchmark stops where it cannot measure"
)]

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use divan::Bencher;
use headspace_agent::port::{CollectError, Collector, Pace};
use headspace_collectors::catalog::{Catalog, Settings};
use headspace_collectors::host::{self, ControlGroup, Host, Pressure};
use headspace_collectors::io::{Disk, Network};
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

/// Measures nothing if the source is off on this machine.
fn collect_if_on<C: Collector>(bencher: Bencher, source: Result<C, CollectError>) {
    if let Ok(mut source) = source {
        collect(bencher, &mut source);
    }
}

#[divan::bench]
fn tick_of_pressure(bencher: Bencher) {
    collect_if_on(bencher, Pressure::new());
}

#[divan::bench]
fn tick_of_cgroup(bencher: Bencher) {
    collect_if_on(bencher, ControlGroup::new());
}

#[divan::bench]
fn tick_of_network(bencher: Bencher) {
    collect_if_on(bencher, Network::new());
}

/// This source has its own thread. Every tenth reading searches for the files in use, and is the most expensive.
#[divan::bench]
fn reading_of_disk(bencher: Bencher) {
    collect_if_on(bencher, Disk::new());
}

/// Reads all sources that work here. The time that they receive advances by one second per reading.
fn collect_all(bencher: Bencher, wanted: impl Fn(&dyn Collector) -> bool) {
    let mut sources = Catalog::open(&Settings::default()).into_collectors();
    sources.retain(|source| wanted(&**source));
    let mut readings = Vec::with_capacity(256);
    let mut at = Duration::ZERO;
    bencher.bench_local(|| {
        readings.clear();
        for source in &mut sources {
            // A source may fail temporarily. The benchmark continues.
            let _ = source.collect(at, &mut readings);
        }
        at += Duration::from_secs(1);
        readings.len()
    });
}

/// The sources that the sampling thread reads.
#[divan::bench]
fn tick_of_all_sources(bencher: Bencher) {
    collect_all(bencher, |source| source.pace() == Pace::Tick);
}

/// The sources with their own threads. Each iteration reads each of them once, regardless of its pace.
#[divan::bench]
fn reading_of_all_sources_apart(bencher: Bencher) {
    collect_all(bencher, |source| source.pace() != Pace::Tick);
}

/// A training process has many threads. The kernel adds up counts over all of them at each reading.
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
fn once_age() -> Option<Duration> {
    process::age()
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

/// The sources that count each thread. Each source has its own thread and a pace of 2 s.
#[cfg(feature = "perf")]
mod of_threads {
    use std::sync::Barrier;

    use divan::Bencher;
    use headspace_agent::port::{Collector, ConsumerThread};
    use headspace_collectors::perf::{Perf, PerfHardware, Threads};

    fn beside(bencher: Bencher, threads: usize, source: Option<impl Collector>) {
        // `None`: this machine does not have these counters.
        let Some(mut source) = source else { return };
        let end = Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| end.wait());
            }
            super::collect(bencher, &mut source);
            end.wait();
        });
    }

    fn consumer() -> ConsumerThread {
        let consumer = ConsumerThread::default();
        consumer.set_here();
        consumer
    }

    #[divan::bench(args = [1, 10, 100])]
    fn tick_of_threads(bencher: Bencher, threads: usize) {
        beside(bencher, threads, Threads::new(consumer()).ok());
    }

    #[divan::bench(args = [1, 10, 100])]
    fn tick_of_perf(bencher: Bencher, threads: usize) {
        beside(bencher, threads, Perf::new(consumer()).ok());
    }

    #[divan::bench(args = [1, 10, 100])]
    fn tick_of_perf_hardware(bencher: Bencher, threads: usize) {
        beside(bencher, threads, PerfHardware::new(consumer()).ok());
    }
}

/// The sources that walk the tree of processes. Each has its own thread, and a pace of 1 s (`tree`) or 2 s
/// (`tree_memory`).
#[cfg(feature = "tree")]
mod of_the_tree {
    use std::process::{Child, Command, Stdio};

    use divan::Bencher;
    use headspace_agent::port::Collector;
    use headspace_collectors::tree::{Tree, TreeMemory};

    fn beside(bencher: Bencher, children: usize, mut source: impl Collector) {
        let child = |_| {
            let mut cat = Command::new("cat");
            cat.stdin(Stdio::piped()).stdout(Stdio::null());
            cat.spawn().expect("`cat` is there")
        };
        let children: Vec<Child> = (0..children).map(child).collect();
        super::collect(bencher, &mut source);
        for mut child in children {
            drop(child.stdin.take());
            child.wait().expect("it ends with its input");
        }
    }

    #[divan::bench(args = [0, 8, 64])]
    fn tick_of_tree(bencher: Bencher, children: usize) {
        beside(bencher, children, Tree::new().expect("/proc is there"));
    }

    #[divan::bench(args = [0, 8, 64])]
    fn tick_of_tree_memory(bencher: Bencher, children: usize) {
        beside(
            bencher,
            children,
            TreeMemory::new().expect("/proc is there"),
        );
    }
}
