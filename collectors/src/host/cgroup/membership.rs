//! Finds the folders of this process's group and of its ancestors, for each controller.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::{Unknown, Version};
use crate::procfs::mountinfo::{self, MountLine};
use crate::procfs::{self, lines};

/// Maximum depth of nested groups. Real systems have fewer than 20. Each group costs one or two files per
/// tick.
const MAX_DEPTH: usize = 64;

/// The resource that a hierarchy of groups limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// None: the unified hierarchy, with any controllers.
    Unified,
}

impl Controller {
    /// Whether a v1 list such as `cpu,cpuacct` contains it.
    fn is_in(self, names: &[u8]) -> bool {
        let own: &[u8] = match self {
            Self::Cpu => b"cpu",
            Self::Memory => b"memory",
            Self::Unified => return false,
        };
        names.split(|&byte| byte == b',').any(|name| name == own)
    }
}

/// The group of this process for one controller, by its path in its hierarchy. `None` if there is no group:
/// the file is empty if no hierarchy was ever mounted. Unknown if the file is truncated or malformed, or
/// contains no group that could have the controller.
type OwnGroup = Result<Option<(Version, PathBuf)>, Unknown>;

/// Finds the group in `/proc/self/cgroup`.
pub(super) fn own_group(membership: &[u8], controller: Controller) -> OwnGroup {
    if membership.is_empty() {
        return Ok(None);
    }
    let mut unified = Err(Unknown);
    for line in lines(membership) {
        // `id:controllers:path`; the path may contain colons.
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (Some(id), Some(names), Some(group)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(Unknown);
        };
        if controller.is_in(names) {
            return Ok(Some((Version::V1, path(group))));
        }
        if id == b"0" && names.is_empty() {
            unified = Ok(Some((Version::V2, path(group))));
        }
    }
    if !membership.ends_with(b"\n") {
        return Err(Unknown);
    }
    unified
}

/// The folder of `group`, then the folders of its visible ancestors; `None` if the group itself is not
/// visible.
pub(super) fn folders(
    root: &Path,
    mountinfo: &[u8],
    version: Version,
    controller: Controller,
    group: &Path,
) -> Option<Vec<PathBuf>> {
    let mut mounts: Vec<_> = lines(mountinfo)
        .filter_map(|line| Mount::parse(line, version, controller))
        .filter_map(|mount| {
            let within = group.strip_prefix(&mount.from).ok()?.to_owned();
            // `..` is a group outside the process's cgroup namespace, which has no folder here.
            let plain = within
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
            plain.then_some((within, mount.at))
        })
        .collect();
    // The mount with the longest path below it shows the most ancestors.
    mounts.sort_by_key(|(within, _)| std::cmp::Reverse(within.components().count()));
    mounts.into_iter().find_map(|(within, at)| {
        let depth = within.components().count();
        let top = procfs::below(root, at);
        let own = top.join(within);
        // If another mount covers this one, no groups are visible.
        let shown = depth < MAX_DEPTH && own.join("cgroup.procs").exists();
        shown.then(|| {
            own.ancestors()
                .take(depth + 1)
                .map(Path::to_owned)
                .collect()
        })
    })
}

