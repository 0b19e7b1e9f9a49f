//! Tests the sources of threads on recorded files and on this machine.
//!
//! Hooks for the system call simulate hardware counters, so the real code also runs on machines without
//! such counters.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where it fails"
)]
#![allow(
    clippy::float_cmp,
    reason = "the values are written and read without arithmetic"
)]

#[path = "support/files.rs"]
mod files;
#[path = "support/fixtures.rs"]
#[allow(dead_code, reason = "each test binary needs a part of it")]
mod fixtures;
#[path = "support/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::os::raw::{c_int, c_ulong};
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::{root, write};
use fixtures::{copy, fixture};
use headspace_agent::port::{CollectError, Collector, ConsumerThread, clock::thread_cpu_time};
use headspace_collectors::perf::{Perf, PerfHardware, Threads};
use perf_event::hooks::{Hooks, RealHooks, clear_thread_hooks, set_thread_hooks, sys::bindings};
use proptest::prelude::*;
use skip::not_here;

const VOLUNTARY: &str = "process.context_switches{process.context_switch.type=voluntary}";
const INVOLUNTARY: &str = "process.context_switches{process.context_switch.type=involuntary}";
const QUEUE: &str = "headspace.thread.run_queue.time";
const CPU: &str = "headspace.thread.cpu.time";
const FAULTS: &str = "headspace.thread.page_faults";
const IPC: &str = "headspace.perf.ipc";

/// Readings by scope, then key.
type Readings = BTreeMap<String, BTreeMap<String, f64>>;

fn tick(source: &mut impl Collector) -> Result<Readings, CollectError> {
    let mut readings = Vec::new();
    source.collect(Duration::ZERO, &mut readings)?;
    let mut by_scope = Readings::new();
    for reading in readings {
        let scope = by_scope.entry(reading.scope.to_string()).or_default();
        let known = scope.insert(reading.key(), reading.value);
        assert!(known.is_none(), "{} {} twice", reading.scope, reading.key());
        let names: Vec<_> = reading.attributes.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, reading.metric.attributes);
        assert!(reading.metric.scopes.contains(&reading.scope.kind()));
    }
    Ok(by_scope)
}

fn no_consumer() -> ConsumerThread {
    ConsumerThread::default()
}

/// Lets only one test run at a time, because the tests count the open counters and the named threads of
/// the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const DEADLINE: Duration = Duration::from_secs(60);

fn burn(time: Duration) {
    let begin = thread_cpu_time().unwrap();
    while thread_cpu_time().unwrap() < begin + time {
        (0..10_000u64).for_each(|i| {
            black_box(i);
        });
    }
}

fn named<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

#[test]
fn linux_4_18_groups_threads_by_name_and_keeps_the_agent_apart() {
    let readings =
        tick(&mut Threads::with_root(fixture("linux-4.18"), no_consumer()).unwrap()).unwrap();

    let switches = |scope: &str| (readings[scope][VOLUNTARY], readings[scope][INVOLUNTARY]);
    assert_eq!(switches("thread:trainer (gpu 0)"), (150.0, 545.0));
    assert_eq!(switches("thread:pt_data_pin"), (90_210.0, 310.0));
    assert_eq!(switches("thread:pt_autograd"), (80_300.0, 1_700.0));
    assert_eq!(switches("thread:headspace"), (900.0, 2.0));
    assert_eq!(switches("thread:others"), (12.0, 0.0));
    assert_eq!(readings["thread:pt_autograd"][QUEUE], 5.0);
    assert_eq!(readings["process"][QUEUE], 41.0 + 1.5 + 5.0 + 0.01 + 0.0001);
    // Another source reports the switches of the process, including ended threads.
    assert_eq!(readings["process"].len(), 1);
    assert_eq!(readings.len(), 6);
}

#[test]
fn linux_5_15_without_schedstat_reports_only_switches() {
    let readings =
        tick(&mut Threads::with_root(fixture("linux-5.15-arm64"), no_consumer()).unwrap()).unwrap();

    assert_eq!(readings["thread:decode"][VOLUNTARY], 700.0);
    assert_eq!(readings["thread:(data\\n) R"][INVOLUNTARY], 4.0);
    assert!(readings.values().all(|scope| !scope.contains_key(QUEUE)));
}

