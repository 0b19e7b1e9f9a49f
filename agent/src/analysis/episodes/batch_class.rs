//! Finds out whether the batches of stalls differ from others by their size.
//!
//! Only the batches of long waits, and those that follow them, have a known size.

use crate::model::SizedBatch;

/// Minimum number of batches of known size in stalls, and of others.
const MIN_BATCHES: usize = 4;

/// Minimum ratio of the median sizes. Less may be chance, as for texts of different lengths.
const MIN_RATIO: f64 = 1.25;

/// Minimum share of the batches in stalls, and of the others, on their own side of the geometric mean of both medians.
const MIN_SHARE: f64 = 0.8;

/// The class of the batches in stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchClass {
    /// Median of their bytes.
    pub bytes: u64,
    /// Median of the bytes of other batches.
    pub usual_bytes: u64,
}

impl BatchClass {
    /// The class of the batches that were received in stalls. `None` if they do not differ from others.
    pub(super) fn find(batches: &[SizedBatch], is_inside: impl Fn(u64) -> bool) -> Option<Self> {
        let sizes = |inside: bool| {
            let those = batches
                .iter()
                .filter(|batch| is_inside(batch.received_ns) == inside);
            let mut sizes: Vec<u64> = those.map(|batch| batch.bytes).collect();
            sizes.sort_unstable();
            sizes
        };
        let (inside, outside) = (sizes(true), sizes(false));
        if inside.len().min(outside.len()) < MIN_BATCHES {
            return None;
        }
        let median = |sizes: &[u64]| sizes[sizes.len() / 2];
        let (bytes, usual_bytes) = (median(&inside), median(&outside));
        let (smaller, larger) = (bytes.min(usual_bytes) as f64, bytes.max(usual_bytes) as f64);
        let is_larger = |size: &u64| (*size as f64) > (smaller * larger).sqrt();
        let share = |sizes: &[u64], large: bool| {
            let those = sizes.iter().filter(|size| is_larger(size) == large);
            those.count() as f64 / sizes.len() as f64
        };
        let are_large = bytes > usual_bytes;
        let differ = larger >= MIN_RATIO * smaller
            && share(&inside, are_large) >= MIN_SHARE
            && share(&outside, !are_large) >= MIN_SHARE;
        differ.then_some(Self { bytes, usual_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches with these sizes in stalls, and with these between stalls.
    fn find(inside: &[u64], outside: &[u64]) -> Option<BatchClass> {
        let batch = |received_ns, bytes: &u64| SizedBatch {
            received_ns,
            bytes: *bytes,
        };
        let batches: Vec<SizedBatch> = (inside.iter().map(|bytes| batch(1, bytes)))
            .chain(outside.iter().map(|bytes| batch(0, bytes)))
            .collect();
        BatchClass::find(&batches, |at_ns| at_ns == 1)
    }

    #[test]
    fn batches_of_stalls_that_are_larger_are_a_class() {
        let class = find(&[400, 410, 390, 400, 400], &[100, 101, 99, 100, 100, 400]);
        let expected = BatchClass {
            bytes: 400,
            usual_bytes: 100,
        };
        assert_eq!(class, Some(expected));
    }

    #[test]
    fn batches_of_the_same_sizes_are_none() {
        assert_eq!(find(&[100; 5], &[100; 5]), None);
        assert_eq!(find(&[100, 200, 300, 150], &[120, 210, 280, 140]), None);
        assert_eq!(find(&[400; 3], &[100; 5]), None, "too few");
    }
}
