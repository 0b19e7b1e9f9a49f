//! Totals by thread group that never decrease, with few groups listed individually.
//!
//! The increase of a thread's counts since the last reading is added to its group. The group therefore
//! keeps the counts of a thread that ends, is renamed or becomes the consumer. The groups that used
//! most are listed individually; the rest is added to `others`. When a group starts or stops being
//! listed, its earlier counts stay where they were.

use std::collections::BTreeMap;
use std::sync::Arc;

use headspace_agent::model::Scope;

use super::names::{AGENT, CONSUMER, OTHERS};

/// Maximum number of listed groups, without those of the consumer, the agent and the rest.
const MOST: usize = 6;

/// A group is listed if it used at least this fraction of the total: 1/100.
const WORTH: u64 = 100;

/// Maximum number of remembered names. Threads with other names are counted in `others`.
const MOST_NAMES: usize = 256;

/// Counts in the order of the source; absent if they could not be read.
pub(super) type Counts<const N: usize> = [Option<u64>; N];

/// One group, or all threads together.
#[derive(Debug, Clone)]
pub(super) struct Group<const N: usize> {
    pub(super) scope: Scope,
    /// Since the first reading.
    pub(super) total: Counts<N>,
    /// Since the previous reading.
    pub(super) recent: Counts<N>,
}

#[derive(Debug)]
struct Named<const N: usize> {
    group: Group<N>,
    shown: bool,
    /// Usage since the first reading, listed or not. Groups are ordered by it.
    used: u64,
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups<const N: usize> {
    named: BTreeMap<Box<str>, Named<N>>,
    others: Group<N>,
    all: Group<N>,
    used: u64,
}

impl<const N: usize> Group<N> {
    fn new(scope: Scope) -> Self {
        Self {
            scope,
            total: [None; N],
            recent: [None; N],
        }
    }

    fn add(&mut self, counts: &Counts<N>) {
        add(&mut self.total, counts);
        add(&mut self.recent, counts);
    }
}

fn add<const N: usize>(sums: &mut Counts<N>, counts: &Counts<N>) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        if let Some(count) = count {
            *sum = Some(sum.unwrap_or(0).saturating_add(*count));
        }
    }
}

fn thread(name: &str) -> Scope {
    Scope::Thread(Arc::from(name))
}

impl<const N: usize> Groups<N> {
    pub(super) fn new() -> Self {
        Self {
            named: BTreeMap::new(),
            others: Group::new(thread(OTHERS)),
            all: Group::new(Scope::Process),
            used: 0,
        }
    }

    /// Begins a reading.
    pub(super) fn begin(&mut self) {
        let named = self.named.values_mut().map(|named| &mut named.group);
        for group in named.chain([&mut self.others, &mut self.all]) {
            group.recent = [None; N];
        }
    }

    /// Adds the increase of one thread's counts to its group. Groups are ordered by `used`.
    pub(super) fn add(&mut self, group: &str, used: u64, counts: &Counts<N>) {
        self.all.add(counts);
        self.used = self.used.saturating_add(used);
        if !self.named.contains_key(group) && self.named.len() < MOST_NAMES {
            let named = Named {
                group: Group::new(thread(group)),
                shown: false,
                used: 0,
            };
            self.named.insert(group.into(), named);
        }
        match self.named.get_mut(group) {
            Some(named) => {
                named.used = named.used.saturating_add(used);
                add(&mut named.group.recent, counts);
            }
            None => add(&mut self.others.recent, counts),
        }
    }

    /// Ends a reading: decides which groups are listed, and adds the counts.
    pub(super) fn end(&mut self) {
        self.choose();
        for named in self.named.values_mut() {
            if named.shown {
                add(&mut named.group.total, &named.group.recent);
            } else {
                add(&mut self.others.recent, &named.group.recent);
            }
        }
        add(&mut self.others.total, &self.others.recent);
    }

    fn choose(&mut self) {
        for name in [CONSUMER, AGENT] {
            if let Some(named) = self.named.get_mut(name) {
                named.shown = true;
            }
        }
        let worth = self.used.div_ceil(WORTH).max(1);
        loop {
            let eligible = || {
                let fixed = |name: &str| name == CONSUMER || name == AGENT;
                self.named.iter().filter(move |(name, _)| !fixed(name))
            };
            let shown = eligible().filter(|(_, named)| named.shown);
            let (count, least) = (
                shown.clone().count(),
                shown.min_by_key(|(_, named)| named.used),
            );
            let hidden = eligible().filter(|(_, named)| !named.shown && named.used >= worth);
            let Some((name, best)) = hidden.max_by_key(|(_, named)| named.used) else {
                return;
            };
            let leaves = match least {
                _ if count < MOST => None,
                // The factor 2 prevents groups with similar usage from alternating.
                Some((least, named)) if best.used / 2 > named.used => Some(least.clone()),
                _ => return,
            };
            let enters = name.clone();
            for name in leaves.into_iter().chain([enters]) {
                if let Some(named) = self.named.get_mut(&name) {
                    named.shown = !named.shown;
                }
            }
        }
    }

