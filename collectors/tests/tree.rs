//! Tests the sources of the process tree on recorded files, damaged files, and real child processes.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![allow(
    clippy::float_cmp,
    reason = "the values are written and read without arithmetic"
)]

#[path = "support/files.rs"]
mod files;
#[path = "support/fixtures.rs"]
#[allow(dead_code, reason = "each test binary needs a part of it")]
mod fixtures;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::{root, write};
use fixtures::{copy, fixture};
use headspace_agent::port::{CollectError, Collector, Pace};
use headspace_collectors::tree::{Tree, TreeMemory};
use proptest::prelude::*;
use support::tick;

const USER: &str = "process.cpu.time{cpu.mode=user}";
const SYSTEM: &str = "process.cpu.time{cpu.mode=system}";
const MINOR: &str = "process.paging.faults{system.paging.fault.type=minor}";
const MAJOR: &str = "process.paging.faults{system.paging.fault.type=major}";
const DISK_READ: &str = "process.disk.io{disk.io.direction=read}";
const DISK_WRITE: &str = "process.disk.io{disk.io.direction=write}";
const REQUESTED_READ: &str = "headspace.process.io.requested{disk.io.direction=read}";
const REQUESTED_WRITE: &str = "headspace.process.io.requested{disk.io.direction=write}";
const RESIDENT: &str = "process.memory.usage";
const ANONYMOUS: &str = "headspace.process.memory.anonymous";
const PROPORTIONAL: &str = "headspace.process.memory.proportional";
const FILES: &str = "process.unix.file_descriptor.count";
const PROCESSES: &str = "headspace.process.count";
const THREADS: &str = "process.thread.count";

const COUNTERS: [&str; 8] = [
    USER,
    SYSTEM,
    MINOR,
    MAJOR,
    DISK_READ,
    DISK_WRITE,
    REQUESTED_READ,
    REQUESTED_WRITE,
];

fn page_size() -> f64 {
    // SAFETY: `sysconf` takes no pointer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as f64 }
}

fn tree_of(root: impl AsRef<Path>) -> Result<BTreeMap<String, f64>, CollectError> {
    tick(&mut Tree::with_root(root)?)
}

/// Readings by scope and key.
fn memory_of(root: impl AsRef<Path>) -> Result<BTreeMap<String, f64>, CollectError> {
    let mut readings = Vec::new();
    TreeMemory::with_root(root)?.collect(Duration::ZERO, &mut readings)?;
    let keyed = |reading: &headspace_agent::model::Reading| {
        (
            format!("{} {}", reading.scope, reading.key()),
            reading.value,
        )
    };
    Ok(readings.iter().map(keyed).collect())
}

