//! Distribution of durations: a histogram that merges without loss.
//!
//! Averages of averages mislead, because windows, workers and ranks have different numbers of steps. So
//! durations are kept in a high dynamic range histogram (Gil Tene's `HdrHistogram`, two significant digits:
//! a bucket is at most 1 % wide), with their exact sum. Means are exact, and percentiles are accurate to 1
//! %.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest duration of the buckets: one hour. Longer durations count as one hour in the buckets. The sum
/// stays exact.
pub const MAX_NANOS: u64 = 3_600_000_000_000;

/// Significant decimal digits of the buckets.
const DIGITS: u8 = 2;

/// A set of durations. To record one costs about 6 ns. An empty distribution has no buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    sum_nanos: u64,
    min_nanos: u64,
    max_nanos: u64,
    histogram: Histogram<u32>,
}

impl Default for Distribution {
    fn default() -> Self {
        let Ok(mut histogram) = Histogram::new(DIGITS) else {
            // `new` refuses only more than five digits.
            unreachable!("two digits are within the histogram's range")
        };
        histogram.auto(true);
        Self {
            histogram,
            sum_nanos: 0,
            min_nanos: u64::MAX,
            max_nanos: 0,
        }
    }
}

impl Distribution {
    /// Adds one duration.
    pub fn record(&mut self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    fn record_many(&mut self, nanos: u64, count: u32) {
        // Cannot fail: the histogram grows by itself, and the value is bounded.
        let _ = self.histogram.record_n(nanos.clamp(1, MAX_NANOS), count);
        self.sum_nanos = self
            .sum_nanos
            .saturating_add(nanos.saturating_mul(u64::from(count)));
        self.min_nanos = self.min_nanos.min(nanos);
        self.max_nanos = self.max_nanos.max(nanos);
    }

    /// A distribution from counts of buckets, the first of which is `first`, and the exact sum. Shortest
    /// and longest are those of the buckets.
    pub fn of_buckets(first: usize, counts: &[u32], sum_nanos: u64) -> Self {
        let mut d = Self::default();
        for (bucket, &count) in (first as u64..).zip(counts) {
            if count > 0 {
                d.record_many(bound_of(bucket).max(1), count);
            }
        }
        d.sum_nanos = sum_nanos;
        d
    }

    /// Adds all of another's durations.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let _ = self.histogram.add(&other.histogram);
        self.sum_nanos = self.sum_nanos.saturating_add(other.sum_nanos);
        self.min_nanos = self.min_nanos.min(other.min_nanos);
        self.max_nanos = self.max_nanos.max(other.max_nanos);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Exact sum in nanoseconds.
    pub fn sum_nanos(&self) -> u64 {
        self.sum_nanos
    }

    /// Exact mean in milliseconds; `None` when empty.
    pub fn mean_ms(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum_nanos as f64 / self.count() as f64 / 1e6)
    }

    /// Quantile `q` in `[0, 1]`, in milliseconds, accurate to 1 %; `None` when empty.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        (!self.is_empty()).then(|| {
            let nanos = self.histogram.value_at_quantile(q);
            nanos.clamp(self.min_nanos, self.max_nanos) as f64 / 1e6
        })
    }

    /// Share of the durations that are longer than `ms`, in `[0, 1]`; `None` when empty.
    pub fn share_above_ms(&self, ms: f64) -> Option<f64> {
        let up_to = self
            .histogram
            .count_between(0, nanos_from_ms(ms).min(MAX_NANOS));
        (!self.is_empty()).then(|| 1.0 - up_to as f64 / self.count() as f64)
    }

    /// Longest duration in milliseconds; `None` when empty.
    pub fn max_ms(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.max_nanos as f64 / 1e6)
    }

    /// A sample of `keep` durations, evenly spaced in sorted order, with the sum in proportion. All
    /// durations if there are no more than that.
    #[must_use]
    pub fn thinned(&self, keep: u64) -> Self {
        let all = self.count();
        if keep >= all {
            return self.clone();
        }
        let mut few = Self::default();
        let share = keep as f64 / all as f64;
        let (mut seen, mut kept) = (0_u64, 0_u64);
        for found in self.histogram.iter_recorded() {
            seen += found.count_since_last_iteration();
            let so_far = seen.saturating_mul(keep) / all;
            let count = u32::try_from(so_far - kept).unwrap_or(u32::MAX);
            if count > 0 {
                let nanos = found.value_iterated_to();
                few.record_many(nanos.clamp(self.min_nanos, self.max_nanos), count);
            }
            kept = so_far;
        }
        few.with_sum_ms(self.sum_nanos as f64 * share / 1e6)
    }

    /// The same durations with a more exact sum, in milliseconds.
    #[must_use]
    pub fn with_sum_ms(self, sum_ms: f64) -> Self {
        Self {
            sum_nanos: nanos_from_ms(sum_ms),
            ..self
        }
    }
}

