//! Compares the readings of the sources on this machine with the same values from other tools and APIs.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![allow(
    clippy::float_cmp,
    reason = "the values are written and read without arithmetic"
)]

#[path = "support/skip.rs"]
mod skip;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use headspace_agent::model::Scope;
use headspace_agent::port::Collector;
use headspace_collectors::host::{Host, describe};
use headspace_collectors::process::Process;
use skip::not_here;
use support::tick;

/// Much longer than any of the waits below.
const DEADLINE: Duration = Duration::from_secs(60);

const USER: &str = "process.cpu.time{cpu.mode=user}";
const SYSTEM: &str = "process.cpu.time{cpu.mode=system}";

fn process() -> BTreeMap<String, f64> {
    tick(&mut Process::new().unwrap()).unwrap()
}

fn spin_until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < DEADLINE,
            "not reached within {DEADLINE:?}"
        );
        for i in 0..100_000u64 {
            black_box(i);
        }
    }
}

#[test]
fn cpu_time_grows_by_the_time_that_the_process_spins() {
    let mut source = Process::new().unwrap();
    let before = tick(&mut source).unwrap();

    spin_until(|| tick(&mut source).unwrap()[USER] >= before[USER] + 0.05);
}

#[test]
fn cpu_time_agrees_with_the_clock_ticks_of_stat() {
    // Parses fields 14 and 15 of `stat` independently.
    let by_hand = || {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<_> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        // SAFETY: `sysconf` takes no pointer.
        ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
    };
    let (low, readings, high) = (by_hand(), process(), by_hand());

    let total = readings[USER] + readings[SYSTEM];
    // Both fields of `stat` are rounded down to a tick of 10 ms.
    assert!(
        low <= total + 1e-9 && total <= high + 0.021,
        "{low} {total} {high}"
    );
}

#[test]
fn resident_memory_grows_by_touched_pages_and_falls_when_they_are_freed() {
    const SIZE: usize = 64 << 20;
    let before = process();

    let touched = vec![1u8; SIZE];
    let with = process();
    black_box(&touched);
    drop(touched);
    let after = process();

    // Half is enough: concurrent tests free memory, and the kernel counts in batches.
    let half = (SIZE / 2) as f64;
    assert!(with["process.memory.usage"] >= before["process.memory.usage"] + half);
    assert!(with["process.memory.virtual"] >= before["process.memory.virtual"] + half);
    assert!(after["process.memory.usage"] <= with["process.memory.usage"] - half);
    // Touching costs one fault per page, or per huge page.
    let faults = "process.paging.faults{system.paging.fault.type=minor}";
    assert!(with[faults] >= before[faults] + 32.0);
}

#[test]
fn threads_are_counted_while_they_run() {
    let before = process()["process.thread.count"];
    let (all_run, all_end) = (Arc::new(Barrier::new(41)), Arc::new(Barrier::new(41)));
    let threads: Vec<_> = (0..40)
        .map(|_| {
            let (all_run, all_end) = (all_run.clone(), all_end.clone());
            std::thread::spawn(move || {
                all_run.wait();
                all_end.wait();
            })
        })
        .collect();
    all_run.wait();
    let during = process()["process.thread.count"];
    all_end.wait();
    for thread in threads {
        thread.join().unwrap();
    }

    // The margin is wide: meanwhile the test harness starts and ends fewer than 20 threads.
    assert!(during >= before + 20.0, "{before} {during}");
}

#[test]
fn bytes_read_by_call_are_counted_as_requested() {
    let key = "headspace.process.io.requested{disk.io.direction=read}";
    let before = process();
    if !before.contains_key(key) {
        return not_here("platform: a kernel without I/O accounting");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![7u8; 3 << 20]).unwrap();
    assert_eq!(fs::read(file.path()).unwrap().len(), 3 << 20);
    let after = process();

    assert!(after[key] >= before[key] + 3e6);
    let written = "headspace.process.io.requested{disk.io.direction=write}";
    assert!(after[written] >= before[written] + 3e6);
}

#[test]
fn totals_never_decrease_while_threads_start_and_end() {
    let mut source = Process::new().unwrap();
    let mut before = tick(&mut source).unwrap();
    for _ in 0..200 {
        std::thread::spawn(|| black_box((0..10_000u64).sum::<u64>()))
            .join()
            .unwrap();
        let now = tick(&mut source).unwrap();
        for (key, value) in &before {
            if !key.contains("memory") && !key.contains("thread") {
                assert!(now[key] >= *value, "{key}: {} after {value}", now[key]);
            }
        }
        before = now;
    }
}

#[test]
fn every_reading_has_the_attributes_its_metric_declares() {
    let mut readings = Vec::new();
    Process::new()
        .unwrap()
        .collect(Duration::ZERO, &mut readings)
        .unwrap();
    let of_process = readings.len();
    Host::new()
        .unwrap()
        .collect(Duration::ZERO, &mut readings)
        .unwrap();

    for (index, reading) in readings.iter().enumerate() {
        let names: Vec<_> = reading.attributes.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, reading.metric.attributes, "{}", reading.key());
        let scope = if index < of_process {
            Scope::Process
        } else {
            Scope::Host
        };
        assert_eq!(reading.scope, scope);
    }
}

#[test]
fn cores_agree_with_the_standard_library_and_with_nproc() {
    let readings = tick(&mut Host::new().unwrap()).unwrap();
    let nproc = |argument: &[&str]| {
        let output = Command::new("nproc")
            .args(argument)
            .env_remove("OMP_NUM_THREADS")
            .output();
        String::from_utf8(output.unwrap().stdout)
            .unwrap()
            .trim()
            .parse::<f64>()
            .unwrap()
    };

    let affinity = readings["headspace.host.cpu.affinity"];
    assert!(affinity <= readings["system.cpu.logical.count"]);
    if let Some(&usable) = readings.get("headspace.host.cpu.usable") {
        let quota = readings
            .get("headspace.host.cpu.quota")
            .copied()
            .unwrap_or(f64::INFINITY);
        assert_eq!(usable, affinity.min(quota));
        // The standard library rounds the quota down, to one core at least.
        let known = std::thread::available_parallelism().unwrap().get() as f64;
        assert_eq!(usable.floor().max(1.0), known);
    }
    // Newer versions of `nproc` also consider the quota, so their result may be below the affinity.
    assert!(nproc(&[]) <= affinity);
    assert!(nproc(&["--all"]) >= readings["system.cpu.logical.count"]);
}

#[test]
fn spinning_keeps_the_cores_busy() {
    let mut source = Host::new().unwrap();
    let key = "headspace.host.cpu.utilization";
    let cores = tick(&mut source).unwrap()["headspace.host.cpu.affinity"];
    let mut best = 0.0f64;

    // A spinning thread keeps one core busy, minus the resolution of the clock ticks.
    let mut last = Instant::now();
    spin_until(|| {
        if last.elapsed() >= Duration::from_millis(200) {
            last = Instant::now();
            if let Some(&share) = tick(&mut source).unwrap().get(key) {
                assert!((0.0..=1.0).contains(&share));
                best = best.max(share);
            }
        }
        best >= 0.5 / cores
    });
}

#[test]
fn the_machine_is_described_as_uname_does() {
    let uname = |what: &str| {
        let output = Command::new("uname").arg(what).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };

    let host = describe();

    assert_eq!(host.name, Some(uname("-n")));
    assert_eq!(
        host.kernel,
        Some(format!("{} {}", uname("-s"), uname("-r")))
    );
    assert!(host.cpu_model.is_some());
    assert!(host.memory_bytes > Some(64 << 20));
}