fn expected<const N: usize>(values: [(&str, f64); N]) -> BTreeMap<String, f64> {
    values
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

#[test]
fn linux_4_18_with_a_worker_below_another_thread_and_a_decoder_below_a_worker() {
    let readings = tree_of(fixture("linux-4.18")).unwrap();

    let pages = 1_230_011.0 + 310_022.0 + 309_988.0 + 20_480.0;
    let backed = 88_120.0 + 2.0 * 70_110.0 + 4_000.0;
    assert_eq!(
        readings,
        expected([
            (
                USER,
                (183_421.0 + 41.0 + 40_210.0 + 77.0 + 39_880.0 + 510.0) / 100.0
            ),
            (
                SYSTEM,
                (9_207.0 + 12.0 + 1_830.0 + 9.0 + 1_790.0 + 22.0) / 100.0
            ),
            (
                MINOR,
                4_193_002.0 + 882.0 + 81_000.0 + 120.0 + 79_000.0 + 3_100.0
            ),
            (MAJOR, 311.0 + 12.0 + 1.0 + 10.0 + 4.0),
            (
                DISK_READ,
                52_613_349_376.0 + 2.0 * 7_516_192_768.0 + 268_435_456.0
            ),
            (DISK_WRITE, 4_096.0 + 4_096.0),
            (
                REQUESTED_READ,
                323_934_931.0 + 17_900_000_000.0 + 250_000_000.0
            ),
            (REQUESTED_WRITE, 323_929.0 + 51_200.0 + 49_152.0 + 8_192.0),
            (RESIDENT, pages * page_size()),
            (ANONYMOUS, (pages - backed) * page_size()),
            (PROCESSES, 4.0),
            (THREADS, 74.0 + 9.0 + 9.0 + 3.0),
        ])
    );
    assert_eq!(
        memory_of(fixture("linux-4.18")).unwrap(),
        expected([
            (&format!("process {PROPORTIONAL}"), 4_600_100.0 * 1024.0),
            (&format!("process {FILES}"), 7.0),
            (
                &format!("tree {PROPORTIONAL}"),
                (4_600_100.0 + 410_000.0 + 409_000.0 + 80_000.0) * 1024.0
            ),
            (&format!("tree {FILES}"), 7.0 + 5.0 + 5.0 + 4.0),
        ])
    );
}

#[test]
fn linux_5_15_without_lists_of_children_finds_them_by_their_parents() {
    let readings = tree_of(fixture("linux-5.15-arm64")).unwrap();

    assert_eq!(readings[PROCESSES], 3.0);
    assert_eq!(readings[THREADS], 17.0 + 4.0 + 2.0);
    assert_eq!(readings[USER], (6150.0 + 900.0 + 450.0 + 20.0) / 100.0);
    assert!(readings.keys().all(|key| !key.contains(".io")));
    let memory = memory_of(fixture("linux-5.15-arm64")).unwrap();
    assert_eq!(memory[&format!("tree {PROPORTIONAL}")], 700_000.0 * 1024.0);
}

#[test]
fn a_value_that_is_unreadable_for_one_member_is_absent_for_the_tree() {
    let readings = tree_of(fixture("linux-6.18")).unwrap();
    let memory = memory_of(fixture("linux-6.18")).unwrap();

    assert_eq!(readings[PROCESSES], 2.0);
    assert_eq!(readings[RESIDENT], (362.0 + 800.0) * page_size());
    assert!(
        readings.keys().all(|key| !key.contains(".io")),
        "{readings:?}"
    );
    assert_eq!(memory[&format!("process {PROPORTIONAL}")], 402.0 * 1024.0);
    assert!(
        memory.keys().all(|key| !key.starts_with("tree")),
        "{memory:?}"
    );
}

#[test]
fn a_root_with_nothing_to_read_is_unsupported_with_the_reason() {
    let empty = root([]);
    for reason in [
        Tree::with_root(&empty).map(drop).unwrap_err(),
        TreeMemory::with_root(&empty).map(drop).unwrap_err(),
    ] {
        assert!(matches!(&reason, CollectError::Unsupported { .. }));
        assert!(reason.to_string().contains("is /proc mounted?"), "{reason}");
    }
}

#[test]
fn sources_that_walk_process_tables_are_not_read_by_the_tick() {
    assert_eq!(
        Tree::new().unwrap().pace(),
        Pace::Background(Duration::from_secs(1))
    );
    assert_eq!(
        TreeMemory::new().unwrap().pace(),
        Pace::Background(Duration::from_secs(2))
    );
}

/// Every file that the sources read. Each kernel has some of them.
const READ: [&str; 10] = [
    "proc/self/stat",
    "proc/24117/stat",
    "proc/24117/io",
    "proc/24117/statm",
    "proc/24117/smaps_rollup",
    "proc/24117/task/24117/children",
    "proc/24190/stat",
    "proc/24190/io",
    "proc/24190/statm",
    "proc/24190/smaps_rollup",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_truncated_file_gives_no_reading_of_the_tree(
        file in prop::sample::select(&READ[..]),
        cut: prop::sample::Index,
    ) {
        let (whole, memory) = (tree_of(fixture("linux-4.18")).unwrap(), memory_of(fixture("linux-4.18")).unwrap());
        let root = root([]);
        copy(&fixture("linux-4.18"), root.path());
        let content = fs::read(root.path().join(file)).unwrap();
        write(root.path(), file, &content[..cut.index(content.len())]);

        // A truncated list of children misses some processes, and these do not count as children.
        if !file.ends_with("children") {
            for (key, value) in tree_of(&root).unwrap_or_default() {
                prop_assert_eq!(Some(&value), whole.get(&key), "{}", key);
            }
        }
        for (key, value) in memory_of(&root).unwrap_or_default() {
            if !file.ends_with("children") && !file.ends_with("24190/stat") {
                prop_assert_eq!(Some(&value), memory.get(&key), "{}", key);
            }
        }
    }

    #[test]
    fn any_bytes_in_any_file_yield_finite_readings_or_none(
        file in prop::sample::select(&READ[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let root = root([]);
        copy(&fixture("linux-4.18"), root.path());
        let (mut tree, mut memory) = (Tree::with_root(&root).unwrap(), TreeMemory::with_root(&root).unwrap());
        let before = tick(&mut tree).unwrap();
        write(root.path(), file, bytes);

        for (key, value) in tick(&mut tree).unwrap_or_default() {
            prop_assert!(value.is_finite() && value >= 0.0);
            if COUNTERS.contains(&key.as_str()) {
                prop_assert!(value >= before[&key], "{key} went back");
            }
        }
        prop_assert!(tick(&mut memory).unwrap_or_default().values().all(|value| value.is_finite()));
    }
}

/// Lets only one test run at a time, because the tree contains all real children of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const DEADLINE: Duration = Duration::from_secs(60);

fn wait_until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < DEADLINE,
            "not reached within {DEADLINE:?}"
        );
        // Leaves the core to the children between two readings.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A tick, repeated until no process ends during it.
fn read(tree: &mut Tree) -> BTreeMap<String, f64> {
    let begin = Instant::now();
    loop {
        match tick(tree) {
            Ok(readings) => return readings,
            Err(error) => assert!(begin.elapsed() < DEADLINE, "{error}"),
        }
    }
}

/// A shell that runs `script`.
fn shell(script: &str) -> Child {
    Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn let_go(child: &mut Child) {
    drop(child.stdin.take());
}

/// Reads and writes MiB with system calls.
fn move_mebibytes(count: u32) -> String {
    format!("dd if=/dev/zero of=/dev/null bs=1M count={count} 2>/dev/null")
}

const MEBIBYTE: f64 = 1_048_576.0;

/// CPU seconds and page faults of reaped children, as the kernel reports them to their parent.
fn waited_for() -> (f64, f64) {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is writable, and the call fills it.
    let usage = unsafe {
        assert_eq!(
            libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()),
            0
        );
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        usage.ru_minflt as f64,
    )
}

fn own_faults() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is writable, and the call fills it.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_minflt as f64
}

#[test]
fn many_short_lived_children_are_each_counted_once() {
    const CHILDREN: u32 = 150;
    let _alone = alone();
    let mut tree = Tree::new().unwrap();
    let (faults_before, waited_before) = (own_faults(), waited_for());
    let before = read(&mut tree);
    let done = AtomicBool::new(false);

    let (scans, last) = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..CHILDREN / 3 {
                    // A child and a grandchild, which may end at any time.
                    let script = format!("{}; true", move_mebibytes(1));
                    let mut child = shell(&script);
                    child.wait().unwrap();
                }
            });
        }
        let watcher = scope.spawn(|| {
            let (mut scans, mut last) = (0, before.clone());
            while !done.load(Ordering::Relaxed) {
                let Ok(now) = tick(&mut tree) else { continue };
                for key in COUNTERS {
                    if let Some(before) = last.get(key) {
                        assert!(now[key] >= *before, "{key}: {} after {before}", now[key]);
                    }
                }
                scans += 1;
                last = now;
                // Stops when all children have been reaped. The number of bytes shows this.
                let moved = last
                    .get(REQUESTED_WRITE)
                    .map(|now| now - before[REQUESTED_WRITE]);
                let finished = moved.is_none_or(|moved| moved >= f64::from(CHILDREN) * MEBIBYTE);
                done.store(finished && last[PROCESSES] == 1.0, Ordering::Relaxed);
            }
            (scans, last)
        });
        watcher.join().unwrap()
    });
    assert!(scans > 5, "{scans} scans");

    let end = read(&mut tree);
    let waited = waited_for();
    if let Some(read) = end.get(REQUESTED_READ) {
        let moved = (read - before[REQUESTED_READ]) / MEBIBYTE;
        // The programs also read their libraries, and the source reads its files. Both read only some KiB.
        let known = f64::from(CHILDREN);
        assert!(
            (known..known * 1.2).contains(&moved),
            "{moved} MiB of {known}"
        );
    }
    // The comparison with the kernel's counts of ended children is exact to one fault and one clock tick.
    let children = waited.1 - waited_before.1;
    let own = own_faults() - faults_before;
    let counted = end[MINOR] - before[MINOR];
    assert!(counted >= children, "{counted} of {children}");
    assert!(
        counted <= children + own,
        "{counted} of {children} and {own}"
    );
    assert!(last[MINOR] <= end[MINOR]);
}

