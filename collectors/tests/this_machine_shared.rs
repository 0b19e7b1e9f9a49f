//! Tests the sources of shared resources on this machine: values change with the activity that they
//! measure, and not with other activity.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "support/skip.rs"]
mod skip;
mod support;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headspace_agent::port::{CollectError, Collector};
use headspace_collectors::host::{ControlGroup, Host, Pressure};
use headspace_collectors::io::{Disk, Network};
use skip::not_here;
use support::tick;

/// Much longer than any of the waits below.
const DEADLINE: Duration = Duration::from_secs(60);

const MIB: usize = 1 << 20;

/// Number of bytes sent over loopback.
const SIZE: usize = 256 * MIB;

/// Calls a function until it returns true.
fn until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < DEADLINE,
            "not reached within {DEADLINE:?}"
        );
        thread::yield_now();
    }
}

/// Ends the threads even if the body panics. Otherwise the scope would wait for them forever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` while other threads spin.
fn while_spinning(threads: usize, body: impl FnOnce()) {
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    (0..10_000u64).for_each(|i| {
                        black_box(i);
                    });
                }
            });
        }
        let ends = Ends(&end);
        body();
        drop(ends);
    });
}

#[test]
fn threads_that_spin_are_runnable() {
    let mut source = Host::new().unwrap();

    while_spinning(12, || {
        until(|| tick(&mut source).unwrap()["headspace.host.threads.runnable"] >= 12.0);
    });
}

#[test]
fn more_threads_than_cores_cause_cpu_pressure_or_a_stated_reason() {
    let mut source = match Pressure::new() {
        Ok(source) => source,
        Err(error) => {
            assert!(matches!(error, CollectError::Unsupported { .. }));
            return not_here(&format!("platform: {error}"));
        }
    };
    let waited = |source: &mut Pressure| {
        let readings = tick(source).unwrap();
        readings["headspace.pressure.time{resource=cpu,stalled=some}"]
    };
    let before = waited(&mut source);
    let cores = thread::available_parallelism().unwrap().get();

    while_spinning(cores * 4, || until(|| waited(&mut source) >= before + 0.2));
}

#[test]
fn touched_memory_is_charged_to_the_group_or_there_is_a_stated_reason() {
    let mut source = match ControlGroup::new() {
        Ok(source) => source,
        Err(error) => {
            assert!(matches!(error, CollectError::Unsupported { .. }));
            return not_here(&format!("platform: {error}"));
        }
    };
    let mut usage = || {
        let readings = tick(&mut source).unwrap();
        readings.get("headspace.cgroup.memory.usage").copied()
    };
    if usage().is_none() {
        return not_here("platform: a group with a quota alone");
    }
    // Other processes of the group may free memory meanwhile. So each attempt is compared with the
    // usage just before it.
    until(|| {
        let before = usage().unwrap();
        let held = black_box(vec![1u8; 32 * MIB]);
        let after = usage().unwrap();
        drop(held);
        after >= before + 16e6
    });
}

/// Sums over the disks.
fn disks(source: &mut Disk, key: &str) -> f64 {
    let mut readings = Vec::new();
    source.collect(Duration::ZERO, &mut readings).unwrap();
    let of_key = readings.iter().filter(|reading| reading.key() == key);
    of_key.map(|reading| reading.value).sum()
}

#[test]
fn a_file_written_and_read_past_the_cache_moves_the_disk_under_it() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut file = tempfile::tempfile_in(folder).unwrap();
    // The file stays open, because its disk is found by the path of an open file.
    let _kept = tempfile::NamedTempFile::new_in(folder).unwrap();
    let Ok(mut source) = Disk::new() else {
        return not_here("platform: no block devices");
    };
    let (read, written) = (
        "system.disk.io{disk.io.direction=read}",
        "system.disk.io{disk.io.direction=write}",
    );
    if disks(&mut source, written) == 0.0 {
        return not_here("platform: a file system without a device that is seen from here");
    }
    let (read_before, written_before) = (disks(&mut source, read), disks(&mut source, written));

    file.write_all(&vec![7; 8 * MIB]).unwrap();
    file.sync_all().unwrap();
    until(|| disks(&mut source, written) >= written_before + 8e6);
    until(|| {
        // SAFETY: the call takes no pointer, and the descriptor is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        file.rewind().unwrap();
        let mut content = Vec::new();
        assert_eq!(file.read_to_end(&mut content).unwrap(), 8 * MIB);
        disks(&mut source, read) >= read_before + 8e6
    });
}

#[test]
fn bytes_over_loopback_are_not_counted() {
    let Ok(mut source) = Network::new() else {
        return not_here("platform: a network namespace of loopback alone");
    };
    let before = tick(&mut source).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sender = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let block = vec![1; MIB];
        (0..SIZE / MIB).for_each(|_| stream.write_all(&block).unwrap());
    });
    let (mut stream, _) = listener.accept().unwrap();
    let received = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    sender.join().unwrap();

    assert_eq!(received, SIZE as u64);
    // Other programs may use the network meanwhile, but they transfer much less within a second.
    for (key, after) in tick(&mut source).unwrap() {
        assert!(after - before[&key] < (SIZE / 2) as f64, "{key}");
    }
}

#[test]
fn every_reading_has_a_scope_and_the_attributes_that_its_metric_declares() {
    let mut sources: Vec<Box<dyn Collector>> = Vec::new();
    sources.extend(Pressure::new().map(|it| Box::new(it) as Box<dyn Collector>));
    sources.extend(ControlGroup::new().map(|it| Box::new(it) as Box<dyn Collector>));
    sources.extend(Disk::new().map(|it| Box::new(it) as Box<dyn Collector>));
    sources.extend(Network::new().map(|it| Box::new(it) as Box<dyn Collector>));
    let mut readings = Vec::new();
    for second in 1..3 {
        for source in &mut sources {
            let at = Duration::from_secs(second);
            source.collect(at, &mut readings).unwrap();
        }
    }

    let mut seen = BTreeMap::new();
    for reading in &readings {
        let names: Vec<_> = reading.attributes.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, reading.metric.attributes, "{}", reading.key());
        assert!(
            reading.metric.scopes.contains(&reading.scope.kind()),
            "{}",
            reading.key()
        );
        *seen
            .entry((reading.scope.clone(), reading.key()))
            .or_insert(0) += 1;
    }
    assert!(seen.values().all(|&times| times <= 2), "{seen:?}");
}
