//! Predicts which part of a data set comes from storage in each epoch, if the page cache cannot hold all of it.
//!
//! The page cache is modelled as a cache that evicts the least recently used file (LRU) and holds the share *f* of the data.
//! An epoch reads each file once, and whole. Two orders are compared:
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
//!
//! The kernel evicts pages, not files. If only a few files fit into the memory at once, they contain many samples each, and
//! samples are read from parts of them. Reading them from the start to the end is the same order for pages too. Of reads at
//! random places, only the least share is known: it depends on their size, on repetitions, and on how much the kernel reads ahead.

use serde::Serialize;

/// Fewest files that must fit into the memory at once for the prediction of a random order by files.
///
/// With 16 files, the formula differs from a simulated cache by at most 0.03, with 8 by 0.04, and with 2 by 0.1. Each of 16
/// files takes a sixteenth of the memory, which is more than one sample, also on a small machine.
const MIN_FILES_HELD: f64 = 16.0;

/// A data set, and the memory that can hold it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkingSet {
    /// Number of files.
    pub files: u64,
    /// Bytes of the data set. An epoch reads each of them once.
    pub bytes: f64,
    /// Share of the bytes that is stored: all but the holes of sparse files. Holes need memory when they are read, but no storage.
    pub stored_share: f64,
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
    /// Whether only a few of its files would fit into the memory at once, so that parts of files are evicted.
    pub files_are_large: bool,
    /// Share of the bytes that come from storage if each epoch reads whole files in a new random order. Null if files are
    /// large.
    pub random_storage_share: Option<f64>,
    /// The least possible share, with any policy of eviction. If files are large, of the reads at random places.
    pub least_storage_share: f64,
    /// Share of the bytes that come from storage if each epoch has the same order.
    pub same_order_storage_share: f64,
    /// Time in which one reader reads a whole epoch in random order, in seconds. Null if a rate or the share is unknown.
    pub random_read_s: Option<f64>,
    /// The same if each epoch has the same order.
    pub same_order_read_s: Option<f64>,
    /// The same if all data were in memory.
    pub warm_read_s: Option<f64>,
}

impl WorkingSet {
    /// Predicts the later epochs.
    pub fn later_epochs(&self) -> LaterEpochs {
        let held = (self.memory_bytes / self.bytes.max(1.0)).clamp(0.0, 1.0);
        let missing = 1.0 - held;
        let fits = missing <= 0.0;
        let files_are_large = !fits && held * (self.files as f64) < MIN_FILES_HELD;
        let random = (!files_are_large).then(|| self.stored_share * (1.0 - random_hit_share(held)));
        let same_order = if fits { 0.0 } else { self.stored_share };
        LaterEpochs {
            fits,
            files_are_large,
            random_storage_share: random,
            least_storage_share: self.stored_share * missing,
            same_order_storage_share: same_order,
            random_read_s: random.and_then(|share| self.read_s(share)),
            same_order_read_s: self.read_s(same_order),
            warm_read_s: self.read_s(0.0),
        }
    }

    /// Time of a reader of all bytes, if this share comes from storage. `None` if a rate that matters is unknown.
    fn read_s(&self, storage_share: f64) -> Option<f64> {
        let time = |share: f64, rate: Option<f64>| {
            if share > 0.0 {
                Some(share * self.bytes / rate?)
            } else {
                Some(0.0)
            }
        };
        let cold = time(storage_share, self.cold_bytes_per_s)?;
        Some(cold + time(1.0 - storage_share, self.warm_bytes_per_s)?)
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

    fn set(files: u64, bytes: f64, memory_bytes: f64) -> WorkingSet {
        WorkingSet {
            files,
            bytes,
            stored_share: 1.0,
            memory_bytes,
            cold_bytes_per_s: Some(1e8),
            warm_bytes_per_s: Some(1e9),
        }
    }

    fn later(bytes: f64, memory_bytes: f64) -> LaterEpochs {
        set(300, bytes, memory_bytes).later_epochs()
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
        for (files, held, tolerance) in [
            (300_u16, 90_u16, 0.02),
            (300, 165, 0.02),
            (300, 250, 0.02),
            (300, 285, 0.02),
            // The fewest files to which it is applied. There are few reads, so the simulation has noise too.
            (32, 16, 0.05),
        ] {
            let simulated = simulated_storage_share(files.into(), held.into());
            let later = set(files.into(), files.into(), held.into()).later_epochs();
            let predicted = later.random_storage_share.unwrap();
            let error = (predicted - simulated).abs();
            assert!(error < tolerance, "{held}: {predicted} and {simulated}");
        }
    }

    #[test]
    fn a_data_set_that_fits_is_read_from_memory_only() {
        let found = later(1e9, 2e9);

        assert!(found.fits);
        assert!(found.random_storage_share.unwrap().abs() < 1e-9);
        assert!(found.least_storage_share.abs() < 1e-9);
        assert!((found.random_read_s.unwrap() - 1.0).abs() < 1e-9);
        assert!((found.same_order_read_s.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn of_one_file_that_does_not_fit_only_the_same_order_and_the_least_share_are_known() {
        let found = set(1, 4e9, 2e9).later_epochs();

        assert!(found.files_are_large && !found.fits);
        assert_eq!(
            (found.random_storage_share, found.random_read_s),
            (None, None)
        );
        assert!((found.least_storage_share - 0.5).abs() < 1e-9);
        assert!((found.same_order_read_s.unwrap() - 40.0).abs() < 1e-9);

        let fits = set(1, 1e9, 2e9).later_epochs();
        assert!(fits.fits && !fits.files_are_large);
    }

    #[test]
    fn holes_need_memory_but_no_storage() {
        let sparse = WorkingSet {
            stored_share: 0.25,
            ..set(1, 4e9, 2e9)
        };
        let found = sparse.later_epochs();

        assert!(!found.fits);
        assert!((found.least_storage_share - 0.125).abs() < 1e-9);
        assert!((found.same_order_storage_share - 0.25).abs() < 1e-9);
        assert!((found.same_order_read_s.unwrap() - (10.0 + 3.0)).abs() < 1e-9);
    }

    #[test]
    fn the_time_of_the_same_order_needs_no_rate_of_the_page_cache() {
        let unknown_warm = WorkingSet {
            warm_bytes_per_s: None,
            ..set(300, 2e9, 1e9)
        };
        let found = unknown_warm.later_epochs();

        assert!((found.same_order_read_s.unwrap() - 20.0).abs() < 1e-9);
        assert_eq!((found.random_read_s, found.warm_read_s), (None, None));
    }

    #[test]
    fn the_time_of_an_epoch_is_that_of_its_cold_and_its_warm_bytes() {
        let found = later(2e9, 1e9);

        // 1/2 + 1/2 ln 1/2 = 0.153 of the bytes are found in memory.
        assert!((found.random_storage_share.unwrap() - 0.847).abs() < 1e-3);
        assert!((found.same_order_storage_share - 1.0).abs() < 1e-9);
        assert!((found.random_read_s.unwrap() - (16.93 + 0.307)).abs() < 0.01);
        assert!((found.warm_read_s.unwrap() - 2.0).abs() < 1e-9);
    }
}