#[test]
fn counts_of_an_ended_thread_are_kept_and_a_thread_that_reuses_its_id_starts_at_zero() {
    let root = root([]);
    let thread = |tid: u32, name: &str, voluntary: u64| {
        let status = format!(
            "Name:\t{name}\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t1\n"
        );
        write(root.path(), &format!("proc/self/task/{tid}/status"), status);
        write(
            root.path(),
            &format!("proc/self/task/{tid}/schedstat"),
            "9000 100 9\n",
        );
    };
    thread(7, "python", 100);
    thread(8, "decode-0", 50);
    let mut source = Threads::with_root(&root, no_consumer()).unwrap();
    let mut switches = |scope: &str| tick(&mut source).unwrap()[scope][VOLUNTARY];

    assert_eq!(switches("thread:decode"), 50.0);
    fs::remove_dir_all(root.path().join("proc/self/task/8")).unwrap();
    assert_eq!(switches("thread:decode"), 50.0);
    thread(9, "decode-1", 5);
    assert_eq!(switches("thread:decode"), 55.0);
    thread(9, "decode-2", 3);
    assert_eq!(switches("thread:decode"), 58.0);
    thread(9, "python", 13);
    assert_eq!(switches("thread:decode"), 58.0);
    assert_eq!(switches("thread:python"), 110.0);
}

#[test]
fn a_root_with_nothing_to_read_is_unsupported_with_the_reason() {
    let reason = Threads::with_root(root([]), no_consumer())
        .map(drop)
        .unwrap_err();
    assert!(matches!(&reason, CollectError::Unsupported { .. }));
    assert!(reason.to_string().contains("is /proc mounted?"), "{reason}");
}

const READ: [&str; 4] = [
    "proc/self/task/24117/status",
    "proc/self/task/24117/schedstat",
    "proc/self/task/24140/status",
    "proc/self/task/24140/schedstat",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_decreases_no_total(
        file in prop::sample::select(&READ[..]),
        cut: prop::sample::Index,
        bytes in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
    ) {
        let root = root([]);
        copy(&fixture("linux-4.18/proc/self/task"), &root.path().join("proc/self/task"));
        let mut source = Threads::with_root(&root, no_consumer()).unwrap();
        let before = tick(&mut source).unwrap();
        let content = fs::read(root.path().join(file)).unwrap();
        let damaged = bytes.clone().unwrap_or_else(|| content[..cut.index(content.len())].to_vec());
        write(root.path(), file, damaged);
        let damaged = tick(&mut source).unwrap();
        write(root.path(), file, content);
        let whole = tick(&mut source).unwrap();

        for (scope, readings) in &before {
            for (key, value) in readings {
                prop_assert!(damaged[scope][key] >= *value, "{} {}", scope, key);
                if bytes.is_none() {
                    prop_assert_eq!(damaged[scope][key], *value, "{} {}", scope, key);
                    prop_assert!(whole[scope][key] >= *value);
                }
            }
        }
    }
}

#[test]
fn the_consumer_is_listed_separately_and_its_waits_are_counted() {
    let _alone = alone();
    let consumer = no_consumer();
    let mut source = Threads::new(consumer.clone()).unwrap();
    named("same-name-1", || {
        consumer.set_here();
        let before = tick(&mut source).unwrap();
        for _ in 0..200 {
            std::thread::park_timeout(Duration::from_micros(50));
        }
        let after = tick(&mut source).unwrap();

        let waited = after["thread:consumer"][VOLUNTARY] - before["thread:consumer"][VOLUNTARY];
        // A wait with a timeout leaves the core once, unless the timeout is over before the wait begins.
        assert!((100.0..1000.0).contains(&waited), "{waited}");
    });
    let ended = tick(&mut source).unwrap();
    assert!(ended["thread:consumer"][VOLUNTARY] >= 100.0);
}

