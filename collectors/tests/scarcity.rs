//! Tests the sources of pressure, throttling and limits, disks, and network on complete and damaged files
//! of several kernels.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![allow(
    clippy::float_cmp,
    reason = "the values are written and read without arithmetic, or with the same"
)]

#[path = "support/files.rs"]
mod files;
#[path = "support/fixtures.rs"]
mod fixtures;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use files::{root, write};
use fixtures::{KERNELS, copy_of, fixture};
use headspace_agent::port::{CollectError, Collector};
use headspace_collectors::host::{ControlGroup, Pressure};
use headspace_collectors::io::{Disk, Network};
use proptest::prelude::*;

type Readings = BTreeMap<String, f64>;

/// The readings of a tick at this second, by `scope key`.
fn read_at(source: &mut impl Collector, second: u64) -> Result<Readings, CollectError> {
    let mut readings = Vec::new();
    source.collect(Duration::from_secs(second), &mut readings)?;
    let keyed = |reading: &headspace_agent::model::Reading| {
        (
            format!("{} {}", reading.scope, reading.key()),
            reading.value,
        )
    };
    Ok(readings.iter().map(keyed).collect())
}

fn expect(readings: &Readings, expected: &[(&str, f64)]) {
    let expected = expected
        .iter()
        .map(|&(key, value)| (key.to_owned(), value))
        .collect::<Readings>();
    assert_eq!(readings, &expected);
}

fn pressure(scope: &str, resource: &str, stalled: &str) -> String {
    format!("{scope} headspace.pressure.time{{resource={resource},stalled={stalled}}}")
}

#[test]
fn a_kernel_without_pressure_is_reported_with_the_boot_option() {
    let error = Pressure::with_root(fixture("linux-4.18"))
        .map(drop)
        .unwrap_err();

    let CollectError::Unsupported { reason, remedy } = error else {
        panic!("{error:?}")
    };
    assert!(reason.contains("/proc/pressure"), "{reason}");
    assert!(remedy.unwrap().contains("`psi=1`"));
}

#[test]
fn pressure_of_machine_and_container_is_separate_and_full_cpu_pressure_of_the_machine_is_skipped() {
    let readings = read_at(
        &mut Pressure::with_root(fixture("linux-5.15-arm64")).unwrap(),
        1,
    )
    .unwrap();

    assert_eq!(readings[&pressure("host", "cpu", "some")], 981_122.000_112);
    assert_eq!(readings[&pressure("host", "io", "full")], 17_822.001_223);
    assert_eq!(readings[&pressure("cgroup", "cpu", "full")], 80.022_11);
    assert_eq!(readings[&pressure("cgroup", "memory", "some")], 0.022_11);
    assert!(!readings.contains_key(&pressure("host", "cpu", "full")));
    assert_eq!(readings.len(), 5 + 6);
}

#[test]
fn the_root_of_the_hierarchy_is_the_machine_and_is_not_reported_twice() {
    let readings = read_at(&mut Pressure::with_root(fixture("linux-6.18")).unwrap(), 1).unwrap();

    assert_eq!(readings[&pressure("host", "memory", "full")], 19.830_338);
    assert!(readings.keys().all(|key| key.starts_with("host ")));
}

#[test]
fn missing_pressure_files_cost_one_tick_until_they_return() {
    let root = copy_of("linux-6.18");
    let mut source = Pressure::with_root(&root).unwrap();
    let (folder, moved) = (root.path().join("proc/pressure"), root.path().join("moved"));

    fs::rename(&folder, &moved).unwrap();
    assert!(matches!(
        read_at(&mut source, 1),
        Err(CollectError::Transient(_))
    ));
    fs::rename(&moved, &folder).unwrap();

    assert_eq!(read_at(&mut source, 2).unwrap().len(), 5);
}

