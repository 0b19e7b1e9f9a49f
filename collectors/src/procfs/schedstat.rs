//! Parses `schedstat`: how long a thread ran, and how long it waited for a core.

use headspace_agent::model::ThreadTimes;

use super::{lines, number, words};

/// Parses the two times in nanoseconds and the number of time slices. All of them are 0 if the kernel does not
/// count, because every thread has run.
pub(crate) fn parse(schedstat: &[u8]) -> Option<ThreadTimes> {
    let mut fields = words(lines(schedstat).next()?).map(number);
    let (ran_ns, waited_ns) = (fields.next()??, fields.next()??);
    let slices = fields.next()??;
    ([ran_ns, waited_ns, slices] != [0; 3]).then_some(ThreadTimes { ran_ns, waited_ns })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_three_numbers_of_a_kernel_that_counts_are_times() {
        assert_eq!(parse(b"0 0 0\n"), None);
        assert_eq!(
            parse(b"36025493 23987365 116\n"),
            Some(ThreadTimes {
                ran_ns: 36_025_493,
                waited_ns: 23_987_365
            })
        );
        for wrong in ["", "1 2 3", "1 2\n", "1 -2 3\n", "a b c\n"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_truncated_file_gives_nothing(cut: prop::sample::Index) {
            let line = b"36025493 23987365 116\n";
            prop_assert_eq!(parse(&line[..cut.index(line.len())]), None);
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
