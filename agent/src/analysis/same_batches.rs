//! Finds ranks, and worker processes, that load the same batches.
//!
//! Without a distributed sampler, and with the same seed, each rank loads and trains on the same samples. The
//! digests of the ranks' first batches are then equal. Ranks with different seeds also load all samples, but in
//! another order: this is not found.
//!
//! torch gives the whole stream to each worker process, and takes a batch from each in turn. If the dataset's code does
//! not split the stream, each batch arrives once from every worker.

use std::collections::{HashMap, HashSet};

/// Number of batches of each rank that are compared.
const COMPARED: usize = 4;

/// Minimum number of different batches among them. Synthetic data may be the same in all batches.
const MIN_DIFFERENT: usize = 3;

/// Minimum number of different batches of each worker. Synthetic data may be the same in all batches.
const MIN_DIFFERENT_OF_WORKER: usize = 2;

/// The number of ranks whose first batches are those of another rank, the largest such group. `None` if all
/// differ, or if there are too few batches.
pub(super) fn ranks_with_same_batches<'a>(
    digests: impl Iterator<Item = &'a [String]>,
) -> Option<u32> {
    let mut groups: HashMap<&[String], u32> = HashMap::new();
    let differs = |first: &&[String]| first.iter().collect::<HashSet<_>>().len() >= MIN_DIFFERENT;
    let once: Vec<Vec<String>> = digests.map(without_repeats).collect();
    let compared = once.iter().filter_map(|digests| digests.get(..COMPARED));
    for first in compared.filter(differs) {
        *groups.entry(first).or_default() += 1;
    }
    groups.into_values().max().filter(|ranks| *ranks > 1)
}

/// The digests without those that are equal to the one before. Worker processes may load the same batches too.
fn without_repeats(digests: &[String]) -> Vec<String> {
    let mut once = digests.to_vec();
    once.dedup();
    once
}

/// Whether the worker processes of a loader all load the same batches, by the digests of a loop's first batches.
pub(super) fn workers_load_same_batches(digests: &[u64], workers: u32) -> bool {
    if workers < 2 {
        return false;
    }
    let rounds: Vec<&[u64]> = digests.chunks_exact(workers as usize).collect();
    let are_equal = |round: &&[u64]| round.iter().all(|digest| *digest == round[0]);
    let distinct: HashSet<u64> = rounds.iter().map(|round| round[0]).collect();
    rounds.iter().all(are_equal) && distinct.len() >= MIN_DIFFERENT_OF_WORKER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn found(ranks: &[Vec<String>]) -> Option<u32> {
        ranks_with_same_batches(ranks.iter().map(Vec::as_slice))
    }

    #[test]
    fn ranks_with_equal_batches_are_counted() {
        let same = digests(&["a", "b", "c", "d"]);
        let other = digests(&["e", "f", "g", "h"]);
        assert_eq!(found(&[same.clone(), other, same]), Some(2));
    }

    #[test]
    fn ranks_with_their_own_batches_are_not() {
        let first = digests(&["a", "b", "c", "d"]);
        assert_eq!(
            found(&[first.clone(), digests(&["d", "e", "f", "g"])]),
            None
        );
        // A rank that was read while it ran may have fewer.
        assert_eq!(found(&[first, digests(&["a", "b", "c"])]), None);
    }

    #[test]
    fn batches_that_are_all_equal_say_nothing() {
        let synthetic = digests(&["a", "a", "a", "a"]);
        assert_eq!(found(&[synthetic.clone(), synthetic]), None);
    }

    #[test]
    fn ranks_whose_workers_also_load_the_same_batches_are_found() {
        let twice = digests(&["a", "a", "b", "b", "c", "c", "d", "d"]);
        assert_eq!(found(&[twice.clone(), twice]), Some(2));
    }

    #[test]
    fn workers_that_each_load_the_whole_stream_are_found() {
        assert!(workers_load_same_batches(&[1, 1, 2, 2, 3, 3], 2));
        // The last round is incomplete.
        assert!(workers_load_same_batches(&[1, 1, 1, 2, 2, 2, 3, 3], 3));
    }

    #[test]
    fn workers_with_their_own_batches_are_not_found() {
        assert!(!workers_load_same_batches(&[1, 2, 3, 4], 2));
        assert!(!workers_load_same_batches(&[1, 1, 2, 3], 2));
        assert!(!workers_load_same_batches(&[1, 1, 2, 2], 1));
        assert!(!workers_load_same_batches(&[1, 1, 2, 2], 0));
    }

    #[test]
    fn equal_batches_of_all_workers_say_nothing_if_each_has_only_one() {
        assert!(!workers_load_same_batches(&[7, 7, 7, 7], 2));
        assert!(!workers_load_same_batches(&[1, 1, 1, 1], 4));
    }
}