#[test]
fn throttling_comes_from_the_group_with_the_tightest_quota_and_memory_from_the_job() {
    let readings = read_at(
        &mut ControlGroup::with_root(fixture("linux-4.18")).unwrap(),
        1,
    )
    .unwrap();

    expect(
        &readings,
        &[
            ("cgroup headspace.cgroup.cpu.periods", 81_204.0),
            ("cgroup headspace.cgroup.cpu.throttled.periods", 3_067.0),
            ("cgroup headspace.cgroup.cpu.throttled.time", 512.304_881_92),
            ("cgroup headspace.cgroup.memory.usage", 12_345_678_848.0),
            ("cgroup headspace.cgroup.memory.limit", 34_359_738_368.0),
            ("cgroup headspace.cgroup.memory.events{event=max}", 2_290.0),
            ("cgroup headspace.cgroup.memory.events{event=oom_kill}", 1.0),
        ],
    );
}

#[test]
fn a_container_without_a_quota_is_not_throttled_and_reports_its_memory() {
    let readings = read_at(
        &mut ControlGroup::with_root(fixture("linux-5.15-arm64")).unwrap(),
        1,
    )
    .unwrap();

    expect(
        &readings,
        &[
            ("cgroup headspace.cgroup.memory.usage", 68_719_476_736.0),
            ("cgroup headspace.cgroup.memory.limit", 107_374_182_400.0),
            ("cgroup headspace.cgroup.memory.events{event=high}", 0.0),
            ("cgroup headspace.cgroup.memory.events{event=max}", 18_233.0),
            ("cgroup headspace.cgroup.memory.events{event=oom}", 0.0),
            ("cgroup headspace.cgroup.memory.events{event=oom_kill}", 0.0),
        ],
    );
}

#[test]
fn without_a_limit_the_memory_is_that_of_the_own_group() {
    let readings = read_at(
        &mut ControlGroup::with_root(fixture("linux-6.18")).unwrap(),
        1,
    )
    .unwrap();

    assert_eq!(
        readings["cgroup headspace.cgroup.memory.usage"],
        1_563_316_224.0
    );
    assert!(!readings.contains_key("cgroup headspace.cgroup.memory.limit"));
}

#[test]
fn a_quota_that_is_set_later_is_found_and_its_totals_never_decrease() {
    let root = copy_of("linux-4.18");
    let mut source = ControlGroup::with_root(&root).unwrap();
    let job = root
        .path()
        .join("sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/job_77");
    let key = "cgroup headspace.cgroup.cpu.periods";
    assert_eq!(read_at(&mut source, 1).unwrap()[key], 81_204.0);

    write(&job, "cpu.cfs_quota_us", "50000\n");
    write(
        &job,
        "cpu.stat",
        "nr_periods 10\nnr_throttled 0\nthrottled_time 0\n",
    );
    assert_eq!(read_at(&mut source, 2).unwrap()[key], 81_204.0);
    write(
        &job,
        "cpu.stat",
        "nr_periods 25\nnr_throttled 0\nthrottled_time 0\n",
    );

    assert_eq!(read_at(&mut source, 3).unwrap()[key], 81_219.0);
}

#[test]
fn sources_without_their_files_are_off_with_a_reason() {
    let empty = root([]);
    let reasons = [
        Pressure::with_root(&empty).map(drop).unwrap_err(),
        ControlGroup::with_root(&empty).map(drop).unwrap_err(),
        Disk::with_root(&empty).map(drop).unwrap_err(),
        Network::with_root(&empty).map(drop).unwrap_err(),
    ];
    for reason in reasons {
        assert!(
            matches!(reason, CollectError::Unsupported { .. }),
            "{reason:?}"
        );
        assert!(!reason.to_string().ends_with('.'), "{reason}");
    }
}

/// A machine whose process has one working directory and one open file. `/sys` lists `disks`.
fn with_files(kernel: &str, folder: &str, file: &str, disks: &[(&str, &str)]) -> tempfile::TempDir {
    let root = copy_of(kernel);
    fs::create_dir_all(root.path().join("proc/self/fd")).unwrap();
    symlink(folder, root.path().join("proc/self/cwd")).unwrap();
    symlink(file, root.path().join("proc/self/fd/3")).unwrap();
    fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
    for (numbers, device) in disks {
        let folder = Path::new("sys/devices/block").join(device);
        write(root.path(), folder.join("size").to_str().unwrap(), "1\n");
        let link = root.path().join("sys/dev/block").join(numbers);
        symlink(root.path().join(folder), link).unwrap();
    }
    root
}