/// A [`Distribution`] in a record. All durations are in milliseconds. Percentiles can be computed
/// from the buckets and are not repeated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DistributionRecord {
    /// Number of durations.
    pub count: u64,
    /// Exact sum.
    pub sum_ms: f64,
    /// Shortest.
    pub min_ms: f64,
    /// Longest.
    pub max_ms: f64,
    /// Counts of bucket 0, 1, 2 and so on. A negative number `-n` stands for `n` empty buckets, as
    /// in the V2 encoding of `HdrHistogram`. For example, `[-300, 5, 7]` is 5 in bucket 300 and 7
    /// in bucket 301. Up to `i = 255`, bucket `i` begins at `i` nanoseconds. Above, it begins at
    /// `(i - 128 * s) * 2^s` nanoseconds, with `s = i / 128 - 1` rounded down. A bucket ends where
    /// the next one begins, at most 0.8 % higher. To merge two distributions without loss, add the
    /// counts of equal buckets.
    pub buckets: Vec<i64>,
}

/// Buckets are 1 ns wide up to here, then twice as wide each time the duration doubles.
const EXACT: u64 = 256;

/// Number of buckets for all durations up to [`MAX_NANOS`].
pub const BUCKETS: usize = 4_608;

/// The bucket that holds `nanos`.
#[inline]
pub(crate) fn bucket_of(nanos: u64) -> u64 {
    let shift = u64::from((nanos / EXACT).checked_ilog2().map_or(0, |log| log + 1));
    shift * (EXACT / 2) + (nanos >> shift)
}

/// Bounds of a bucket in nanoseconds: the first is inclusive, the second exclusive.
pub fn bucket_bounds(bucket: u64) -> (u64, u64) {
    (bound_of(bucket), bound_of(bucket.saturating_add(1)))
}

/// The shortest duration in a bucket, in nanoseconds; [`MAX_NANOS`] for buckets beyond it.
pub(crate) fn bound_of(bucket: u64) -> u64 {
    let shift = (bucket / (EXACT / 2)).saturating_sub(1);
    let mantissa = bucket - shift * (EXACT / 2);
    // An hour is less than 2^42.
    if shift < 42 {
        (mantissa << shift).min(MAX_NANOS)
    } else {
        MAX_NANOS
    }
}

impl DistributionRecord {
    /// The non-empty buckets in ascending order: index and count. [`bucket_bounds`] gives the durations of an
    /// index.
    pub fn bucket_counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut next = 0_u64;
        self.buckets.iter().filter_map(move |&entry| {
            let bucket = next;
            let count = u64::try_from(entry).ok();
            next = next.saturating_add(count.map_or(entry.unsigned_abs(), |_| 1));
            count
                .filter(|count| *count > 0)
                .map(|count| (bucket, count))
        })
    }
}

impl From<&Distribution> for DistributionRecord {
    fn from(d: &Distribution) -> Self {
        if d.is_empty() {
            return Self::default();
        }
        let mut buckets = Vec::new();
        let mut next = 0;
        for found in d.histogram.iter_recorded() {
            let bucket = bucket_of(found.value_iterated_to());
            if bucket > next {
                buckets.push(-i64::try_from(bucket - next).unwrap_or(i64::MAX));
            }
            buckets.push(i64::from(found.count_at_value()));
            next = bucket + 1;
        }
        Self {
            count: d.count(),
            sum_ms: d.sum_nanos as f64 / 1e6,
            min_ms: d.min_nanos as f64 / 1e6,
            max_ms: d.max_nanos as f64 / 1e6,
            buckets,
        }
    }
}

impl Distribution {
    /// Adds all durations of a record. It equals a merge with the record's distribution, in a fraction of
    /// the time.
    pub fn merge_record(&mut self, record: &DistributionRecord) {
        let before = self.count();
        for (bucket, count) in record.bucket_counts() {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let _ = self.histogram.record_n(bound_of(bucket).max(1), count);
        }
        if self.count() > before {
            self.sum_nanos = self.sum_nanos.saturating_add(nanos_from_ms(record.sum_ms));
            // In a damaged record, the minimum may be above the maximum.
            for nanos in [record.min_ms, record.max_ms].map(nanos_from_ms) {
                self.min_nanos = self.min_nanos.min(nanos);
                self.max_nanos = self.max_nanos.max(nanos);
            }
        }
    }
}

