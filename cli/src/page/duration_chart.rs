//! Stores the durations of one point: their exact sum, and the non-empty buckets.

use std::collections::BTreeMap;

use headspace_agent::model::distribution::{DistributionRecord, bucket_bounds};

/// A set of durations. An empty set uses no heap memory, and two sets merge without loss.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spread {
    count: u64,
    sum_ms: f64,
    min_ms: f64,
    max_ms: f64,
    /// Counts by bucket index of the records' histograms.
    buckets: BTreeMap<u64, u64>,
}

impl Spread {
    /// Adds the durations of a record.
    pub(crate) fn add_record(&mut self, record: &DistributionRecord) {
        let buckets: BTreeMap<u64, u64> = record.bucket_counts().collect();
        self.add(&Self {
            count: buckets.values().sum(),
            sum_ms: record.sum_ms,
            min_ms: record.min_ms,
            max_ms: record.max_ms,
            buckets,
        });
    }

    /// Adds the durations of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        self.count += other.count;
        self.sum_ms += other.sum_ms;
        self.min_ms = self.min_ms.min(other.min_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }

    /// Number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Exact mean in milliseconds.
    pub(crate) fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ms / self.count as f64)
    }

    /// The quantile `q` of the durations in milliseconds, accurate within 1 %.
    pub(crate) fn quantile_ms(&self, q: f64) -> Option<f64> {
        let mut below = 0;
        let rank = q * self.count as f64;
        for (&bucket, count) in &self.buckets {
            below += count;
            if below as f64 >= rank {
                let (from, to) = bucket_bounds(bucket);
                let middle = (from as f64 + to as f64) / 2e6;
                return Some(middle.clamp(self.min_ms, self.max_ms.max(self.min_ms)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::Distribution;

    use super::*;

    fn of(millis: &[u64]) -> Spread {
        let mut d = Distribution::default();
        for ms in millis {
            d.record(ms * 1_000_000);
        }
        let mut spread = Spread::default();
        spread.add_record(&DistributionRecord::from(&d));
        spread
    }

    #[test]
    fn merging_parts_gives_the_same_result_as_adding_all_durations() {
        let mut parts = of(&[10, 30, 30]);
        parts.add(&of(&[]));
        parts.add(&of(&[20, 30, 400]));
        assert_eq!(parts, of(&[10, 20, 30, 30, 30, 400]));
    }

    #[test]
    fn the_mean_is_exact_and_percentiles_are_within_one_percent() {
        let all = of(&(1..=100).collect::<Vec<_>>());
        assert_eq!(all.mean_ms(), Some(50.5));
        let p95 = all.quantile_ms(0.95).unwrap();
        assert!((p95 / 95.0 - 1.0).abs() < 0.01, "{p95}");
        assert_eq!(of(&[]).quantile_ms(0.5), None);
    }
}
