//! A set of durations, stored as the non-empty buckets of the records' histograms. Exporters convert it to
//! exponential buckets (OpenTelemetry) or to fixed boundaries (Prometheus).
//!
//! The records' buckets are at most 0.8 % wide. Empty buckets use no memory.

use std::collections::BTreeMap;

use headspace_agent::model::distribution::{DistributionRecord, bucket_bounds};

/// A set of durations: its non-empty buckets, and the exact sum. An empty set uses no heap memory, and two
/// sets merge without loss.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseDistribution {
    /// Counts by bucket index of the records' histograms.
    counts: BTreeMap<u64, u64>,
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations, in seconds.
    pub(super) sum_s: f64,
    /// The shortest duration in seconds; 0 if there is none.
    pub(super) min_s: f64,
    /// The longest duration in seconds.
    pub(super) max_s: f64,
}

/// Counts of adjacent exponential buckets. Bucket `i` contains durations in seconds greater than
/// `base^(offset + i)` and up to `base^(offset + i + 1)`, where `base = 2^(2^-scale)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exponential {
    /// OpenTelemetry's scale.
    pub scale: i32,
    /// Index of the first bucket.
    pub offset: i32,
    /// Number of durations in each bucket.
    pub counts: Vec<u64>,
}

impl SparseDistribution {
    /// Adds the durations of a record.
    pub fn merge_record(&mut self, record: &DistributionRecord) {
        let seconds = [record.sum_ms, record.min_ms, record.max_ms].map(|ms| ms / 1e3);
        self.add(record.bucket_counts(), seconds);
    }

    /// Adds the durations of another set.
    pub fn merge(&mut self, other: &Self) {
        let counts = other.counts.iter().map(|(bucket, count)| (*bucket, *count));
        self.add(counts, [other.sum_s, other.min_s, other.max_s]);
    }

    fn add(&mut self, counts: impl Iterator<Item = (u64, u64)>, [sum_s, min_s, max_s]: [f64; 3]) {
        let mut added = 0;
        for (bucket, count) in counts {
            *self.counts.entry(bucket).or_default() += count;
            added += count;
        }
        if added == 0 {
            return;
        }
        let first = self.count == 0;
        self.min_s = if first { min_s } else { self.min_s.min(min_s) };
        self.max_s = self.max_s.max(max_s);
        self.count += added;
        self.sum_s += sum_s;
    }

    /// Exact mean in milliseconds; `None` when empty.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| 1e3 * self.sum_s / self.count as f64)
    }

    /// Quantile `q` in `[0, 1]`, in milliseconds, accurate to 1 %; `None` when empty.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = q * self.count as f64;
        let mut below: u64 = 0;
        let (bucket, _) = self.counts.iter().find(|(_, count)| {
            below += **count;
            below as f64 >= rank
        })?;
        let (from, to) = bucket_bounds(*bucket);
        let middle_ms = (from as f64 + to as f64) / 2e6;
        let (min_ms, max_ms) = (1e3 * self.min_s, 1e3 * self.max_s);
        Some(middle_ms.clamp(min_ms, max_ms.max(min_ms)))
    }

    /// For each boundary, the number of durations that do not exceed it. Boundaries are in seconds and
    /// ascending. A bucket is assigned by its midpoint.
    pub fn up_to(&self, bounds_s: &[f64]) -> Vec<u64> {
        let mut counts = vec![0; bounds_s.len()];
        for (&bucket, count) in &self.counts {
            let place = bounds_s.partition_point(|bound| *bound < middle_s(bucket));
            if let Some(at) = counts.get_mut(place) {
                *at += count;
            }
        }
        let mut below = 0;
        for count in &mut counts {
            below += *count;
            *count = below;
        }
        counts
    }

    /// The durations in exponential buckets, at the finest scale up to `finest` that needs at most
    /// `most` buckets.
    pub fn exponential(&self, finest: i32, most: usize) -> Exponential {
        let (Some((&first, _)), Some((&last, _))) =
            (self.counts.first_key_value(), self.counts.last_key_value())
        else {
            return Exponential {
                scale: finest,
                ..Exponential::default()
            };
        };
        let mut scale = finest;
        let room = i64::try_from(most.max(1)).unwrap_or(i64::MAX);
        while i64::from(index(middle_s(last), scale)) - i64::from(index(middle_s(first), scale))
            >= room
        {
            scale -= 1;
        }
        let offset = index(middle_s(first), scale);
        let mut counts = Vec::new();
        for (&bucket, count) in &self.counts {
            let place = usize::try_from(index(middle_s(bucket), scale) - offset).unwrap_or(0);
            if counts.len() <= place {
                counts.resize(place + 1, 0);
            }
            counts[place] += count;
        }
        Exponential {
            scale,
            offset,
            counts,
        }
    }
}