/// A mounted hierarchy.
struct Mount {
    /// The group at the mount point.
    from: PathBuf,
    /// The mount point.
    at: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo` (proc(5)), if it mounts the hierarchy of the controller in
    /// this version.
    fn parse(line: &[u8], version: Version, controller: Controller) -> Option<Self> {
        let line = MountLine::parse(line)?;
        let fits = match version {
            Version::V1 => line.kind == b"cgroup" && controller.is_in(line.options),
            Version::V2 => line.kind == b"cgroup2",
        };
        fits.then(|| Self {
            from: mountinfo::path(line.root),
            at: mountinfo::path(line.at),
        })
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(text: &str) -> OwnGroup {
        own_group(text.as_bytes(), Controller::Cpu)
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is compared with a result of `own_group`"
    )]
    fn group(version: Version, path: &str) -> OwnGroup {
        Ok(Some((version, path.into())))
    }

    #[test]
    fn a_v1_group_with_the_cpu_controller_is_used_wherever_it_is_listed() {
        assert_eq!(
            own("0::/user\n4:cpu,cpuacct:/a:b\n"),
            group(Version::V1, "/a:b")
        );
        assert_eq!(
            own("5:cpuacct,cpu:/x\n0::/user\n"),
            group(Version::V1, "/x")
        );
    }

    #[test]
    fn without_a_v1_group_the_unified_hierarchy_is_used_and_cpuset_is_not_cpu() {
        assert_eq!(
            own("7:cpuset:/a\n6:cpuacct:/b\n0::/user\n"),
            group(Version::V2, "/user")
        );
        assert_eq!(own("7:cpuset:/a\n1:name=systemd:/b\n"), Err(Unknown));
    }

    #[test]
    fn each_controller_has_a_hierarchy_of_its_own() {
        let hybrid = b"4:memory:/api/f863\n1:cpu:/\n0::/user\n";
        let of = |controller| own_group(hybrid, controller);

        assert_eq!(of(Controller::Memory), group(Version::V1, "/api/f863"));
        assert_eq!(of(Controller::Cpu), group(Version::V1, "/"));
        assert_eq!(of(Controller::Unified), group(Version::V2, "/user"));
        assert_eq!(own_group(b"1:cpu:/\n", Controller::Unified), Err(Unknown));
    }

    #[test]
    fn a_malformed_file_is_unknown_and_an_empty_file_means_no_group() {
        assert_eq!(own(""), Ok(None));
        assert_eq!(own("0::/user"), Err(Unknown));
        assert_eq!(own("garbage\n"), Err(Unknown));
        assert_eq!(own("7:cpuset:/a\n0::/us"), Err(Unknown));
    }

    #[test]
    fn mount_points_are_found_behind_optional_fields_and_escapes() {
        let line =
            br"31 23 0:28 /a\040b /sys/fs/c\134g rw,relatime shared:9 master:1 - cgroup2 c rw";

        let mount = Mount::parse(line, Version::V2, Controller::Cpu).unwrap();

        assert_eq!(
            (mount.from, mount.at),
            ("/a b".into(), r"/sys/fs/c\g".into())
        );
        assert!(Mount::parse(line, Version::V1, Controller::Cpu).is_none());
    }

    #[test]
    fn a_truncated_line_or_another_hierarchy_is_no_mount() {
        let wrong: [&[u8]; 4] = [
            b"",
            b"31 23 0:28 / /sys/fs/cgroup rw",
            b"31 23 0:28 / /sys/fs/cgroup rw - cgroup",
            b"31 23 0:28 / /sys/fs/cgroup rw - cgroup cgroup rw,cpuset,cpuacct",
        ];
        for line in wrong {
            assert!(Mount::parse(line, Version::V1, Controller::Cpu).is_none());
            assert!(Mount::parse(line, Version::V2, Controller::Cpu).is_none());
        }
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = own_group(&bytes, Controller::Memory);
            for version in [Version::V1, Version::V2] {
                let _ = Mount::parse(&bytes, version, Controller::Cpu);
                let _ = folders(Path::new("/nowhere"), &bytes, version, Controller::Memory, Path::new("/a/b"));
            }
        }

        #[test]
        fn no_group_leads_out_of_its_mount(name in "[./a]{0,12}", within in "[./a]{0,12}") {
            let root = tempfile::tempdir().unwrap();
            let line = format!("1 1 0:1 /{within} /m rw - cgroup2 c rw\n");
            std::fs::create_dir(root.path().join("m")).unwrap();
            for inside in ["", "m/"] {
                std::fs::write(root.path().join(inside).join("cgroup.procs"), "").unwrap();
            }

            let found = folders(root.path(), line.as_bytes(), Version::V2, Controller::Cpu, Path::new(&format!("/{name}")));

            for folder in found.into_iter().flatten() {
                prop_assert!(folder.canonicalize().unwrap().starts_with(root.path().join("m")));
            }
        }
    }
}
