//! Tests the sources on files of several kernels, complete and damaged.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![allow(
    clippy::float_cmp,
    reason = "the values are written and read without arithmetic"
)]

#[path = "support/files.rs"]
mod files;
#[path = "support/fixtures.rs"]
mod fixtures;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use files::{root, write};
use fixtures::{KERNELS, copy_of, fixture};
use headspace_agent::port::CollectError;
use headspace_collectors::host::{Host, describe_at};
use headspace_collectors::process::Process;
use proptest::prelude::*;
use support::tick;

fn page_size() -> f64 {
    // SAFETY: `sysconf` takes no pointer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as f64 }
}

#[test]
fn linux_4_18_with_a_name_of_parentheses_and_spaces() {
    let readings = tick(&mut Process::with_root(fixture("linux-4.18")).unwrap()).unwrap();

    let expected = [
        ("process.cpu.time{cpu.mode=user}", 1834.21),
        ("process.cpu.time{cpu.mode=system}", 92.07),
        (
            "process.paging.faults{system.paging.fault.type=minor}",
            4_193_002.0,
        ),
        (
            "process.paging.faults{system.paging.fault.type=major}",
            311.0,
        ),
        ("process.thread.count", 74.0),
        ("process.memory.usage", 1_230_011.0 * page_size()),
        (
            "headspace.process.memory.anonymous",
            (1_230_011.0 - 88_120.0) * page_size(),
        ),
        ("process.memory.virtual", 9_105_337.0 * page_size()),
        ("process.disk.io{disk.io.direction=read}", 52_613_349_376.0),
        ("process.disk.io{disk.io.direction=write}", 4_096.0),
        (
            "headspace.process.io.requested{disk.io.direction=read}",
            323_934_931.0,
        ),
        (
            "headspace.process.io.requested{disk.io.direction=write}",
            323_929.0,
        ),
    ];
    assert_eq!(
        readings,
        expected
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    );
}

#[test]
fn linux_5_15_without_io_accounting_and_with_a_newline_in_the_name() {
    let readings = tick(&mut Process::with_root(fixture("linux-5.15-arm64")).unwrap()).unwrap();

    assert_eq!(readings["process.thread.count"], 17.0);
    assert_eq!(readings["process.cpu.time{cpu.mode=user}"], 61.5);
    assert!(
        readings.keys().all(|key| !key.contains(".io")),
        "{readings:?}"
    );
}

#[test]
fn each_kernel_is_described() {
    let described = |name| {
        let host = describe_at(fixture(name));
        (
            host.name.unwrap(),
            host.kernel.unwrap(),
            host.cpu_model.unwrap(),
            host.memory_bytes.unwrap(),
        )
    };
    let of = |name: &str, kernel: &str, cpu: &str, memory: u64| {
        (name.to_owned(), kernel.to_owned(), cpu.to_owned(), memory)
    };

    assert_eq!(
        described("linux-4.18"),
        of(
            "train-07",
            "Linux 4.18.0-553.el8_10.x86_64",
            "Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz",
            394_660_180 * 1024
        )
    );
    assert_eq!(
        described("linux-5.15-arm64"),
        of(
            "gh200-1",
            "Linux 5.15.0-1050-nvidia-64k",
            "implementer 0x41 part 0xd4f",
            491_134_976 * 1024
        )
    );
    assert_eq!(
        described("linux-6.18"),
        of("vm", "Linux 6.18.44", "AMD EPYC", 16_393_216 * 1024)
    );
}

#[test]
fn cores_their_utilisation_and_available_memory_are_read_on_each_kernel() {
    for (name, online, affinity, quota, available_kib) in [
        ("linux-4.18", 4.0, 2.0, Some(1.5), Some(371_829_100.0)),
        ("linux-5.15-arm64", 2.0, 2.0, None, None),
        ("linux-6.18", 2.0, 1.0, None, None),
    ] {
        let root = copy_of(name);
        let mut host = Host::with_root(&root).unwrap();
        let later = fs::read(root.path().join("proc/stat.later")).unwrap();
        write(root.path(), "proc/stat", later);

        let readings = tick(&mut host).unwrap();

        assert_eq!(readings["system.cpu.logical.count"], online, "{name}");
        assert_eq!(readings["headspace.host.cpu.affinity"], affinity, "{name}");
        assert_eq!(
            readings.get("headspace.host.cpu.quota").copied(),
            quota,
            "{name}"
        );
        assert_eq!(
            readings["headspace.host.cpu.usable"],
            quota.unwrap_or(affinity),
            "{name}"
        );
        assert_eq!(readings["headspace.host.cpu.utilization"], 0.75, "{name}");
        // `procs_running 3` includes the reading thread.
        assert_eq!(readings["headspace.host.threads.runnable"], 2.0, "{name}");
        assert_eq!(
            readings.get("system.linux.memory.available").copied(),
            available_kib.map(|kib| 1024.0 * kib),
            "{name}"
        );
    }
}