#[test]
fn threads_that_share_a_core_wait_for_it() {
    let _alone = alone();
    let mut source = Threads::new(no_consumer()).unwrap();
    let begin = Instant::now();
    let mut waited = 0.0;
    while waited < 0.02 {
        assert!(begin.elapsed() < DEADLINE, "{waited}");
        let all = Barrier::new(17);
        waited = std::thread::scope(|scope| {
            for _ in 0..16 {
                let (all, thread) = (&all, std::thread::Builder::new().name("crowd-1".into()));
                let work = move || {
                    burn(Duration::from_millis(20));
                    all.wait();
                    all.wait();
                };
                thread.spawn_scoped(scope, work).unwrap();
            }
            all.wait();
            let readings = tick(&mut source).unwrap();
            all.wait();
            let waited = readings
                .get("thread:crowd")
                .and_then(|crowd| crowd.get(QUEUE));
            waited.copied().unwrap_or(f64::INFINITY) // A kernel without times.
        });
    }
}

/// The source, or `None` if the kernel does not let this process count.
fn perf(consumer: ConsumerThread) -> Option<Perf> {
    match Perf::new(consumer) {
        Ok(source) => Some(source),
        Err(CollectError::Unsupported { reason, .. }) => {
            not_here(&format!("perf does not work here: {reason}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn time_on_the_core_is_counted_thread_by_thread_and_kept_when_they_end() {
    let _alone = alone();
    let consumer = no_consumer();
    let Some(mut source) = perf(consumer.clone()) else {
        return;
    };
    consumer.set_here();
    tick(&mut source).unwrap();
    let source = Mutex::new(source);
    let read = || tick(&mut *source.lock().unwrap()).unwrap();
    let before = read();
    let mut total = 0.0;
    for number in 0..3 {
        let burned = named(&format!("burner_{number}"), || {
            read(); // The source counts this thread from here on.
            let begin = thread_cpu_time().unwrap();
            burn(Duration::from_millis(30));
            let page = vec![1u8; 1 << 20];
            black_box(&page);
            let burned = thread_cpu_time().unwrap().saturating_sub(begin);
            read();
            burned.as_secs_f64()
        });
        total += burned;
    }
    burn(Duration::from_millis(20));
    let after = read();

    let burner = &after["thread:burner"];
    assert!(
        (total..total + 0.05).contains(&burner[CPU]),
        "{total} {burner:?}"
    );
    assert!(burner[FAULTS] >= 3.0, "{burner:?}");
    let here = after["thread:consumer"][CPU] - before["thread:consumer"][CPU];
    assert!((0.02..0.2).contains(&here), "{here}");
    let sum: f64 = after
        .iter()
        .filter(|(scope, _)| *scope != "process")
        .map(|(_, readings)| readings[CPU])
        .sum();
    assert!((after["process"][CPU] - sum).abs() < 1e-6);
}

#[test]
fn no_descriptor_stays_open_and_few_are_used_for_many_threads() {
    let _alone = alone();
    let counters = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let file = |entry: fs::DirEntry| fs::read_link(entry.path());
        open.filter_map(|entry| file(entry).ok())
            .filter(|file| file.as_os_str() == "anon_inode:[perf_event]")
            .count()
    };
    let Some(mut source) = perf(no_consumer()) else {
        return;
    };
    assert_eq!(counters(), 0);
    let end = Barrier::new(101);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| end.wait());
        }
        for _ in 0..30 {
            tick(&mut source).unwrap();
            assert!((2..=64).contains(&counters()), "{}", counters());
        }
        end.wait();
    });
    drop(source);
    assert_eq!(counters(), 0);
}

#[test]
fn few_descriptors_and_a_program_that_closes_those_of_others() {
    let _alone = alone();
    // The test runs in its own process, because both settings apply to the whole process.
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "in_a_process_that_tidies_up",
            "--ignored",
            "--test-threads=1",
        ])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "closes descriptors that it does not know; the test before runs it"]
