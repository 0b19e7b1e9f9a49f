//! Tests the CPU quota on the control group layouts of different kernels, init systems and container
//! engines.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "support/files.rs"]
mod files;
mod support;

use files::{root, write};
use headspace_collectors::host::{Host, describe_at};
use proptest::prelude::*;
use support::tick;
use tempfile::TempDir;

/// A machine of eight cores without control groups of its own.
const CORES: [(&str, &str); 3] = [
    ("sys/devices/system/cpu/online", "0-7\n"),
    (
        "proc/self/status",
        "Name:\tpython3\nCpus_allowed_list:\t0-3\n",
    ),
    ("proc/self/stat", "1 (python3) S 0\n"),
];

fn machine<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> TempDir {
    root(CORES.into_iter().chain(files))
}

/// Quota, usable cores and interface.
type Answer = (Option<f64>, Option<f64>, Option<String>);

fn answer(root: &TempDir) -> Answer {
    let readings = tick(&mut Host::with_root(root).unwrap()).unwrap();
    let described = describe_at(root);
    let quota = readings.get("headspace.host.cpu.quota").copied();
    assert_eq!(described.cores_quota, quota);
    assert_eq!(
        (described.cores_online, described.cores_affinity),
        (Some(8), Some(4))
    );
    (
        quota,
        readings.get("headspace.host.cpu.usable").copied(),
        described.cgroup,
    )
}

fn limited(quota: f64, usable: f64, version: &str) -> Answer {
    (Some(quota), Some(usable), Some(version.into()))
}

fn unlimited(version: &str) -> Answer {
    (None, Some(4.0), Some(version.into()))
}

/// RHEL 8, Linux 4.18, systemd in its legacy mode: `cpu` and `cpuacct` share a hierarchy.
const LEGACY_MOUNTS: &str = "\
25 95 0:24 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:8 - tmpfs tmpfs ro,mode=755
26 25 0:25 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:9 - cgroup cgroup rw,xattr,release_agent=/usr/lib/systemd/systemd-cgroups-agent,name=systemd
30 25 0:29 / /sys/fs/cgroup/cpuset rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,cpuset
33 25 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:14 - cgroup cgroup rw,cpu,cpuacct
";
const LEGACY_GROUP: &str = "\
12:memory:/user.slice/user-1000.slice/session-3.scope
11:cpuset:/
4:cpu,cpuacct:/user.slice/user-1000.slice
1:name=systemd:/user.slice/user-1000.slice/session-3.scope
";

#[test]
fn v1_takes_the_tightest_limit_from_the_own_group_upwards() {
    let root = machine([
        ("proc/self/cgroup", LEGACY_GROUP),
        ("proc/self/mountinfo", LEGACY_MOUNTS),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us",
            "250000\n",
        ),
        (
            "sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_period_us",
            "100000\n",
        ),
        (
            "sys/fs/cgroup/cpu,cpuacct/user.slice/user-1000.slice/cgroup.procs",
            "1\n",
        ),
        (
            "sys/fs/cgroup/cpu,cpuacct/user.slice/user-1000.slice/cpu.cfs_quota_us",
            "300000\n",
        ),
        (
            "sys/fs/cgroup/cpu,cpuacct/user.slice/user-1000.slice/cpu.cfs_period_us",
            "50000\n",
        ),
    ]);

    assert_eq!(answer(&root), limited(2.5, 2.5, "v1"));
}

#[test]
fn v1_in_a_container_starts_at_the_group_that_its_mount_shows() {
    // Docker on Linux 4.19 without a cgroup namespace: the group's path is the host's.
    let id = "/docker/8c5f1d3e";
    let mounts = format!(
        "701 690 0:33 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755\n\
         705 701 0:32 {id} /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:14 - cgroup cgroup rw,cpu,cpuacct\n"
    );
    let groups = format!("4:cpu,cpuacct:{id}/worker\n1:name=systemd:{id}\n0::/system.slice\n");
    let root = machine([
        ("proc/self/cgroup", groups.as_str()),
        ("proc/self/mountinfo", mounts.as_str()),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/worker/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/worker/cpu.cfs_quota_us", "-1\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/worker/cpu.cfs_period_us",
            "100000\n",
        ),
    ]);

    assert_eq!(answer(&root), limited(1.5, 1.5, "v1"));
}

