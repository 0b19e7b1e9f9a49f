//! Identifies a process by pid and start time, because pids are reused.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::procfs;
use crate::procfs::parse::{Identity, Stat};
use crate::procfs::walk::read_stat;

impl Identity {
    /// This process; `None` if `/proc` cannot be read.
    pub(super) fn here() -> Option<Self> {
        stat("self").map(|stat| stat.identity)
    }

    /// Whether the process is running. A zombie is not.
    pub(super) fn lives(self) -> bool {
        stat(&self.pid.to_string())
            .is_some_and(|stat| stat.identity == self && !matches!(stat.state, b'Z' | b'X'))
    }

    /// ID of its parent; `None` if it has ended.
    pub(super) fn parent(self) -> Option<u32> {
        let stat = stat(&self.pid.to_string())?;
        (stat.identity == self).then_some(stat.parent)
    }

    /// Whether no process has this pid. This check costs less than [`lives`](Self::lives).
    pub(super) fn number_is_free(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }

    /// Parses the two numbers at the beginning of a name. Also returns the rest of the name.
    pub(super) fn parse(name: &str) -> Option<(Self, &str)> {
        let (pid, rest) = name.split_once('-')?;
        let (started, rest) = rest.split_once('-').unwrap_or((rest, ""));
        let pid = u32::try_from(procfs::number(pid.as_bytes())?).ok()?;
        let started = procfs::number(started.as_bytes())?;
        Some((Self { pid, started }, rest))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

/// Reads `stat` of a process; `None` if it has ended.
fn stat(pid: &str) -> Option<Stat> {
    read_stat(&Path::new("/proc").join(pid), &mut Vec::new()).ok()
}

/// The process with this pid.
#[cfg(test)]
pub(super) fn of(pid: u32) -> Option<Identity> {
    stat(&pid.to_string()).map(|stat| stat.identity)
}

/// The ancestors of this process, its parent first.
pub(super) fn ancestors() -> impl Iterator<Item = Identity> {
    /// In a deeper process tree, no trainer is searched for beyond this depth.
    const MOST: usize = 64;

    let mut pid = stat("self").map_or(0, |own| own.parent);
    std::iter::from_fn(move || {
        let ancestor = stat(&pid.to_string())?;
        pid = ancestor.parent;
        Some(ancestor.identity)
    })
    .take(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_process_with_its_pid_is_not() {
        let here = Identity::here().unwrap();
        let earlier = Identity {
            started: here.started - 1,
            ..here
        };

        assert_eq!(here.pid, std::process::id());
        assert!(here.lives() && !here.number_is_free());
        assert!(!earlier.lives());
    }

    #[test]
    fn a_zombie_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let identity = stat(&pid.to_string()).unwrap().identity;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while identity.lives() {
            assert!(std::time::Instant::now() < deadline);
        }

        assert!(!identity.number_is_free());
        child.wait().unwrap();
        assert!(identity.number_is_free());
    }

    #[test]
    fn a_name_is_two_numbers_and_a_rest() {
        let identity = Identity {
            pid: 47,
            started: 82,
        };
        assert_eq!(Identity::parse("47-82"), Some((identity, "")));
        assert_eq!(Identity::parse("47-82-0"), Some((identity, "0")));
        for foreign in ["", "47", "47-", "-82", "a-82", "47-8x", "99999999999-1"] {
            assert_eq!(Identity::parse(foreign), None, "`{foreign}`");
        }
    }

    #[test]
    fn the_parent_is_the_first_ancestor() {
        let first = ancestors().next().unwrap();

        assert_eq!(first.pid, std::os::unix::process::parent_id());
    }
}