#[test]
fn the_disks_under_the_folder_and_the_open_files_are_reported() {
    let disks = [("253:0", "dm-0"), ("259:2", "nvme0n1/nvme0n1p2")];
    let root = with_files("linux-4.18", "/home/me", "/scratch/shard.tar", &disks);
    write(
        root.path(),
        "sys/devices/block/nvme0n1/nvme0n1p2/partition",
        "2\n",
    );

    let readings = read_at(&mut Disk::with_root(&root).unwrap(), 1).unwrap();

    // `/home` is a network file system.
    expect(
        &readings,
        &[
            (
                "disk:nvme0n1 system.disk.io{disk.io.direction=read}",
                30_829_384_720.0 * 512.0,
            ),
            (
                "disk:nvme0n1 system.disk.io{disk.io.direction=write}",
                220_183_744.0 * 512.0,
            ),
            (
                "disk:nvme0n1 system.disk.operations{disk.io.direction=read}",
                60_298_811.0,
            ),
            (
                "disk:nvme0n1 system.disk.operations{disk.io.direction=write}",
                1_820_334.0,
            ),
            (
                "disk:nvme0n1 system.disk.operation_time{disk.io.direction=read}",
                9_120_388.0 * 1e-3,
            ),
            (
                "disk:nvme0n1 system.disk.operation_time{disk.io.direction=write}",
                410_223.0 * 1e-3,
            ),
        ],
    );
}

#[test]
fn a_container_reports_the_disk_mounted_into_it() {
    let root = with_files(
        "linux-5.15-arm64",
        "/app",
        "/data/a",
        &[("259:0", "nvme0n1")],
    );

    let readings = read_at(&mut Disk::with_root(&root).unwrap(), 1).unwrap();

    assert_eq!(readings.len(), 6);
    assert!(readings.keys().all(|key| key.starts_with("disk:nvme0n1 ")));
}

const VDA: &str = " 254 0 vda 100 0 2000 50 10 0 80 30 0 {busy} 80 0 0 0 0 0 0\n";

#[test]
fn utilization_is_the_busy_share_of_the_time_between_two_readings() {
    let root = with_files("linux-6.18", "/", "pipe:[1]", &[("254:0", "vda")]);
    let mut source = Disk::with_root(&root).unwrap();
    let mut share = |second, busy: u64| {
        let line = VDA.replace("{busy}", &busy.to_string());
        write(root.path(), "proc/diskstats", line);
        let readings = read_at(&mut source, second).unwrap();
        readings.get("disk:vda headspace.disk.utilization").copied()
    };

    assert_eq!(share(2, 1_000), None);
    assert_eq!(share(4, 2_500), Some(0.75));
    assert_eq!(share(6, 2_500), Some(0.0));
    assert_eq!(share(8, 9_999), Some(1.0));
    assert_eq!(share(8, 9_999), None); // No time has passed.
    let near_the_end = u64::from(u32::MAX) - 500;
    share(10, near_the_end);
    assert_eq!(share(12, 499), Some(0.5)); // The kernel's 32 bits have wrapped.
}

#[test]
fn a_found_disk_stays_and_a_disk_that_is_opened_later_is_added() {
    let disks = [("254:0", "vda"), ("253:0", "zram0")];
    let root = with_files("linux-6.18", "/", "pipe:[1]", &disks);
    let table = fs::read_to_string(root.path().join("proc/self/mountinfo")).unwrap();
    let later = format!("{table}50 27 253:0 / /later rw - ext4 /dev/zram0 rw\n");
    write(root.path(), "proc/self/mountinfo", later);
    let mut source = Disk::with_root(&root).unwrap();
    let mut scopes = |second| {
        let readings = read_at(&mut source, second).unwrap();
        let of = |name: &str| readings.keys().any(|key| key.starts_with(name));
        (of("disk:vda "), of("disk:zram0 "))
    };
    assert_eq!(scopes(1), (true, false));

    let cwd = root.path().join("proc/self/cwd");
    fs::remove_file(&cwd).unwrap();
    symlink("/later", &cwd).unwrap();

    let seen: Vec<_> = (2..13).map(scopes).collect();
    assert_eq!(seen.first(), Some(&(true, false))); // The source searches for disks only rarely.
    assert_eq!(seen.last(), Some(&(true, true)));
}

