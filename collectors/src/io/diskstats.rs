//! `/proc/diskstats`: what each block device has done since it appeared.

use crate::procfs::{lines, number, words};

/// Bytes in a sector, whatever the device's own are (Documentation/admin-guide/iostats.rst).
pub(super) const SECTOR: u64 = 512;

/// One line. Times are in milliseconds, of which the kernel writes the lower 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) reads: u64,
    pub(super) read_sectors: u64,
    pub(super) read_ms: u64,
    pub(super) writes: u64,
    pub(super) written_sectors: u64,
    pub(super) write_ms: u64,
    /// Time in which there was something to do.
    pub(super) busy_ms: u64,
}

/// The line of a device, by its kernel name.
pub(super) fn of(bytes: &[u8], name: &str) -> Option<Stats> {
    lines(bytes).find_map(|line| {
        let mut words = words(line).skip(2);
        (words.next()? == name.as_bytes()).then(|| parse(words))?
    })
}

/// The name of a device, by its numbers.
pub(super) fn name(bytes: &[u8], major: u32, minor: u32) -> Option<&str> {
    lines(bytes).find_map(|line| {
        let mut words = words(line);
        let found = number(words.next()?)? == u64::from(major)
            && number(words.next()?)? == u64::from(minor);
        found.then(|| std::str::from_utf8(words.next()?).ok())?
    })
}

fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Stats> {
    let mut next = |skip: usize| words.nth(skip).and_then(number);
    // Merged requests and requests in flight are passed over.
    Some(Stats {
        reads: next(0)?,
        read_sectors: next(1)?,
        read_ms: next(0)?,
        writes: next(0)?,
        written_sectors: next(1)?,
        write_ms: next(0)?,
        busy_ms: next(1)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
        254       0 vda 669227 41062 68960882 1031350 114832 382828 139829200 647008 3 135388 \
        1721700 378504 227 88559088 43033 4337 307\n";
    /// Before Linux 4.18 there were no discards, and no flushes before 5.5.
    const OLD: &str = "   8       0 sda 10 1 20 30 40 2 50 60 0 70 90\n";

    #[test]
    fn the_fields_are_told_apart_in_old_and_new_kernels() {
        let vda = of(FILE.as_bytes(), "vda").unwrap();
        assert_eq!(
            (vda.reads, vda.read_sectors, vda.read_ms),
            (669_227, 68_960_882, 1_031_350)
        );
        assert_eq!(
            (vda.writes, vda.written_sectors, vda.write_ms),
            (114_832, 139_829_200, 647_008)
        );
        assert_eq!(vda.busy_ms, 135_388);
        assert_eq!(of(OLD.as_bytes(), "sda").unwrap().busy_ms, 70);
    }

    #[test]
    fn a_device_has_a_name_by_its_numbers_and_an_absent_one_has_nothing() {
        assert_eq!(name(FILE.as_bytes(), 254, 0), Some("vda"));
        assert_eq!(name(FILE.as_bytes(), 254, 1), None);
        assert_eq!(of(FILE.as_bytes(), "vd"), None);
        assert_eq!(of(FILE.as_bytes(), "vda1"), None);
    }

    proptest! {
        #[test]
        fn a_cut_file_tells_the_same_or_nothing(cut in 0..FILE.len()) {
            let told = of(&FILE.as_bytes()[..cut], "vda");
            prop_assert!(told.is_none());
        }

        #[test]
        fn any_bytes_are_taken_apart_without_a_panic(bytes: Vec<u8>) {
            let _ = (of(&bytes, "vda"), name(&bytes, 254, 0));
        }
    }
}