#[test]
fn cpu_time_of_children_is_counted_once_while_they_run_and_afterwards() {
    let _alone = alone();
    let mut tree = Tree::new().unwrap();
    let cpu = |readings: &BTreeMap<String, f64>| readings[USER] + readings[SYSTEM];
    let before = (read(&mut tree), waited_for().0);
    let mut children: Vec<_> = (0..2)
        .map(|_| shell("i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo; read line"))
        .collect();
    // Waits until all children sleep. Then their CPU time is complete.
    wait_until(|| {
        children.iter().all(|child| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit(')').next().unwrap().trim().starts_with('S')
        }) && read(&mut tree)[PROCESSES] == 3.0
    });
    let living = read(&mut tree);
    for child in &mut children {
        let_go(child);
        child.wait().unwrap();
    }
    let (ended, own) = (read(&mut tree), cpu(&read(&mut tree)));
    let burned = waited_for().0 - before.1;

    assert!(burned > 0.05, "{burned}");
    let own_part = |readings: &BTreeMap<String, f64>| cpu(readings) - cpu(&before.0);
    // The kernel rounds down to clock ticks of 10 ms, for each of three processes and two modes. Both values
    // include the usage of this process.
    assert!(
        own_part(&living) >= burned - 0.07,
        "{} {burned}",
        own_part(&living)
    );
    assert!(
        own_part(&ended) >= burned - 0.05,
        "{} {burned}",
        own_part(&ended)
    );
    assert!(
        own_part(&ended) - own_part(&living) < 0.5 * burned,
        "{living:?} {ended:?}"
    );
    assert!(own >= cpu(&ended));
}

