//! Reads sets of cores: the online ones, and those on which this process may run.

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::procfs::number;

/// Highest valid core number, plus one. Kernels support at most 8,192 cores.
const MAX_CORES: usize = 65_536;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of cores, with one bit per core. An empty set means unknown, because every process has a core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cores {
    words: Vec<u64>,
}

impl Cores {
    pub(super) fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn contains(&self, core: usize) -> bool {
        self.words
            .get(core / WORD_BITS)
            .is_some_and(|word| word >> (core % WORD_BITS) & 1 == 1)
    }

    /// The numbers of the cores, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.words.len() * WORD_BITS).filter(|core| self.contains(*core))
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    /// Keeps only the cores that are also in `other`.
    pub(super) fn keep(&mut self, other: &Self) {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(index).copied().unwrap_or(0);
        }
    }

    fn insert(&mut self, core: usize) {
        let index = core / WORD_BITS;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        if let Some(word) = self.words.get_mut(index) {
            *word |= 1 << (core % WORD_BITS);
        }
    }

    /// Replaces the set by the cores in a list of the kernel, such as `0-3,8,10-11`. The set is empty if the
    /// list is malformed.
    pub(super) fn read_list(&mut self, list: &[u8]) {
        self.clear();
        if self.try_list(list).is_none() {
            self.clear();
        }
    }

    fn try_list(&mut self, list: &[u8]) -> Option<()> {
        for range in list.split(|&byte| byte == b',') {
            let mut ends = range.splitn(2, |&byte| byte == b'-').map(number);
            let first = usize::try_from(ends.next()??).ok()?;
            let end = match ends.next() {
                Some(end) => usize::try_from(end?).ok()?,
                None => first,
            };
            if first > end || end >= MAX_CORES {
                return None;
            }
            (first..=end).for_each(|core| self.insert(core));
        }
        Some(())
    }

    /// Replaces the set by the cores on which the process's main thread may run. The set is empty if the
    /// system call fails, as on a kernel for more than [`CpuSet::MAX_CPU`] cores.
    ///
    /// Threads and worker processes inherit the mask of the main thread. Other threads may be pinned for
    /// their own purpose. The kernel omits offline cores.
    pub(super) fn read_affinity(&mut self) {
        self.clear();
        // The id of a process is the id of its main thread; `None` would be the calling thread.
        if let Ok(mask) = sched_getaffinity(Some(getpid())) {
            let allowed = (0..CpuSet::MAX_CPU).filter(|&core| mask.is_set(core));
            allowed.for_each(|core| self.insert(core));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn list(bytes: &[u8]) -> Cores {
        let mut cores = Cores::default();
        cores.read_list(bytes);
        cores
    }

    fn affinity() -> Cores {
        let mut cores = Cores::default();
        cores.read_affinity();
        cores
    }

    #[test]
    fn a_list_has_ranges_and_single_cores_beyond_1024() {
        let cores = list(b"0-3,8,1500-1501");

        assert_eq!(cores.len(), 7);
        assert!(
            [0, 3, 8, 1500, 1501]
                .into_iter()
                .all(|core| cores.contains(core))
        );
        assert!(
            [4, 9, 1499, 1502, usize::MAX]
                .into_iter()
                .all(|core| !cores.contains(core))
        );
    }

    #[test]
    fn a_list_that_is_empty_open_reversed_or_endless_is_unknown() {
        for wrong in [
            "",
            "3-1",
            "0-",
            "-1",
            "0,,1",
            "0,",
            "0-1-2",
            "0-4294967295",
            "0-65536",
            "a",
            "0\n",
        ] {
            assert_eq!(list(wrong.as_bytes()).len(), 0, "{wrong:?}");
        }
    }

    #[test]
    fn affinity_equals_the_mask_of_the_main_thread_in_proc() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let allowed = status
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
            .unwrap();
        let mut expected = list(allowed.trim().as_bytes());
        let online = std::fs::read("/sys/devices/system/cpu/online").unwrap();
        expected.keep(&list(online.trim_ascii()));

        let cores = affinity();

        assert!(expected.len() > 0);
        assert_eq!(cores.len(), expected.len());
        assert!((0..MAX_CORES).all(|core| cores.contains(core) == expected.contains(core)));
    }

    #[test]
    fn a_mask_that_is_read_again_does_not_grow() {
        let mut cores = affinity();
        let (once, capacity) = (cores.clone(), cores.words.capacity());

        (0..100).for_each(|_| cores.read_affinity());

        assert_eq!((cores.words.capacity(), cores), (capacity, once));
    }

    proptest! {
        #[test]
        fn any_bytes_yield_cores_or_nothing(bytes: Vec<u8>) {
            let cores = list(&bytes);
            prop_assert!((0..MAX_CORES).filter(|&core| cores.contains(core)).count() as u64 == u64::from(cores.len()));
        }

        #[test]
        fn a_parsed_list_contains_exactly_the_written_cores(
            ranges in prop::collection::vec((0usize..9000, 0usize..40), 1..20)
        ) {
            let mut expected = BTreeSet::new();
            let text: Vec<_> = ranges
                .iter()
                .map(|&(first, more)| {
                    expected.extend(first..=first + more);
                    if more == 0 { first.to_string() } else { format!("{first}-{}", first + more) }
                })
                .collect();

            let cores = list(text.join(",").as_bytes());

            let found: BTreeSet<_> = (0..10_000).filter(|&core| cores.contains(core)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