#[test]
fn hybrid_reads_the_hierarchy_that_holds_the_controller_and_not_the_other() {
    // Ubuntu 20.04, Linux 5.4, systemd in its hybrid mode.
    let root = machine([
        (
            "proc/self/cgroup",
            "9:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/job\n",
        ),
        (
            "proc/self/mountinfo",
            "36 35 0:31 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate\n\
             44 35 0:39 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:19 - cgroup cgroup rw,cpu,cpuacct\n",
        ),
        ("sys/fs/cgroup/unified/job/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/unified/job/cpu.max", "10000 100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/job/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "600000\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us",
            "100000\n",
        ),
    ]);

    assert_eq!(answer(&root), limited(6.0, 4.0, "v1"));
}

#[test]
fn hybrid_with_the_controller_in_v2_reads_v2() {
    let root = machine([
        (
            "proc/self/cgroup",
            "3:cpuset:/\n1:name=systemd:/job\n0::/job\n",
        ),
        (
            "proc/self/mountinfo",
            "36 35 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             44 35 0:39 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        ),
        ("sys/fs/cgroup/unified/job/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/unified/job/cpu.max", "50000 100000\n"),
    ]);

    assert_eq!(answer(&root), limited(0.5, 0.5, "v2"));
}

const UNIFIED: &str = "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

#[test]
fn v2_finds_the_limit_of_an_ancestor_behind_a_group_of_max() {
    // Kubernetes on Linux 5.15: the pod has a limit, but the container in it has none.
    let group = "0::/kubepods.slice/pod7.slice/cri-1.scope\n";
    let root = machine([
        ("proc/self/cgroup", group),
        ("proc/self/mountinfo", UNIFIED),
        ("sys/fs/cgroup/kubepods.slice/cpu.max", "max 100000\n"),
        (
            "sys/fs/cgroup/kubepods.slice/pod7.slice/cpu.max",
            "320000 100000\n",
        ),
        (
            "sys/fs/cgroup/kubepods.slice/pod7.slice/cri-1.scope/cpu.max",
            "max 100000\n",
        ),
        (
            "sys/fs/cgroup/kubepods.slice/pod7.slice/cri-1.scope/cgroup.procs",
            "1\n",
        ),
    ]);

    assert_eq!(answer(&root), limited(3.2, 3.2, "v2"));
}

#[test]
fn v2_in_a_cgroup_namespace_reads_the_limit_at_the_mount_itself() {
    // Docker or Podman on Linux 6.x.
    let root = machine([
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("sys/fs/cgroup/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
    ]);

    assert_eq!(answer(&root), limited(2.0, 2.0, "v2"));
}

#[test]
fn v2_without_any_limit_leaves_the_mask() {
    // Linux 6.8 on a desktop: the controller is not even enabled in the session's group.
    let root = machine([
        ("proc/self/cgroup", "0::/user.slice/session-2.scope\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
        (
            "sys/fs/cgroup/user.slice/session-2.scope/cgroup.procs",
            "1\n",
        ),
    ]);

    assert_eq!(answer(&root), unlimited("v2"));
}

#[test]
fn the_mount_that_shows_the_most_ancestors_is_used() {
    let mounts = "\
        50 24 0:30 /a/b /mnt/inner rw - cgroup2 cgroup2 rw\n\
        51 24 0:30 /elsewhere /mnt/other rw - cgroup2 cgroup2 rw\n\
        35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let root = machine([
        ("proc/self/cgroup", "0::/a/b\n"),
        ("proc/self/mountinfo", mounts),
        ("sys/fs/cgroup/a/cpu.max", "100000 100000\n"),
        ("sys/fs/cgroup/a/b/cgroup.procs", "1\n"),
        ("mnt/inner/cgroup.procs", "1\n"),
        ("mnt/inner/cpu.max", "300000 100000\n"),
    ]);

    assert_eq!(answer(&root), limited(1.0, 1.0, "v2"));
}

#[test]
fn a_mount_that_is_covered_by_another_is_skipped() {
    let mounts = "\
        35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
        50 24 0:30 /a /mnt/inner rw - cgroup2 cgroup2 rw\n";
    let root = machine([
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", mounts),
        ("mnt/inner/cgroup.procs", "1\n"),
        ("mnt/inner/cpu.max", "300000 100000\n"),
    ]);

    assert_eq!(answer(&root), limited(3.0, 3.0, "v2"));
}

#[test]
fn an_invisible_group_leaves_quota_and_usable_cores_unknown() {
    let limit = [
        ("sys/fs/cgroup/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
    ];
    let hidden = [
        ("0::/\n", ""),                    // Nothing is mounted.
        ("0::/../elsewhere\n", UNIFIED),   // Outside the cgroup namespace.
        ("0::/gone (deleted)\n", UNIFIED), // Its group was removed.
        ("4:cpu:/\n0::/\n", UNIFIED),      // The v1 hierarchy is not mounted.
        ("0::/", UNIFIED),                 // The file is cut.
        ("\0\u{ff}\n", UNIFIED),           // It is garbage.
        (
            "0::/\n",
            "35 24 0:30 /b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        ),
    ];
    for (groups, mounts) in hidden {
        let files = [
            ("proc/self/cgroup", groups),
            ("proc/self/mountinfo", mounts),
        ];

        assert_eq!(
            answer(&machine(files.into_iter().chain(limit))),
            (None, None, None),
            "{groups}"
        );
    }
}

#[test]
fn an_invalid_limit_of_any_ancestor_leaves_quota_and_usable_cores_unknown() {
    for strange in ["", "100000 100000", "0 100000\n", "lots\n", "-5 100000\n"] {
        let root = machine([
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/cpu.max", strange),
            ("sys/fs/cgroup/a/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/a/cpu.max", "100000 100000\n"),
        ]);

        assert_eq!(
            answer(&root),
            (None, None, Some("v2".into())),
            "{strange:?}"
        );
    }
}

#[test]
fn a_kernel_without_control_groups_has_no_limit() {
    assert_eq!(answer(&machine([])), (None, Some(4.0), None));
}

#[test]
fn a_changed_limit_and_a_moved_process_take_effect_at_the_next_tick() {
    let root = machine([
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("sys/fs/cgroup/a/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/a/cpu.max", "100000 100000\n"),
        ("sys/fs/cgroup/b/cgroup.procs", "\n"),
        ("sys/fs/cgroup/b/cpu.max", "300000 100000\n"),
    ]);
    let mut host = Host::with_root(&root).unwrap();
    let mut quota = || {
        tick(&mut host)
            .unwrap()
            .get("headspace.host.cpu.quota")
            .copied()
    };
    assert_eq!(quota(), Some(1.0));

    write(root.path(), "sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    assert_eq!(quota(), Some(2.0));

    write(root.path(), "proc/self/cgroup", "0::/b\n");
    assert_eq!(quota(), Some(3.0));

    write(root.path(), "proc/self/cgroup", "0::/b");
    assert_eq!(quota(), None);
}

/// Limits from the top group down to the group of the process, in hundredths of a core.
fn limits() -> impl Strategy<Value = Vec<Option<u32>>> {
    prop::collection::vec(prop::option::of(1u32..1_000), 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_tightest_of_any_nested_limits_holds_in_either_version(limits in limits(), v1: bool) {
        let group = "/g".repeat(limits.len() - 1);
        let (groups, mounts) = if v1 {
            (format!("2:cpu:{group}/\n"), "9 8 0:1 / /c rw - cgroup cgroup rw,cpu\n")
        } else {
            (format!("0::{group}/\n"), "9 8 0:1 / /c rw - cgroup2 cgroup2 rw\n")
        };
        let root = machine([("proc/self/cgroup", groups.as_str()), ("proc/self/mountinfo", mounts)]);
        for (depth, limit) in limits.iter().enumerate() {
            let folder = root.path().join("c").join("g/".repeat(depth));
            write(&folder, "cgroup.procs", "");
            match (v1, limit) {
                (true, limit) => {
                    let quota = limit.map_or(-1, |limit| i64::from(limit) * 1_000);
                    write(&folder, "cpu.cfs_quota_us", format!("{quota}\n"));
                    write(&folder, "cpu.cfs_period_us", "100000\n");
                }
                (false, Some(limit)) => write(&folder, "cpu.max", format!("{} 100000\n", limit * 1_000)),
                (false, None) => write(&folder, "cpu.max", "max 100000\n"),
            }
        }

        let expected = limits.iter().flatten().min().map(|&limit| f64::from(limit) / 100.0);

        let (quota, usable, _) = answer(&root);
        prop_assert_eq!(quota, expected);
        prop_assert_eq!(usable, Some(expected.unwrap_or(4.0).min(4.0)));
    }
}