#[test]
fn the_files_of_a_worker_count_as_those_of_the_process() {
    let disks = [("254:0", "vda"), ("253:0", "zram0")];
    let root = with_files("linux-6.18", "/", "pipe:[1]", &disks);
    let proc = root.path().join("proc");
    let table = fs::read_to_string(proc.join("self/mountinfo")).unwrap();
    let data = format!("{table}50 27 253:0 / /data rw - ext4 /dev/zram0 rw\n");
    write(&proc, "self/mountinfo", data);
    let stat = fs::read_to_string(proc.join("self/stat")).unwrap();
    let own = stat.split(' ').next().unwrap();
    write(&proc, &format!("{own}/stat"), &stat);
    write(&proc, &format!("{own}/task/{own}/children"), "77 ");
    let worker = stat.replacen(own, "77", 1);
    write(&proc, "77/stat", worker);
    write(&proc, "77/task/77/children", "");
    fs::create_dir_all(proc.join("77/fd")).unwrap();
    symlink("/data/shard", proc.join("77/fd/5")).unwrap();

    let readings = read_at(&mut Disk::with_root(&root).unwrap(), 1).unwrap();

    assert!(readings.keys().any(|key| key.starts_with("disk:zram0 ")));
}

#[test]
fn readings_are_missing_only_while_the_file_of_devices_is_missing() {
    let root = with_files("linux-6.18", "/", "pipe:[1]", &[("254:0", "vda")]);
    let mut source = Disk::with_root(&root).unwrap();
    let file = root.path().join("proc/diskstats");
    let whole = fs::read(&file).unwrap();

    fs::remove_file(&file).unwrap();
    assert!(matches!(
        read_at(&mut source, 2),
        Err(CollectError::Transient(_))
    ));
    write(root.path(), "proc/diskstats", whole);

    // The source does not repeat an unsuccessful search at once, so this may take several ticks.
    assert!((4..40).any(|second| !read_at(&mut source, second).unwrap().is_empty()));
}

const RECEIVED: &str = "host system.network.io{network.io.direction=receive}";
const SENT: &str = "host system.network.io{network.io.direction=transmit}";

#[test]
fn all_interfaces_but_loopback_are_added_up() {
    let of = |kernel| read_at(&mut Network::with_root(fixture(kernel)).unwrap(), 1).unwrap();

    expect(
        &of("linux-4.18"),
        &[
            (RECEIVED, 5_502_938_475_610.0 + 182_736_455.0),
            (SENT, 882_736_455_120.0 + 98_273.0),
        ],
    );
    assert_eq!(of("linux-5.15-arm64")[SENT], 102_938_475.0);
    assert_eq!(of("linux-6.18")[RECEIVED], 35_709_553_080.0);
}

/// `/proc/self/net/dev` with these interfaces, each with its received and sent bytes.
fn interfaces(those: &[(&str, u64, u64)]) -> String {
    let line = |(name, received, sent): &(&str, u64, u64)| {
        format!("{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")
    };
    those.iter().map(line).collect()
}

fn network(those: &[(&str, u64, u64)], devices: &[&str], stacked: &[&str]) -> tempfile::TempDir {
    let root = root([("proc/self/net/dev", interfaces(those).as_str())]);
    for (folder, file) in devices
        .iter()
        .map(|name| (name, "device"))
        .chain(stacked.iter().map(|name| (name, "lower_eth0")))
    {
        let path = format!("sys/class/net/{folder}/{file}");
        write(root.path(), &path, "");
    }
    root
}

#[test]
fn bytes_that_pass_through_several_interfaces_count_once() {
    let those = [
        ("lo", 1, 1),
        ("eth0", 100, 10),
        ("eth1", 200, 20),
        ("bond0", 300, 30),
        ("veth7", 40, 4),
    ];

    let machine = network(&those, &["eth0", "eth1"], &["bond0"]);
    let readings = read_at(&mut Network::with_root(&machine).unwrap(), 1).unwrap();
    expect(&readings, &[(RECEIVED, 300.0), (SENT, 30.0)]);

    let container = network(&[("lo", 1, 1), ("eth0", 100, 10)], &[], &[]);
    let readings = read_at(&mut Network::with_root(&container).unwrap(), 1).unwrap();
    expect(&readings, &[(RECEIVED, 100.0), (SENT, 10.0)]);
}

