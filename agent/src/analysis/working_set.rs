//! Predicts which part of a data set comes from storage in each epoch, if the page cache cannot hold all of it.
//!
//! The page cache is modelled as a cache that evicts the least recently used file (LRU) and holds the share *f* of the data.
//! An epoch reads each file once. Two orders are compared:
//!
//! - **The same order in each epoch.** Between two reads of a file, all others are read. So with *f* < 1, each file is evicted
//!   before it is read again: all reads come from storage.
//! - **A new random order in each epoch.** Let a file be at the place *x* of one epoch and *y* of the next (both as shares, uniform
//!   and independent). Between its two reads, the share 1 − *x* of the files is read in the first epoch, and *y* in the next; of
//!   these, (1 − *x*)·*y* are the same files. So 1 − *x*·(1 − *y*) of the files are read in between, and the file is still there if
//!   *x*·(1 − *y*) ≥ 1 − *f*. For two uniform shares, this has the probability *f* + (1 − *f*)·ln(1 − *f*): the hit share.
//!
//! No policy can have a larger hit share in a random order than *f*. Linux is between both, near LRU: it protects a part of what
//! is read twice. docs/storage.md compares predictions with measurements.

use serde::Serialize;

/// A data set, and the memory that can hold it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkingSet {
    /// Bytes of the data set. An epoch reads each of them once.
    pub bytes: f64,
    /// Bytes of memory that can hold its pages.
    pub memory_bytes: f64,
    /// Bytes per second of one reader from storage, if measured.
    pub cold_bytes_per_s: Option<f64>,
    /// The same from the page cache.
    pub warm_bytes_per_s: Option<f64>,
}

/// What happens from the second epoch on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LaterEpochs {
    /// Whether the memory can hold the whole data set.
    pub fits: bool,
    /// Share of the bytes that come from storage if each epoch has a new random order.
    pub random_storage_share: f64,
    /// The least possible share, with any policy of eviction.
    pub least_storage_share: f64,
    /// Share of the bytes that come from storage if each epoch has the same order.
    pub same_order_storage_share: f64,
    /// Time in which one reader reads a whole epoch in random order, in seconds. Null if a rate is unknown.
    pub random_read_s: Option<f64>,
    /// The same if all data were in memory.
    pub warm_read_s: Option<f64>,
}

impl WorkingSet {
    /// Predicts the later epochs.
    pub fn later_epochs(&self) -> LaterEpochs {
        let held = (self.memory_bytes / self.bytes.max(1.0)).clamp(0.0, 1.0);
        let missing = 1.0 - held;
        let random = 1.0 - random_hit_share(held);
        let cold_s = (self.cold_bytes_per_s).map(|rate| random * self.bytes / rate);
        let warm_s = |share: f64| Some(share * self.bytes / self.warm_bytes_per_s?);
        let random_read_s = match (cold_s, warm_s(1.0 - random)) {
            (Some(cold), Some(warm)) => Some(cold + warm),
            // All comes from the memory, or nothing worth mentioning.
            (None, warm) if missing <= 0.0 => warm,
            _ => None,
        };
        LaterEpochs {
            fits: missing <= 0.0,
            random_storage_share: random,
            least_storage_share: missing,
            same_order_storage_share: if missing > 0.0 { 1.0 } else { 0.0 },
            random_read_s,
            warm_read_s: warm_s(1.0),
        }
    }
}

/// Share of the reads that find their file in a cache of this share of the data.
fn random_hit_share(held: f64) -> f64 {
    let missing = 1.0 - held;
    if missing <= 0.0 {
        return 1.0;
    }
    (held + missing * missing.ln()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(bytes: f64, memory_bytes: f64) -> LaterEpochs {
        let set = WorkingSet {
            bytes,
            memory_bytes,
            cold_bytes_per_s: Some(1e8),
            warm_bytes_per_s: Some(1e9),
        };
        set.later_epochs()
    }

    /// The share of reads that a simulated LRU cache of `held` of `files` does not hold, in random orders.
    fn simulated_storage_share(files: usize, held: usize) -> f64 {
        let mut state = 88_172_645_463_325_252_u64;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % end as u64).unwrap()
        };
        let mut order: Vec<usize> = (0..files).collect();
        let mut last_read: Vec<Option<usize>> = vec![None; files];
        let (mut now, mut missed, mut counted) = (0_usize, 0, 0);
        for epoch in 0..12 {
            for at in (1..files).rev() {
                order.swap(at, below(at + 1));
            }
            for file in &order {
                let newer = |before: usize| {
                    let later = last_read.iter().flatten().filter(|at| **at > before);
                    later.count()
                };
                let hit = last_read[*file].is_some_and(|before| newer(before) < held);
                if epoch > 0 {
                    counted += 1;
                    missed += i32::from(!hit);
                }
                last_read[*file] = Some(now);
                now += 1;
            }
        }
        f64::from(missed) / f64::from(counted)
    }

    #[test]
    fn the_share_from_storage_equals_that_of_a_simulated_cache() {
        for held in [90_u16, 165, 250, 285] {
            let simulated = simulated_storage_share(300, held.into());
            let predicted = later(300.0, held.into()).random_storage_share;
            let error = (predicted - simulated).abs();
            assert!(error < 0.02, "{held}: {predicted} and {simulated}");
        }
    }

    #[test]
    fn a_data_set_that_fits_is_read_from_memory_only() {
        let found = later(1e9, 2e9);

        assert!(found.fits);
        assert!(found.random_storage_share.abs() < 1e-9 && found.least_storage_share.abs() < 1e-9);
        assert!((found.random_read_s.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_time_of_an_epoch_is_that_of_its_cold_and_its_warm_bytes() {
        let found = later(2e9, 1e9);

        // 1/2 + 1/2 ln 1/2 = 0.153 of the bytes are found in memory.
        assert!((found.random_storage_share - 0.847).abs() < 1e-3);
        assert!((found.same_order_storage_share - 1.0).abs() < 1e-9);
        assert!((found.random_read_s.unwrap() - (16.93 + 0.307)).abs() < 0.01);
        assert!((found.warm_read_s.unwrap() - 2.0).abs() < 1e-9);
    }
}