fn in_a_process_that_tidies_up() {
    let limits = libc::rlimit {
        rlim_cur: 128,
        rlim_max: 128,
    };
    // SAFETY: `limits` is readable during the call.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
    assert_eq!(limited, 0);
    let counters = || {
        (3..128)
            .filter(|fd| {
                fs::read_link(format!("/proc/self/fd/{fd}"))
                    .is_ok_and(|file| file.as_os_str() == "anon_inode:[perf_event]")
            })
            .collect::<Vec<c_int>>()
    };
    let consumer = no_consumer();
    consumer.set_here();
    let Some(mut source) = perf(consumer) else {
        return;
    };
    let end = Barrier::new(21);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| end.wait());
        }
        tick(&mut source).unwrap();
        let ours = counters();
        // 1/32 of 128, with two counters per thread.
        assert_eq!(ours.len(), 4);

        let content = "somebody else's file".repeat(100);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, content.as_bytes()).unwrap();
        let begun = burned(&tick(&mut source).unwrap());
        for &fd in &ours {
            // SAFETY: this closes a descriptor of the source on purpose, as other code may do.
            assert!(unsafe { libc::dup2(file.as_raw_fd(), fd) } >= 0);
        }
        // All descriptors share one position, so reading any of them would move it.
        // SAFETY: the call takes no pointer.
        let position = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_SET) };
        assert_eq!(position, 0);
        for _ in 0..3 {
            tick(&mut source).unwrap();
        }
        // SAFETY: the call takes no pointer.
        let position = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) };
        assert_eq!(position, 0);

        // The source counts again, with new descriptors.
        burn(Duration::from_millis(20));
        let later = burned(&tick(&mut source).unwrap());
        assert!(later >= begun + 0.015, "{begun} {later}");
        assert_eq!(counters().len(), 4);
        drop(source);
        assert_eq!(counters().len(), 0);
        for &fd in &ours {
            // SAFETY: the descriptor is still open, and is closed only here.
            assert_eq!(unsafe { libc::close(fd) }, 0, "{fd} was closed");
        }
        end.wait();
    });
}

fn burned(readings: &Readings) -> f64 {
    readings["thread:consumer"][CPU]
}

/// Simulates the hardware events of a processor.
struct Processor {
    answer: fn(u64) -> Answer,
    real: RealHooks,
}

#[derive(Clone, Copy)]
enum Answer {
    /// Counts a software event instead.
    Software(u32),
    Error(c_int),
}

impl Hooks for Processor {
    unsafe fn perf_event_open(
        &mut self,
        attrs: *mut bindings::perf_event_attr,
        pid: libc::pid_t,
        cpu: c_int,
        group: c_int,
        flags: c_ulong,
    ) -> c_int {
        // SAFETY: the library passes a pointer to its own description, which is valid during the call.
        let event = unsafe { &mut *attrs };
        if event.type_ == bindings::PERF_TYPE_HARDWARE {
            match (self.answer)(event.config) {
                Answer::Software(config) => {
                    event.type_ = bindings::PERF_TYPE_SOFTWARE;
                    event.config = config.into();
                }
                Answer::Error(code) => {
                    // SAFETY: the pointer is the calling thread's own `errno`.
                    unsafe { *libc::__errno_location() = code };
                    return -1;
                }
            }
        }
        // SAFETY: as the caller's.
        unsafe { self.real.perf_event_open(attrs, pid, cpu, group, flags) }
    }

    unsafe fn ID(&mut self, fd: c_int, id: *mut u64) -> c_int {
        // SAFETY: as the caller's.
        unsafe { self.real.ID(fd, id) }
    }
}

/// Runs `work` with a simulated processor.
fn with_processor<T>(answer: fn(u64) -> Answer, work: impl FnOnce() -> T) -> T {
    let real = RealHooks;
    // SAFETY: `Processor` makes the system calls with unchanged arguments. Only calls of this thread use it,
    // and it is removed again below.
    unsafe { set_thread_hooks(Box::new(Processor { answer, real })) };
    let result = work();
    // SAFETY: restores the calls of the system.
    unsafe { clear_thread_hooks() };
    result
}

fn instructions_and_cycles(config: u64) -> Answer {
    match u32::try_from(config).unwrap() {
        bindings::PERF_COUNT_HW_INSTRUCTIONS
        | bindings::PERF_COUNT_HW_CPU_CYCLES
        | bindings::PERF_COUNT_HW_CACHE_REFERENCES => {
            Answer::Software(bindings::PERF_COUNT_SW_TASK_CLOCK)
        }
        bindings::PERF_COUNT_HW_CACHE_MISSES => {
            Answer::Software(bindings::PERF_COUNT_SW_PAGE_FAULTS)
        }
        _ => Answer::Error(libc::ENOENT),
    }
}

