//! Parses the files of one process to numbers, or to `None` if they are truncated or malformed.

use super::{lines, number, words};

/// The identity of a process: the start time distinguishes it from a later process with the same pid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// Its pid, in the namespace of this `/proc`.
    pub(crate) pid: u32,
    /// When it started, in clock ticks since boot.
    pub(crate) started: u64,
}

/// The values that are used from `/proc/<pid>/stat` (proc(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) identity: Identity,
    /// One letter; `Z` is a zombie.
    pub(crate) state: u8,
    /// The pid of its parent; 0 if the parent is in another namespace.
    pub(crate) parent: u32,
    /// Page faults that needed no disk.
    pub(crate) minor_faults: u64,
    /// Those of reaped children and of their reaped descendants.
    pub(crate) children_minor_faults: u64,
    /// Page faults that waited for a disk.
    pub(crate) major_faults: u64,
    /// Those of reaped children and of their reaped descendants.
    pub(crate) children_major_faults: u64,
    /// In clock ticks.
    pub(crate) user: u64,
    /// In clock ticks.
    pub(crate) system: u64,
    /// That of reaped children and of their reaped descendants, in clock ticks.
    pub(crate) children_user: u64,
    /// That of reaped children and of their reaped descendants, in clock ticks.
    pub(crate) children_system: u64,
    /// At least 1.
    pub(crate) threads: u64,
}

/// Reads `/proc/<pid>/stat`.
///
/// The second field is the command's name in parentheses. The name may contain spaces, parentheses and
/// newlines, so the other fields begin after the last `)`. If the file is truncated within the name, the
/// name is too short to look like the fields.
pub(crate) fn stat(bytes: &[u8]) -> Option<Stat> {
    let name_end = bytes.iter().rposition(|&byte| byte == b')')?;
    let (name, rest) = bytes.split_at(name_end + 1);
    let pid = words(name).next().and_then(number)?;
    let mut fields = words(lines(rest).next()?);
    let &[state] = fields.next()? else {
        return None;
    };
    let parent = fields.next().and_then(number)?;
    // Fields 5 to 9 of proc(5) follow, which are unused.
    let mut next = |skip: usize| fields.nth(skip).and_then(number);
    let stat = Stat {
        state,
        parent: u32::try_from(parent).ok()?,
        minor_faults: next(5)?,
        children_minor_faults: next(0)?,
        major_faults: next(0)?,
        children_major_faults: next(0)?,
        user: next(0)?,
        system: next(0)?,
        children_user: next(0)?,
        children_system: next(0)?,
        threads: next(2)?,
        identity: Identity {
            pid: u32::try_from(pid).ok()?,
            started: next(1)?,
        },
    };
    (stat.threads > 0).then_some(stat)
}

/// The values that are used from `/proc/<pid>/statm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Pages of address space. At least 1: a running program is mapped.
    pub(crate) mapped: u64,
    /// Pages in memory.
    pub(crate) resident: u64,
    /// Resident pages that a file or a shared segment backs.
    pub(crate) shared: u64,
}

impl Memory {
    /// Resident pages that no file or shared segment backs.
    pub(crate) fn anonymous(&self) -> u64 {
        self.resident.saturating_sub(self.shared)
    }
}

/// Reads `/proc/<pid>/statm`.
pub(crate) fn statm(bytes: &[u8]) -> Option<Memory> {
    let mut fields = words(lines(bytes).next()?).map(number);
    let memory = Memory {
        mapped: fields.next()??,
        resident: fields.next()??,
        shared: fields.next()??,
    };
    (memory.mapped > 0 && memory.resident <= memory.mapped).then_some(memory)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAIL: &str = "S 1 4242 4242 0 -1 4194560 9 8 7 6 5 4 3 2 20 0 11 0 1183 4096 1 0\n";

    fn expected() -> Stat {
        Stat {
            identity: Identity {
                pid: 4242,
                started: 1183,
            },
            state: b'S',
            parent: 1,
            minor_faults: 9,
            children_minor_faults: 8,
            major_faults: 7,
            children_major_faults: 6,
            user: 5,
            system: 4,
            children_user: 3,
            children_system: 2,
            threads: 11,
        }
    }

    #[test]
    fn a_name_may_contain_spaces_parentheses_and_newlines() {
        for name in [
            "python3",
            "a b",
            ") S 1 2 3",
            "((",
            ")\n(",
            "x) R 1 1\n",
            "",
        ] {
            let line = format!("4242 ({name}) {TAIL}");
            assert_eq!(stat(line.as_bytes()), Some(expected()), "{name:?}");
        }
    }

    #[test]
    fn a_process_without_threads_or_pages_is_invalid() {
        assert_eq!(
            stat(format!("1 (a) {}", TAIL.replace(" 11 ", " 0 ")).as_bytes()),
            None
        );
        assert_eq!(statm(b"0 0 0 0 0 0 0\n"), None);
        assert_eq!(statm(b"10 11 0 0 0 0 0\n"), None);
    }

    #[test]
    fn negative_numbers_yield_nothing() {
        assert_eq!(
            stat(format!("1 (a) {}", TAIL.replace(" 5 ", " -5 ")).as_bytes()),
            None
        );
        assert_eq!(statm(b"-10 1 0 0 0 0 0\n"), None);
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = (stat(&bytes), statm(&bytes));
        }

        #[test]
        fn any_name_leaves_the_numbers_as_they_are(name in prop::collection::vec(any::<u8>(), 0..16)) {
            let mut line = b"4242 (".to_vec();
            line.extend(name);
            line.extend(b") ");
            line.extend(TAIL.as_bytes());
            prop_assert_eq!(stat(&line), Some(expected()));
        }

        #[test]
        fn a_truncated_file_gives_nothing(name in prop::collection::vec(any::<u8>(), 0..16), cut: prop::sample::Index) {
            let mut line = b"4242 (".to_vec();
            line.extend(name);
            line.extend(b") ");
            line.extend(TAIL.as_bytes());
            prop_assert_eq!(stat(&line[..cut.index(line.len())]), None);

            let line = b"783360 90112 4096 1 0 700000 0\n";
            prop_assert_eq!(statm(&line[..cut.index(line.len())]), None);
        }

        #[test]
        fn numbers_come_back_as_written(mapped in 1u64.., resident: u64) {
            let resident = resident % mapped;
            let line = format!("{mapped} {resident} 1 2 0 3 0\n");
            let shared = 1;
            let memory = Memory { mapped, resident, shared };
            prop_assert_eq!(statm(line.as_bytes()), Some(memory));
            prop_assert_eq!(memory.anonymous(), resident.saturating_sub(1));
        }
    }
}