impl From<&DistributionRecord> for Distribution {
    fn from(record: &DistributionRecord) -> Self {
        let mut d = Self::default();
        d.merge_record(record);
        d
    }
}

/// Converts milliseconds of a record to nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a damaged record may hold any number"
)]
pub(super) fn nanos_from_ms(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let mut d = Distribution::default();
        for &v in values {
            d.record(v);
        }
        d
    }

    #[test]
    fn mean_is_exact_and_percentiles_are_within_one_percent() {
        let d = of(&(1..=1000).map(|i| i * 1_000_003).collect::<Vec<_>>());

        assert!((d.mean_ms().unwrap() - 500.501_501_5).abs() < 1e-6);
        assert!((d.quantile_ms(0.95).unwrap() / 950.002_85 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_damaged_record_with_a_minimum_above_its_maximum_has_quantiles() {
        let mut record = DistributionRecord::from(&of(&[1_000_000, 2_000_000]));
        (record.min_ms, record.max_ms) = (f64::INFINITY, 1.0);

        let d = Distribution::from(&record);

        assert!(d.quantile_ms(0.5).unwrap() >= 1.0);
        assert_eq!(d.thinned(1).count(), 1);
    }

    #[test]
    fn the_share_of_longer_durations_is_exact() {
        let d = of(&[1_000_000, 2_000_000, 3_000_000, 40_000_000]);

        assert_eq!(d.share_above_ms(3.1), Some(0.25));
        assert_eq!(d.share_above_ms(f64::INFINITY), Some(0.0));
    }

    #[test]
    fn empty_distribution_has_no_mean_rather_than_zero() {
        assert_eq!(Distribution::default().share_above_ms(1.0), None);
        assert_eq!(Distribution::default().mean_ms(), None);
        assert_eq!(Distribution::default().quantile_ms(0.5), None);
    }

    #[test]
    fn durations_beyond_an_hour_keep_their_exact_sum() {
        let d = of(&[MAX_NANOS * 3]);

        assert_eq!(d.sum_nanos(), MAX_NANOS * 3);
        assert_eq!(d.count(), 1);
    }

    #[test]
    fn buckets_are_written_as_their_documentation_says() {
        let record =
            DistributionRecord::from(&of(&[44 << 1, (128 + 44) << 3, ((128 + 45) << 3) + 7]));

        // 88 ns lies in bucket 88. 172 × 2³ ns lies in bucket 3 × 128 + 172, and 173 × 2³ + 7 in
        // the next.
        assert_eq!(record.buckets, [-88, 1, -467, 1, 1]);
    }

    #[test]
    fn damaged_buckets_still_give_a_distribution() {
        let buckets = vec![i64::MAX, i64::MIN, i64::MIN, 7, i64::MIN, i64::MAX, 0, -1];
        let record = DistributionRecord {
            buckets,
            sum_ms: -1.0,
            ..DistributionRecord::default()
        };

        assert!(Distribution::from(&record).count() > 0);
    }

    proptest! {
        #[test]
        fn the_formula_for_buckets_is_that_of_the_histogram(nanos in 1..MAX_NANOS / 2) {
            let histogram = Distribution::default().histogram;
            let bucket = bucket_of(nanos);

            prop_assert_eq!(bound_of(bucket), histogram.lowest_equivalent(nanos));
            prop_assert_eq!(bound_of(bucket + 1), histogram.next_non_equivalent(nanos));
        }

        #[test]
        fn merging_is_the_same_as_recording_everything_in_one(
            a in prop::collection::vec(1u64..10_000_000_000, 0..200),
            b in prop::collection::vec(1u64..10_000_000_000, 0..200),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));

            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(&merged, &of(&all));

            let mut of_record = of(&a);
            of_record.merge_record(&(&of(&b)).into());
            prop_assert_eq!(of_record, merged);
        }

        #[test]
        fn a_distribution_survives_its_record(
            values in prop::collection::vec(1u64..10_000_000_000, 0..200),
        ) {
            let d = of(&values);
            prop_assert_eq!(Distribution::from(&DistributionRecord::from(&d)), d);
        }
    }
}
