//! Parses `/proc/diskstats`: the activity of each block device since it appeared.

use crate::procfs::{lines, number, words};

/// Bytes in a sector. Does not depend on the device (Documentation/admin-guide/iostats.rst).
pub(super) const SECTOR: u64 = 512;

/// The counters of a device, by its kernel name: sectors read and written, reads and writes, time of
/// reads and of writes, and the time during which any request was in progress.
///
/// Times are in milliseconds; the kernel writes their lower 32 bits.
pub(super) fn counters(bytes: &[u8], name: &str) -> Option<[u64; 7]> {
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

fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<[u64; 7]> {
    let mut next = |skip: usize| words.nth(skip).and_then(number);
    // Merged requests and requests in progress are skipped.
    let (reads, sectors_read, read_ms) = (next(0)?, next(1)?, next(0)?);
    let (writes, sectors_written, write_ms) = (next(0)?, next(1)?, next(0)?);
    Some([
        sectors_read,
        sectors_written,
        reads,
        writes,
        read_ms,
        write_ms,
        next(1)?,
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
        254       0 vda 669227 41062 68960882 1031350 114832 382828 139829200 647008 3 135388 \
        1721700 378504 227 88559088 43033 4337 307\n";
    /// Linux before 4.18 has no discards, and before 5.5 no flushes.
    const OLD: &str = "   8       0 sda 10 1 20 30 40 2 50 60 0 70 90\n";

    #[test]
    fn the_fields_are_found_in_files_of_old_and_new_kernels() {
        let [read, written, rest @ ..] = counters(FILE.as_bytes(), "vda").unwrap();
        assert_eq!([read, written], [68_960_882, 139_829_200]);
        assert_eq!(rest, [669_227, 114_832, 1_031_350, 647_008, 135_388]);
        assert_eq!(counters(OLD.as_bytes(), "sda").unwrap()[6], 70);
    }

    #[test]
    fn a_device_is_found_by_its_numbers_and_a_missing_one_is_not() {
        assert_eq!(name(FILE.as_bytes(), 254, 0), Some("vda"));
        assert_eq!(name(FILE.as_bytes(), 254, 1), None);
        assert_eq!(counters(FILE.as_bytes(), "vd"), None);
        assert_eq!(counters(FILE.as_bytes(), "vda1"), None);
    }

    proptest! {
        #[test]
        fn a_truncated_line_has_no_counters(cut in 0..FILE.len()) {
            let found = counters(&FILE.as_bytes()[..cut], "vda");
            prop_assert!(found.is_none());
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = (counters(&bytes, "vda"), name(&bytes, 254, 0));
        }
    }
}
