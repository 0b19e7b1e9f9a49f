//! How often and for how long a group's CPU quota throttled it.

use super::keyed;

/// Parses `cpu.stat`: v1 counts nanoseconds in `throttled_time`, v2 microseconds in
/// `throttled_usec`.
pub(super) fn parse(bytes: &[u8]) -> Option<[u64; 3]> {
    let nanos = keyed(bytes, "throttled_time")
        .or_else(|| keyed(bytes, "throttled_usec")?.checked_mul(1_000))?;
    Some([
        keyed(bytes, "nr_periods")?,
        keyed(bytes, "nr_throttled")?,
        nanos,
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V1: &[u8] = b"nr_periods 200\nnr_throttled 30\nthrottled_time 1500000000\n";
    const V2: &[u8] = b"usage_usec 9\nuser_usec 8\nsystem_usec 1\nnr_periods 200\n\
        nr_throttled 30\nthrottled_usec 1500000\nnr_bursts 0\n";

    #[test]
    fn both_versions_give_the_same_totals_from_their_own_units() {
        let expected = Some([200, 30, 1_500_000_000]);

        assert_eq!(parse(V1), expected);
        assert_eq!(parse(V2), expected);
    }

    #[test]
    fn a_group_without_these_counters_has_no_totals() {
        assert_eq!(parse(b"usage_usec 9\nuser_usec 8\nsystem_usec 1\n"), None);
        assert_eq!(
            parse(b"nr_periods 1\nnr_throttled -1\nthrottled_usec 1\n"),
            None
        );
    }

    proptest! {
        #[test]
        fn a_truncated_file_gives_the_same_totals_or_none(v1: bool, cut: prop::sample::Index) {
            let whole = if v1 { V1 } else { V2 };
            let totals = parse(&whole[..cut.index(whole.len())]);
            prop_assert!(totals.is_none() || totals == parse(whole));
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