#[test]
fn an_orphaned_worker_is_counted_while_it_runs_and_after_its_end() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let pipes = ["parent", "worker"].map(|name| folder.path().join(name));
    for pipe in &pipes {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let [parent_pipe, worker_pipe] = pipes.each_ref().map(|pipe| pipe.display().to_string());
    let mut tree = Tree::new().unwrap();
    let before = read(&mut tree);
    let mut parent = shell(&format!(
        "{{ {}; read line < {worker_pipe}; }} & read line < {parent_pipe}",
        move_mebibytes(8)
    ));
    let moved = |readings: &BTreeMap<String, f64>| {
        let counted = |key| {
            readings
                .get(key)
                .zip(before.get(key))
                .map(|(now, then)| now - then)
        };
        counted(REQUESTED_WRITE).map_or(0.0, |bytes| bytes / MEBIBYTE)
    };
    let has_io = before.contains_key(REQUESTED_WRITE);
    wait_until(|| {
        let readings = read(&mut tree);
        readings[PROCESSES] == 3.0 && (moved(&readings) >= 8.0 || !has_io)
    });

    let release = |pipe: &Path| {
        fs::OpenOptions::new()
            .write(true)
            .open(pipe)
            .unwrap()
            .write_all(b"\n")
            .unwrap();
    };
    release(&pipes[0]);
    parent.wait().unwrap();
    let orphaned = read(&mut tree);
    release(&pipes[1]);
    wait_until(|| read(&mut tree)[PROCESSES] == 1.0);
    let ended = read(&mut tree);

    assert_eq!(orphaned[PROCESSES], 2.0);
    for readings in [orphaned, ended] {
        assert!(readings[MINOR] >= before[MINOR]);
        if has_io {
            assert!((8.0..9.0).contains(&moved(&readings)), "{readings:?}");
        }
    }
}

