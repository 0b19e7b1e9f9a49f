//! Finds ranks that read the same data files in the same order: they do the same work several times.
//!
//! The files alone do not show it. Ranks that draw their files at random, or that read single samples from all files,
//! also open the same files in the long run, but not in the same order. The order of two ranks is compared by pairs of
//! files: a pair is discordant if the ranks opened its files in different orders (Kendall, *Rank Correlation Methods*).
//! Files that were opened almost together have no order.
//!
//! Ranks may read different parts of the same files in the same order, for example row groups. Then the work is not
//! the same. Files that are open do not show that.

use std::collections::HashMap;

use crate::model::record::DataFileRecord;

/// Minimum number of files of a rank. Two random orders of 6 files agree in 1 of 720 cases, of 5 files in 1 of 120.
const MIN_FILES: usize = 6;

/// Minimum share of the files of each of two ranks that both have.
const MIN_SHARED: f64 = 0.8;

/// Files of a rank whose first samples are closer have no order, in seconds. The files of a process are read at most so
/// often, so the order of files that several workers open together is a matter of chance.
const MIN_GAP_S: f64 = 0.3;

/// Minimum number of pairs of files that have an order in both ranks: as many as 6 files have.
const MIN_PAIRS: usize = MIN_FILES * (MIN_FILES - 1) / 2;

/// Maximum share of discordant pairs among the pairs above [`MIN_PAIRS`]. So Kendall's tau is at least 0.8. Without
/// ties, at most 1 of 720 pairs of random orders pass, whatever the number of files.
const MAX_DISCORDANT: f64 = 0.1;

/// Counts the ranks that read the same files as the first rank with enough files.
#[derive(Debug, Clone, Default)]
pub(super) struct SameFiles {
    first: Option<Vec<DataFileRecord>>,
    /// Number of ranks that read the files of `first`, without the first.
    others: u32,
}

impl SameFiles {
    /// Adds the data files of a rank, in the order in which they were first open.
    pub(super) fn add_rank(&mut self, files: &[DataFileRecord]) {
        if files.len() < MIN_FILES {
            return;
        }
        match &self.first {
            None => self.first = Some(files.to_vec()),
            Some(first) => self.others += u32::from(are_read_alike(first, files)),
        }
    }

    /// Number of ranks that read the same files in the same order. `None` if no two ranks do.
    pub(super) fn ranks(&self) -> Option<u32> {
        (self.others > 0).then(|| self.others + 1)
    }
}

/// Whether two ranks read the same files in the same order.
fn are_read_alike(first: &[DataFileRecord], second: &[DataFileRecord]) -> bool {
    let times: HashMap<&str, f64> = second
        .iter()
        .map(|file| (&*file.path, file.first_s))
        .collect();
    let shared: Vec<(f64, f64)> = first
        .iter()
        .filter_map(|file| Some((file.first_s, *times.get(&*file.path)?)))
        .collect();
    let most = first.len().max(second.len());
    if (shared.len() as f64) < MIN_SHARED * most as f64 {
        return false;
    }
    let (mut pairs, mut discordant) = (0, 0);
    for (index, a) in shared.iter().enumerate() {
        for b in &shared[index + 1..] {
            let (in_first, in_second) = (b.0 - a.0, b.1 - a.1);
            if in_first.abs() >= MIN_GAP_S && in_second.abs() >= MIN_GAP_S {
                pairs += 1;
                discordant += usize::from((in_first > 0.0) != (in_second > 0.0));
            }
        }
    }
    pairs >= MIN_PAIRS && discordant as f64 <= MAX_DISCORDANT * (pairs - MIN_PAIRS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::Rng;

    /// These shards, opened one after the other every `every_s` seconds.
    fn files(shards: &[usize], every_s: f64) -> Vec<DataFileRecord> {
        (shards.iter().enumerate())
            .map(|(number, shard)| DataFileRecord {
                path: format!("/data/shard-{shard}.tar"),
                first_s: 3.0 + every_s * number as f64,
            })
            .collect()
    }

    fn count(ranks: &[Vec<DataFileRecord>]) -> Option<u32> {
        let mut same = SameFiles::default();
        for rank in ranks {
            same.add_rank(rank);
        }
        same.ranks()
    }

    #[test]
    fn ranks_that_open_the_same_files_in_the_same_order_are_counted() {
        let all: Vec<usize> = (0..10).collect();
        // The second is slower and ends earlier; a sample of it was late.
        let mut second = files(&all[..9], 2.0);
        (second[3].first_s, second[4].first_s) = (second[4].first_s, second[3].first_s);
        let disjoint = files(&[20, 21, 22, 23, 24, 25, 26, 27, 28, 29], 1.0);
        let without = Vec::new();

        let ranks = [
            without,
            files(&all, 1.0),
            second,
            disjoint.clone(),
            files(&all, 1.1),
        ];
        assert_eq!(count(&ranks), Some(3));
        assert_eq!(count(&[files(&all, 1.0), disjoint]), None);
        assert_eq!(count(&[files(&all, 1.0)]), None);
    }

    #[test]
    fn the_same_files_in_another_order_or_all_at_once_are_no_sign() {
        let (order, other) = ([0, 1, 2, 3, 4, 5, 6, 7], [5, 0, 7, 2, 6, 1, 4, 3]);

        assert_eq!(count(&[files(&order, 1.0), files(&other, 1.0)]), None);
        assert_eq!(count(&[files(&order, 0.01), files(&order, 0.01)]), None);
        assert_eq!(
            count(&[files(&order[..5], 1.0), files(&order[..5], 1.0)]),
            None
        );
        let half = [0, 1, 2, 3, 14, 15, 16, 17];
        assert_eq!(count(&[files(&order, 1.0), files(&half, 1.0)]), None);
    }

    #[test]
    fn random_orders_rarely_agree() {
        let mut rng = Rng::new(7);
        for size in [6, 7, 8, 12] {
            let order: Vec<usize> = (0..size).collect();
            let first = files(&order, 1.0);
            let found = (0..10_000)
                .filter(|_| {
                    let mut drawn: Vec<(f64, usize)> =
                        order.iter().map(|shard| (rng.unit(), *shard)).collect();
                    drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
                    let drawn: Vec<usize> = drawn.into_iter().map(|(_, shard)| shard).collect();
                    are_read_alike(&first, &files(&drawn, 1.0))
                })
                .count();
            // Expected for 6: 14 of 10,000.
            assert!(found <= 28, "{found} of 10,000 with {size} files");
        }
    }
}