    /// The listed groups, then the rest.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Group<N>> {
        let named = self.named.values().filter(|named| named.shown);
        named.map(|named| &named.group).chain([&self.others])
    }

    /// The consumer's group, if it has appeared.
    pub(super) fn consumer(&self) -> Option<&Group<N>> {
        self.named.get(CONSUMER).map(|named| &named.group)
    }

    /// All threads together.
    pub(super) fn all(&self) -> &Group<N> {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn read(groups: &mut Groups<1>, added: &[(&str, u64)]) -> HashMap<String, u64> {
        groups.begin();
        for (name, count) in added {
            groups.add(name, *count, &[Some(*count)]);
        }
        groups.end();
        let listed = |group: &Group<1>| Some((group.scope.to_string(), group.total[0]?));
        groups.groups().filter_map(listed).collect()
    }

    #[test]
    fn the_six_groups_with_the_highest_usage_are_listed() {
        let mut groups = Groups::<1>::new();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let added: Vec<_> = names
            .into_iter()
            .zip(1..)
            .map(|(name, used)| (name, used * 100))
            .collect();

        let listed = read(&mut groups, &added);

        assert_eq!(listed.len(), 7);
        assert_eq!(listed["thread:others"], 300);
        assert_eq!(listed["thread:h"], 800);
        assert_eq!(groups.all().total, [Some(3600)]);
    }

    #[test]
    fn groups_with_almost_no_usage_are_added_to_others() {
        let listed = read(
            &mut Groups::new(),
            &[("python", 1000), ("idle", 9), ("never", 0)],
        );
        assert_eq!(
            listed,
            HashMap::from([("thread:python".into(), 1000), ("thread:others".into(), 9)])
        );
    }

    #[test]
    fn the_consumer_is_listed_even_without_usage() {
        let mut groups = Groups::new();
        let listed = read(&mut groups, &[("python", 1000), (CONSUMER, 0)]);

        assert_eq!(listed["thread:consumer"], 0);
        assert_eq!(groups.consumer().unwrap().total, [Some(0)]);
    }

    #[test]
    fn a_later_group_replaces_the_smallest_one_once_it_has_used_twice_as_much() {
        let mut groups = Groups::new();
        read(
            &mut groups,
            &["a", "b", "c", "d", "e", "f"].map(|name| (name, 100)),
        );

        let alike = read(&mut groups, &[("late", 150)]);
        let more = read(&mut groups, &[("late", 60)]);

        assert!(!alike.contains_key("thread:late"));
        assert_eq!((alike["thread:others"], more["thread:others"]), (150, 150));
        assert_eq!((more["thread:late"], more.len()), (60, 7));
    }

    #[test]
    fn a_count_that_no_thread_has_is_absent() {
        let mut groups = Groups::<2>::new();
        groups.begin();
        groups.add("a", 1, &[Some(1), None]);
        groups.end();

        assert_eq!(groups.all().total, [Some(1), None]);
        assert!(groups.groups().all(|group| group.total[1].is_none()));
    }

    proptest! {
        #[test]
        fn no_group_decreases_and_nothing_is_lost_or_counted_twice(
            readings in prop::collection::vec(prop::collection::vec((0u32..300, 0u64..1000), 0..20), 1..30)
        ) {
            let mut groups = Groups::new();
            let mut truth = 0;
            let mut last = HashMap::<String, u64>::new();
            for added in readings {
                truth += added.iter().map(|(_, count)| count).sum::<u64>();
                let added: Vec<_> = added.iter().map(|(name, count)| (name.to_string(), *count)).collect();
                let added: Vec<_> = added.iter().map(|(name, count)| (name.as_str(), *count)).collect();
                let listed = read(&mut groups, &added);
                prop_assert!(listed.len() <= 9);
                for (name, total) in &listed {
                    prop_assert!(last.get(name).is_none_or(|last| last <= total), "{name}");
                }
                last.extend(listed);
                // Groups that are no longer listed keep their totals.
                prop_assert_eq!(last.values().sum::<u64>(), truth);
                prop_assert_eq!(groups.all().total[0].unwrap_or(0), truth);
            }
        }
    }
}