#[test]
fn a_namespace_of_loopback_alone_is_off() {
    let root = network(&[("lo", 1, 1)], &[], &[]);

    let error = Network::with_root(&root).map(drop).unwrap_err();

    assert!(error.to_string().contains("loopback"), "{error}");
}

#[test]
fn byte_totals_do_not_decrease_if_an_interface_disappears_or_restarts() {
    let root = network(&[("eth0", 1_000, 0), ("eth1", 50, 0)], &[], &[]);
    let mut source = Network::with_root(&root).unwrap();
    let mut received = |those: &[(&str, u64, u64)]| {
        write(root.path(), "proc/self/net/dev", interfaces(those));
        read_at(&mut source, 1).unwrap()[RECEIVED]
    };

    assert_eq!(received(&[("eth0", 1_100, 0), ("eth1", 50, 0)]), 1_150.0);
    assert_eq!(received(&[("eth0", 1_100, 0)]), 1_150.0);
    assert_eq!(received(&[("eth0", 1_200, 0), ("eth1", 7, 0)]), 1_257.0);
    // A new interface may have earlier counts from another namespace.
    assert_eq!(received(&[("eth0", 1_200, 0), ("wg0", 9_000, 0)]), 1_257.0);
    assert_eq!(received(&[("eth0", 1_200, 0), ("wg0", 9_003, 0)]), 1_260.0);
}

/// Every file that these sources read, on one kernel or the other.
const FILES: [&str; 19] = [
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/diskstats",
    "proc/self/net/dev",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu.pressure",
    "sys/fs/cgroup/memory.pressure",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.events",
    "sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/cpu.stat",
    "sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/cpu.cfs_quota_us",
    "sys/fs/cgroup/memory/slurm/uid_1000/job_77/memory.usage_in_bytes",
    "sys/fs/cgroup/memory/slurm/uid_1000/job_77/memory.failcnt",
    "sys/fs/cgroup/memory/slurm/uid_1000/job_77/memory.oom_control",
    "sys/fs/cgroup/memory/api/f863/memory.usage_in_bytes",
];

/// The readings of all four sources, without those of a source that is off.
fn all(root: &Path) -> Readings {
    let mut readings = Readings::new();
    let pressure = Pressure::with_root(root).and_then(|mut source| read_at(&mut source, 1));
    let group = ControlGroup::with_root(root).and_then(|mut source| read_at(&mut source, 1));
    let disk = Disk::with_root(root).and_then(|mut source| read_at(&mut source, 1));
    let network = Network::with_root(root).and_then(|mut source| read_at(&mut source, 1));
    for some in [pressure, group, disk, network].into_iter().flatten() {
        readings.extend(some);
    }
    readings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_truncated_file_removes_readings_and_changes_none(
        kernel in prop::sample::select(&KERNELS[..]),
        file in prop::sample::select(&FILES[..]),
        cut: prop::sample::Index,
    ) {
        let root = with_files(kernel, "/", "/data/a", &[("254:0", "vda"), ("259:0", "nvme0n1")]);
        let whole = all(root.path());
        let Ok(content) = fs::read(root.path().join(file)) else { return Ok(()) };
        write(root.path(), file, &content[..=cut.index(content.len() - 1)]);

        for (key, value) in all(root.path()) {
            // Before the first reading, a missing line makes a sum over lines smaller. Later the sum never
            // decreases.
            let smaller = key.contains("network") && whole[&key] >= value;
            prop_assert!(smaller || whole.get(&key) == Some(&value), "{}", key);
        }
    }

    #[test]
    fn any_bytes_in_any_file_yield_finite_readings_or_none(
        kernel in prop::sample::select(&KERNELS[..]),
        file in prop::sample::select(&FILES[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let root = with_files(kernel, "/", "/data/a", &[("254:0", "vda"), ("259:0", "nvme0n1")]);
        write(root.path(), file, bytes);

        prop_assert!(all(root.path()).values().all(|value| value.is_finite() && *value >= 0.0));
    }
}