#[test]
fn existing_processor_counters_are_reported_and_missing_ones_are_absent() {
    let _alone = alone();
    if perf(no_consumer()).is_none() {
        return;
    }
    let consumer = no_consumer();
    consumer.set_here();
    let readings = with_processor(instructions_and_cycles, || {
        let mut source = PerfHardware::new(consumer).unwrap();
        tick(&mut source).unwrap();
        burn(Duration::from_millis(30));
        tick(&mut source).unwrap()
    });

    let here = &readings["thread:consumer"];
    for name in ["instructions", "cycles", "cache.references"] {
        let nanos = here[&format!("headspace.perf.{name}")];
        assert!((25e6..300e6).contains(&nanos), "{name} {nanos}");
    }
    assert!((0.9..1.1).contains(&here[IPC]), "{here:?}");
    assert!(
        (0.0..0.01).contains(&here["headspace.perf.cache.miss_ratio"]),
        "{here:?}"
    );
    assert!(
        readings
            .values()
            .all(|scope| scope.keys().all(|key| !key.contains("stalled")))
    );
    // Groups other than the consumer's have only ratios.
    for (scope, readings) in &readings {
        if scope.starts_with("thread:") && scope != "thread:consumer" {
            assert!(readings.len() <= 2, "{scope} {readings:?}");
        }
    }
}

#[test]
fn a_refusal_is_explained_and_remedied() {
    let _alone = alone();
    let refused = |answer| match with_processor(answer, || PerfHardware::new(no_consumer())) {
        Err(CollectError::Unsupported { reason, remedy }) => (reason, remedy),
        other => panic!("{other:?}"),
    };

    let (reason, remedy) = refused(|_| Answer::Error(libc::ENOENT));
    assert!(
        reason.contains("virtual machines") && remedy.is_none(),
        "{reason}"
    );
    let (reason, remedy) = refused(|_| Answer::Error(libc::EOPNOTSUPP));
    assert!(
        reason.contains("virtual machines") && remedy.is_none(),
        "{reason}"
    );
    for refusal in [
        |_| Answer::Error(libc::EACCES),
        |_| Answer::Error(libc::EPERM),
    ] {
        assert!(refused(refusal).1.is_some());
    }
    // A missing permission has a remedy, so it is reported first.
    let (_, remedy) = refused(|config| {
        Answer::Error(if config == 0 {
            libc::ENOENT
        } else {
            libc::EPERM
        })
    });
    assert!(remedy.is_some());
}

#[test]
fn this_machine_has_counters_or_a_stated_reason() {
    let _alone = alone();
    let consumer = no_consumer();
    consumer.set_here();
    match PerfHardware::new(consumer) {
        Ok(mut source) => {
            tick(&mut source).unwrap();
            burn(Duration::from_millis(50));
            let readings = tick(&mut source).unwrap();
            let ipc = readings["thread:consumer"].get(IPC).copied();
            assert!(
                ipc.is_none_or(|ipc| (0.05..20.0).contains(&ipc)),
                "{readings:?}"
            );
            eprintln!("counted: {:?}", readings["thread:consumer"]);
        }
        Err(CollectError::Unsupported { reason, .. }) => {
            assert!(!reason.is_empty() && !reason.ends_with('.'));
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn totals_never_decrease_while_threads_start_and_end() {
    let _alone = alone();
    let consumer = no_consumer();
    let mut threads = Threads::new(consumer.clone()).unwrap();
    let mut perf = perf(consumer);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let storm = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut number = 0u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                number += 1;
                named(&format!("worker{}-{number}", number % 12), || {
                    burn(Duration::from_micros(300));
                });
            }
        })
    };
    let mut last = Readings::new();
    for _ in 0..150 {
        let mut all = tick(&mut threads).unwrap();
        for (scope, readings) in perf
            .as_mut()
            .map(|perf| tick(perf).unwrap())
            .unwrap_or_default()
        {
            all.entry(scope).or_default().extend(readings);
        }
        assert!(all.len() <= 10, "{:?}", all.keys());
        for (scope, readings) in all {
            for (key, value) in readings {
                let before = last
                    .entry(scope.clone())
                    .or_default()
                    .insert(key.clone(), value);
                assert!(before.is_none_or(|before| before <= value), "{scope} {key}");
            }
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    storm.join().unwrap();
}
