//! Compares replay with SPDL's `cache_iterator`.

use std::ops::Range;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Yield {
    Live(u64),
    Cached(u64),
}

/// One epoch over a source of `length` batches, numbered from `first`, left after `take`.
fn epoch(
    machine: &mut Replay,
    sized: Option<u64>,
    cache: &mut Vec<u64>,
    first: u64,
    length: u64,
    take: usize,
) -> Vec<Yield> {
    let mut source = first..first + length;
    let mut epoch = EpochProgress::new(sized);
    std::iter::from_fn(|| next(machine, &mut epoch, cache, &mut source))
        .take(take)
        .collect()
}

/// The next batch of one of several active iterations.
fn next(
    machine: &mut Replay,
    epoch: &mut EpochProgress,
    cache: &mut Vec<u64>,
    source: &mut Range<u64>,
) -> Option<Yield> {
    loop {
        match machine.request(epoch) {
            Decision::End => return None,
            Decision::Cached(index) => return Some(Yield::Cached(cache[index])),
            Decision::Source => {}
        }
        if let Some(batch) = source.next() {
            if let Some(slot) = machine.delivered(epoch) {
                assert_eq!(slot, cache.len(), "slots are filled in order");
                cache.push(batch);
            }
            return Some(Yield::Live(batch));
        }
        if machine.source_ended(epoch) == Ended::Epoch {
            return None;
        }
    }
}

/// The batches of `SPDL` 0.8 by its documentation: live batches up to the turn, then the cached batches
/// repeatedly.
fn spdl(plan: ReplayPlan, length: u64, take: usize) -> Vec<u64> {
    let live: Vec<u64> = (0..length.min(plan.return_caches_after)).collect();
    let cache: Vec<u64> = live.iter().copied().take(plan.num_caches).collect();
    let limit = plan
        .stop_after
        .map_or(take, |stop| usize::try_from(stop).unwrap().min(take));
    live.iter()
        .chain(cache.iter().cycle())
        .copied()
        .take(limit)
        .collect()
}

fn number(y: &Yield) -> u64 {
    match *y {
        Yield::Live(n) | Yield::Cached(n) => n,
    }
}

fn plans() -> impl Strategy<Value = ReplayPlan> {
    (1_i64..8, 0_i64..12, proptest::option::of(0_i64..30)).prop_map(|(caches, more, stop)| {
        let turn = caches + more;
        ReplayPlan::new(caches, Some(turn), stop.map(|stop| turn + stop)).unwrap()
    })
}

proptest! {
    #[test]
    fn one_iteration_yields_what_spdl_yields(
        plan in plans(), length in 0_u64..40, take in 0_usize..80,
    ) {
        let mut machine = Replay::new(plan);
        let yields = epoch(&mut machine, None, &mut Vec::new(), 0, length, take);
        let numbers: Vec<u64> = yields.iter().map(number).collect();
        prop_assert_eq!(numbers, spdl(plan, length, take));
    }

    #[test]
    fn live_batches_come_once_and_in_order_over_epochs_that_are_left_early(
        plan in plans(),
        sized in any::<bool>(),
        length in 0_u64..20,
        takes in proptest::collection::vec(0_usize..40, 1..6),
    ) {
        let mut machine = Replay::new(plan);
        let mut cache = Vec::new();
        let mut live = Vec::new();
        let mut turned = false;
        for (i, take) in (0_u64..).zip(takes) {
            for y in epoch(&mut machine, sized.then_some(length), &mut cache, i * 100, length, take) {
                match y {
                    Yield::Live(n) => {
                        prop_assert!(!turned, "live after replay began");
                        live.push(n);
                    }
                    Yield::Cached(_) => turned = true,
                }
            }
        }
        prop_assert!(live.is_sorted_by(|a, b| a < b));
        prop_assert!(live.len() as u64 <= plan.return_caches_after);
        prop_assert_eq!(&cache[..], &live[..cache.len()]);
    }
}

#[test]
fn the_arguments_spdl_refuses_are_refused_by_name_and_value() {
    let error = |caches, turn, stop| ReplayPlan::new(caches, turn, stop).unwrap_err();
    assert_eq!(error(0, None, None), PlanError::NoCaches { given: 0 });
    assert_eq!(error(-1, None, None), PlanError::NoCaches { given: -1 });
    assert_eq!(
        error(5, Some(4), None),
        PlanError::TurnsTooEarly {
            given: 4,
            num_caches: 5
        }
    );
    assert_eq!(
        error(5, None, Some(0)),
        PlanError::StopsBeforeFull {
            given: 0,
            num_caches: 5
        }
    );
    assert_eq!(
        error(5, Some(9), Some(8)),
        PlanError::StopsBeforeReplay {
            given: 8,
            return_caches_after: 9
        }
    );
    assert!(
        error(5, Some(4), None)
            .to_string()
            .contains("`return_caches_after`")
    );
    assert!(ReplayPlan::new(5, None, Some(5)).is_ok());
}