#[test]
fn the_share_of_the_first_tick_counts_from_the_construction_and_each_from_the_one_before() {
    let core = |busy: u32, idle: u32| {
        format!("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {busy} 0 0 {idle} 0 0 0 0 0 0\n")
    };
    let root = root([
        ("sys/devices/system/cpu/online", "0\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0\n"),
        ("proc/stat", core(100, 100).as_str()),
    ]);
    let mut host = Host::with_root(&root).unwrap();
    let mut share = |busy, idle| {
        write(root.path(), "proc/stat", core(busy, idle));
        tick(&mut host)
            .unwrap()
            .get("headspace.host.cpu.utilization")
            .copied()
    };

    assert_eq!(share(110, 130), Some(0.25));
    assert_eq!(share(110, 130), None); // No time has passed.
    assert_eq!(share(140, 140), Some(0.75));
    assert_eq!(share(140, 240), Some(0.0));
    assert_eq!(share(5, 5), None); // The kernel's counts were reset, so the source starts again.
    assert_eq!(share(10, 5), Some(1.0));
}

#[test]
fn a_root_with_nothing_to_read_is_unsupported_with_the_reason() {
    let empty = root([]);
    let reasons = [
        Process::with_root(&empty).map(drop).unwrap_err(),
        Host::with_root(&empty).map(drop).unwrap_err(),
        Host::with_root(empty.path().join("absent"))
            .map(drop)
            .unwrap_err(),
    ];
    for reason in reasons {
        assert!(
            matches!(&reason, CollectError::Unsupported { .. }),
            "{reason:?}"
        );
        let folder = empty.path().display().to_string();
        assert!(
            reason.to_string().contains(&folder) && reason.to_string().contains("/proc"),
            "{reason}"
        );
    }
    let described = describe_at(&empty);
    assert_eq!(
        described,
        headspace_agent::model::record::HostRecord::default()
    );
}

#[test]
fn missing_files_cost_one_tick_until_they_return() {
    let root = copy_of("linux-6.18");
    let (mut process, mut host) = (
        Process::with_root(&root).unwrap(),
        Host::with_root(&root).unwrap(),
    );
    let (before, moved) = (tick(&mut process).unwrap(), root.path().join("moved"));

    for name in ["proc", "sys"] {
        fs::create_dir_all(&moved).unwrap();
        fs::rename(root.path().join(name), moved.join(name)).unwrap();
    }
    assert!(matches!(
        tick(&mut process),
        Err(CollectError::Transient(_))
    ));
    assert!(matches!(tick(&mut host), Err(CollectError::Transient(_))));

    for name in ["proc", "sys"] {
        fs::rename(moved.join(name), root.path().join(name)).unwrap();
    }
    assert_eq!(tick(&mut process).unwrap(), before);
    assert_eq!(tick(&mut host).unwrap()["system.cpu.logical.count"], 2.0);
}

#[test]
fn files_that_cannot_be_read_are_absent() {
    // A folder in place of a file makes reading fail.
    let root = copy_of("linux-6.18");
    for path in ["proc/self/io", "proc/self/statm", "proc/stat"] {
        fs::remove_file(root.path().join(path)).unwrap();
        fs::create_dir(root.path().join(path)).unwrap();
    }

    let process = tick(&mut Process::with_root(&root).unwrap()).unwrap();
    let host = tick(&mut Host::with_root(&root).unwrap()).unwrap();

    assert!(
        process
            .keys()
            .all(|key| !key.contains(".io") && !key.contains("memory"))
    );
    assert!(process.contains_key("process.thread.count"));
    assert!(!host.contains_key("headspace.host.cpu.utilization"));
    assert_eq!(host["headspace.host.cpu.affinity"], 1.0);
}

/// Every file that a source reads.
const FILES: [&str; 10] = [
    "proc/self/stat",
    "proc/self/statm",
    "proc/self/io",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/stat",
    "proc/cpuinfo",
    "proc/meminfo",
    "sys/devices/system/cpu/online",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_truncated_file_removes_readings_and_changes_none(
        kernel in prop::sample::select(&KERNELS[..]),
        file in prop::sample::select(&FILES[..]),
        cut: prop::sample::Index,
    ) {
        let root = copy_of(kernel);
        let whole = both(root.path());
        let described = describe_at(&root);
        let Ok(content) = fs::read(root.path().join(file)) else { return Ok(()) };
        // An empty list of groups is valid: a kernel without a mounted hierarchy writes it.
        write(root.path(), file, &content[..=cut.index(content.len() - 1)]);

        for (key, value) in both(root.path()) {
            prop_assert_eq!(Some(&value), whole.get(&key), "{}", key);
        }
        let cut = describe_at(&root);
        prop_assert!(cut.memory_bytes.is_none() || cut.memory_bytes == described.memory_bytes);
        prop_assert!(cut.cpu_model.is_none() || cut.cpu_model == described.cpu_model);
    }

    #[test]
    fn any_bytes_in_any_file_yield_finite_readings_or_none(
        file in prop::sample::select(&FILES[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let root = copy_of("linux-6.18");
        let (mut process, mut host) = (Process::with_root(&root).unwrap(), Host::with_root(&root).unwrap());
        write(root.path(), file, bytes);

        for readings in [tick(&mut process), tick(&mut host)].into_iter().flatten() {
            prop_assert!(readings.values().all(|value| value.is_finite() && *value >= 0.0));
        }
        let _ = describe_at(&root);
    }
}

/// The readings of both sources, without those of a source that is off.
fn both(root: &Path) -> BTreeMap<String, f64> {
    let process = Process::with_root(root).and_then(|mut source| tick(&mut source));
    let host = Host::with_root(root).and_then(|mut source| tick(&mut source));
    process.into_iter().chain(host).flatten().collect()
}
