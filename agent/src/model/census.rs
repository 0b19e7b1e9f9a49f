//! Counts of Python objects during a run.
//!
//! A census counts the objects by type, and the items of large containers. Objects are identified by their
//! addresses: a census keeps no reference, so a container may be freed and another created at its address. Its
//! count then usually falls, and it does not grow.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::record::{HolderRecord, SiteRecord};

/// Maximum number of censuses that are kept. If there are more, every second one is dropped.
const MOST_CENSUSES: usize = 12;

/// Minimum number of censuses for a growth.
const FEWEST_CENSUSES: usize = 3;

/// Minimum rate of growth in the later half of the time, as a share of the rate in the earlier half.
const LEAST_CONTINUATION: f64 = 0.5;

/// What a count belongs to: the address of a type or of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKey {
    /// The number of objects of a type.
    Type(u64),
    /// The number of items of a container.
    Container(u64),
    /// Bytes of anonymous memory of the process.
    Memory,
}

/// The counts at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Census {
    /// Time, in seconds since the run began.
    pub at_s: f64,
    /// The counts.
    pub counts: HashMap<ObjectKey, u64>,
}

/// A count that grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growing {
    /// What it belongs to.
    pub key: ObjectKey,
    /// Growth per second.
    pub per_s: f64,
}

/// The censuses of a run, in bounded memory.
#[derive(Debug, Clone, Default)]
pub struct CensusSeries(Vec<Census>);

impl CensusSeries {
    /// Adds the next census.
    pub fn push(&mut self, census: Census) {
        if self.0.len() == MOST_CENSUSES {
            let mut number = 0;
            self.0.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.0.push(census);
    }

    /// Whether there are enough censuses for a growth.
    pub fn is_enough(&self) -> bool {
        self.0.len() >= FEWEST_CENSUSES
    }

    /// The counts that grow to the end, in no order.
    pub fn growing(&self) -> Vec<Growing> {
        let Some(last) = self.0.last() else {
            return Vec::new();
        };
        let keys = last.counts.keys();
        keys.filter_map(|key| self.growth(*key)).collect()
    }

    /// Whether the memory of the process grows by at least `least` bytes. False if it is not counted.
    pub fn memory_grows(&self, least: u64) -> bool {
        let bytes = |census: &Census| census.counts.get(&ObjectKey::Memory).copied();
        let ends = self
            .0
            .first()
            .and_then(bytes)
            .zip(self.0.last().and_then(bytes));
        ends.is_some_and(|(first, last)| last >= first + least)
            && self.growth(ObjectKey::Memory).is_some()
    }

    fn growth(&self, key: ObjectKey) -> Option<Growing> {
        // Small counts are left out of a census, and containers may be younger than the run.
        let count = |census: &Census| census.counts.get(&key).map_or(0.0, |count| *count as f64);
        let points: Vec<(f64, f64)> = (self.0.iter())
            .map(|census| (census.at_s, count(census)))
            .collect();
        if points.len() < FEWEST_CENSUSES {
            return None;
        }
        let rate = |from: (f64, f64), to: (f64, f64)| {
            (to.0 > from.0 && to.1 > from.1).then(|| (to.1 - from.1) / (to.0 - from.0))
        };
        let (first, middle) = (points[0], points[points.len() / 2]);
        let last = points[points.len() - 1];
        let (early, late) = (rate(first, middle)?, rate(middle, last)?);
        (late >= LEAST_CONTINUATION * early).then_some(Growing {
            key,
            per_s: rate(first, last)?,
        })
    }
}

/// What an examination found out about a count that grows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GrownObjects {
    /// Growth of the count per second.
    pub per_s: f64,
    /// Whether it is the count of a container's items.
    pub is_container: bool,
    /// Type of the container or of the objects.
    pub type_name: String,
    /// Type of the newest items.
    pub items: Option<String>,
    /// Mean size of the newest items or objects, with what only they hold, in bytes.
    pub bytes_each: f64,
    /// Whether the newest items are tensors that keep a graph of torch's automatic differentiation, whose size is unknown.
    pub keep_graphs: bool,
    /// Maximum number of items of the container, if it has one.
    pub most_items: Option<u64>,
    /// What holds it.
    pub holders: Vec<HolderRecord>,
    /// Line that allocated the newest.
    pub site: Option<SiteRecord>,
}

/// A graph of torch's automatic differentiation that a tensor keeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AutogradGraph {
    /// Number of nodes, as far as they were counted.
    pub nodes: u64,
    /// The tensor.
    pub type_name: String,
    /// What holds the tensor.
    pub holders: Vec<HolderRecord>,
}

/// The result of an examination.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    /// Time, in seconds since the run began.
    pub at_s: f64,
    /// Number of censuses before it.
    pub censuses: u64,
    /// Counts that grow.
    pub objects: Vec<GrownObjects>,
    /// The large graphs.
    pub graphs: Vec<AutogradGraph>,
}

/// The last two examinations of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Examinations {
    /// The last one.
    pub last: Option<Examination>,
    /// The one before.
    pub before: Option<Examination>,
    /// The last ones of worker processes.
    pub workers: Vec<WorkerExamination>,
}

/// The examination of a worker process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerExamination {
    /// Name of the worker for people.
    pub name: String,
    /// What it found.
    pub examination: Examination,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(counts: &[u64]) -> CensusSeries {
        let mut series = CensusSeries::default();
        for (at, count) in counts.iter().enumerate() {
            series.push(Census {
                at_s: at as f64,
                counts: HashMap::from([(ObjectKey::Type(7), *count)]),
            });
        }
        series
    }

    #[test]
    fn a_count_that_grows_in_both_halves_grows() {
        let found = series(&[100, 200, 290, 400, 500]).growing();
        assert_eq!(found.len(), 1);
        assert!((found[0].per_s - 100.0).abs() < 1e-9);
    }

    #[test]
    fn counts_that_fall_stay_or_stop_do_not_grow() {
        for counts in [
            &[500, 400, 300][..],
            &[100, 100, 100],
            &[100, 200, 300, 310, 310],
            &[100, 200],
        ] {
            assert_eq!(series(counts).growing(), [], "{counts:?}");
        }
    }

    #[test]
    fn many_censuses_are_thinned_and_the_rate_stays() {
        let counts: Vec<u64> = (0..200).map(|at| 1000 + 3 * at).collect();
        let series = series(&counts);
        assert!(series.0.len() <= MOST_CENSUSES);
        assert!((series.growing()[0].per_s - 3.0).abs() < 1e-9);
    }
}