#[test]
fn a_zombie_is_not_counted_as_a_process_and_hides_no_usage() {
    let _alone = alone();
    let (mut tree, mut memory) = (Tree::new().unwrap(), TreeMemory::new().unwrap());
    let mut child = Command::new("true").spawn().unwrap();
    wait_until(|| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.contains(") Z ")
    });

    let readings = read(&mut tree);
    let mut found = Vec::new();
    memory.collect(Duration::ZERO, &mut found).unwrap();
    child.wait().unwrap();

    assert_eq!(readings[PROCESSES], 1.0);
    assert!(readings.contains_key(RESIDENT));
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn the_counts_of_children_that_no_parent_reaps_are_kept() {
    let _alone = alone();
    // The test runs in its own process, because the setting for children applies to the whole process.
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "in_a_process_that_ignores_its_children",
            "--ignored",
        ])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "changes what becomes of all children; the test before runs it"]
fn in_a_process_that_ignores_its_children() {
    // SAFETY: no handler is installed, and no other test runs in this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut tree = Tree::new().unwrap();
    let before = read(&mut tree);
    let has_io = before.contains_key(REQUESTED_WRITE);
    let moved = |readings: &BTreeMap<String, f64>| {
        if has_io {
            (readings[REQUESTED_WRITE] - before[REQUESTED_WRITE]) / MEBIBYTE
        } else {
            0.0
        }
    };
    let mut last = before.clone();
    for round in 1..=3u32 {
        let mut child = shell(&format!("{}; read line", move_mebibytes(4)));
        // Waits until the shell has reaped its `dd`. Then the kernel counts the bytes for the shell.
        wait_until(|| {
            let readings = read(&mut tree);
            !has_io || (moved(&readings) >= f64::from(4 * round) && readings[PROCESSES] == 2.0)
        });
        let_go(&mut child);
        wait_until(|| read(&mut tree)[PROCESSES] == 1.0);
        let now = read(&mut tree);
        for key in COUNTERS.into_iter().filter(|key| now.contains_key(*key)) {
            assert!(now[key] >= last[key], "{key}");
        }
        if has_io {
            let known = f64::from(4 * round);
            assert!(
                (known..known + 1.0).contains(&moved(&now)),
                "{known} {}",
                moved(&now)
            );
        }
        last = now;
    }
    assert!(last[MINOR] > before[MINOR] + 100.0);
}

#[test]
fn open_files_and_proportional_memory_are_those_of_this_process() {
    let _alone = alone();
    let found = || memory_of("/").unwrap();
    let files = |found: &BTreeMap<String, f64>| found[&format!("process {FILES}")];
    let before = found();
    let held: Vec<_> = (0..50)
        .map(|_| fs::File::open("/dev/null").unwrap())
        .collect();
    let with = found();
    drop(held);

    // Concurrent tests open and close a few files.
    assert!((40.0..60.0).contains(&(files(&with) - files(&before))));
    let listed = fs::read_dir("/proc/self/fd").unwrap().count() as f64 - 1.0;
    assert!((files(&found()) - listed).abs() < 10.0);
    let resident = read(&mut Tree::new().unwrap())[RESIDENT];
    let proportional = with[&format!("process {PROPORTIONAL}")];
    assert!(proportional > 0.0 && proportional < 2.0 * resident);
}