/// The midpoint of a bucket of the records' histograms, in seconds; greater than zero.
fn middle_s(bucket: u64) -> f64 {
    let (from, to) = bucket_bounds(bucket);
    (from as f64 + to.max(from + 1) as f64 - 1.0).max(1.0) / 2e9
}

/// The index of a duration's exponential bucket: the greatest `i` with `base^i` less than the duration
/// (OpenTelemetry's data model, "Exponential Histogram", mapping by logarithm).
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and the logarithm is small"
)]
fn index(seconds: f64, scale: i32) -> i32 {
    let scaled = seconds.log2() * 2_f64.powi(scale);
    (scaled.ceil() - 1.0) as i32
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::Distribution;

    use super::*;

    fn of(millis: &[u64]) -> SparseDistribution {
        let mut d = Distribution::default();
        for ms in millis {
            d.record(ms * 1_000_000);
        }
        let mut times = SparseDistribution::default();
        times.merge_record(&DistributionRecord::from(&d));
        times
    }

    #[test]
    fn counts_sums_and_extremes_add_up_over_records() {
        let mut times = of(&[10, 20]);
        let mut d = Distribution::default();
        d.record(1_000_000);
        times.merge_record(&DistributionRecord::from(&d));
        times.merge_record(&DistributionRecord::default());

        assert_eq!(times.count, 3);
        assert!((times.sum_s - 0.031).abs() < 1e-12);
        assert!((times.min_s - 0.001).abs() < 1e-12 && (times.max_s - 0.02).abs() < 1e-12);
    }

    #[test]
    fn merging_parts_gives_the_same_result_as_adding_all_durations() {
        let mut parts = of(&[10, 30, 30]);
        parts.merge(&of(&[]));
        parts.merge(&of(&[20, 30, 400]));

        let all = of(&[10, 20, 30, 30, 30, 400]);
        assert_eq!((&parts.counts, parts.count), (&all.counts, all.count));
        assert!((parts.sum_s - all.sum_s).abs() < 1e-12);
        assert_eq!((parts.min_s, parts.max_s), (all.min_s, all.max_s));
    }

    #[test]
    fn the_mean_is_exact_and_percentiles_are_within_one_percent() {
        let all = of(&(1..=100).collect::<Vec<_>>());
        assert!((all.mean_ms().unwrap() - 50.5).abs() < 1e-9);
        let p95 = all.quantile_ms(0.95).unwrap();
        assert!((p95 / 95.0 - 1.0).abs() < 0.01, "{p95}");
        assert_eq!(of(&[]).quantile_ms(0.5), None);
    }

    #[test]
    fn each_fixed_boundary_counts_the_durations_up_to_it() {
        let times = of(&[1, 4, 9, 400, 20_000]);
        assert_eq!(times.up_to(&[0.005, 0.05, 1.0]), [2, 3, 4]);
    }

    #[test]
    fn every_duration_lies_within_the_bounds_of_its_exponential_bucket() {
        let times = of(&[1, 4, 4, 9, 400]);
        let found = times.exponential(4, 160);
        assert_eq!(found.scale, 4);
        assert_eq!(found.counts.iter().sum::<u64>(), 5);
        // Two durations are 4 ms, in the bucket from base^i to base^(i + 1).
        let base = 2_f64.powf(2_f64.powi(-4));
        let place = found.counts.iter().position(|count| *count == 2).unwrap();
        let low = base.powi(found.offset + i32::try_from(place).unwrap());
        assert!(low < 0.004 * 1.01 && low * base > 0.004 * 0.99, "{low}");
    }

    #[test]
    fn widely_spread_durations_use_a_coarser_scale_instead_of_more_buckets() {
        let found = of(&[1, 3_600_000]).exponential(6, 160);
        assert!(found.counts.len() <= 160 && found.scale < 6, "{found:?}");
        assert_eq!(
            SparseDistribution::default().exponential(6, 160).counts,
            [0_u64; 0]
        );
    }
}