#[test]
fn a_source_with_a_length_keeps_it_and_its_cache_outlives_the_epoch() {
    let plan = ReplayPlan::new(2, Some(3), None).unwrap();
    let mut machine = Replay::new(plan);
    let mut cache = Vec::new();
    let first = epoch(&mut machine, Some(4), &mut cache, 0, 4, 99);
    let second = epoch(&mut machine, Some(4), &mut cache, 100, 4, 99);
    let cached = |ns: [u64; 4]| ns.map(Yield::Cached).to_vec();
    assert_eq!(
        first,
        [
            Yield::Live(0),
            Yield::Live(1),
            Yield::Live(2),
            Yield::Cached(0)
        ]
        .to_vec()
    );
    assert_eq!(second, cached([0, 1, 0, 1]));
}

#[test]
fn a_sized_source_shorter_than_the_turn_continues_live_in_the_next_epoch() {
    let plan = ReplayPlan::new(2, Some(5), None).unwrap();
    let mut machine = Replay::new(plan);
    let mut cache = Vec::new();
    assert_eq!(epoch(&mut machine, Some(3), &mut cache, 0, 3, 99).len(), 3);
    assert!(!machine.releases_source());
    let second = epoch(&mut machine, Some(3), &mut cache, 100, 3, 99);
    assert_eq!(
        second,
        [Yield::Live(100), Yield::Live(101), Yield::Cached(0)].to_vec()
    );
    assert!(machine.releases_source());
}

#[test]
fn a_live_epoch_continues_past_a_length_that_is_too_small() {
    let plan = ReplayPlan::new(2, Some(50), None).unwrap();
    let mut machine = Replay::new(plan);
    assert_eq!(
        epoch(&mut machine, Some(3), &mut Vec::new(), 0, 10, 99).len(),
        10
    );
}

#[test]
fn the_rest_of_an_epoch_continues_at_its_position_and_ends_at_its_length() {
    let plan = ReplayPlan::new(2, Some(3), Some(9)).unwrap();
    let mut machine = Replay::new(plan);
    let mut epoch = EpochProgress::new(None);
    assert_eq!(machine.request_rest(&mut epoch), None);
    (0..3).for_each(|_| _ = machine.delivered(&mut epoch));
    assert_eq!(machine.request(&mut epoch), Decision::Cached(0));
    assert_eq!(machine.request_rest(&mut epoch), Some((1, 5)));
    assert_eq!(machine.request(&mut epoch), Decision::End);
}

#[test]
fn an_empty_source_ends_the_epoch_instead_of_spinning() {
    let plan = ReplayPlan::new(2, None, Some(9)).unwrap();
    let mut machine = Replay::new(plan);
    let mut epoch = EpochProgress::new(None);
    assert_eq!(machine.request(&mut epoch), Decision::Source);
    assert_eq!(machine.source_ended(&mut epoch), Ended::Epoch);
    assert_eq!(machine.request(&mut epoch), Decision::End);
}

#[test]
fn a_source_that_ends_early_is_reported() {
    let plan = ReplayPlan::new(2, Some(5), None).unwrap();
    let mut machine = Replay::new(plan);
    let mut epoch = EpochProgress::new(None);
    machine.delivered(&mut epoch);
    assert_eq!(
        machine.source_ended(&mut epoch),
        Ended::Replay { early: true }
    );
    assert_eq!(machine.request(&mut epoch), Decision::Cached(0));
    assert_eq!(machine.request(&mut epoch), Decision::Cached(0));
}

#[test]
fn an_epoch_within_another_does_not_shorten_it() {
    let plan = ReplayPlan::new(2, Some(3), Some(5)).unwrap();
    let mut machine = Replay::new(plan);
    let mut cache = Vec::new();
    let (mut source, mut outer) = (0..9, EpochProgress::new(None));
    let mut outer_len = 0;
    while next(&mut machine, &mut outer, &mut cache, &mut source).is_some() {
        outer_len += 1;
        assert_eq!(epoch(&mut machine, None, &mut cache, 100, 9, 99).len(), 5);
    }
    assert_eq!(outer_len, 5);
}
