//! Steps, epochs and ticks that result from events.

use super::*;

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

fn fold() -> Fold {
    Fold::new("train".to_owned())
}

fn one_epoch(fold: &mut Fold, start: u64, batches: u64) {
    fold.begin_epoch(start * MS);
    for i in 0..batches {
        // Asked for at 10 i, received 4 ms later; the first after 4 ms too.
        fold.lap((start + 10 * i) * MS, (start + 10 * i + 4) * MS);
    }
    fold.end_epoch(true);
}

#[test]
fn wait_compute_and_step_add_up_and_leave_the_first_batch_out() {
    let mut fold = fold();
    one_epoch(&mut fold, 0, 3);

    let tick = fold.take_tick().remove(0);

    assert_eq!(tick.steps, 3);
    assert_eq!(
        (tick.wait.count, tick.compute.count, tick.step.count),
        (2, 2, 2)
    );
    assert_eq!(
        (tick.wait.sum_ms, tick.compute.sum_ms, tick.step.sum_ms),
        (8.0, 12.0, 20.0)
    );
}

#[test]
fn time_to_first_batch_and_boundary_stay_out_of_the_step() {
    let mut fold = fold();
    one_epoch(&mut fold, 0, 2);
    one_epoch(&mut fold, 500, 2);

    let epochs = fold.take_epochs();

    assert_eq!(epochs[0].ttfb_s, Some(0.004));
    assert_eq!(epochs[0].boundary_s, None);
    assert_eq!(epochs[1].boundary_s, Some(0.490));
    assert!(fold.take_tick()[0].step.max_ms < 10.001);
}

#[test]
fn a_step_across_two_phases_belongs_to_neither() {
    let mut fold = fold();
    fold.begin_epoch(0);
    fold.lap(0, MS);
    fold.phase = Phase::Live;
    fold.lap(2 * MS, 3 * MS);
    let clock = MonotonicClock::new();
    fold.add(Event::Phase(Phase::Replay), &clock);
    fold.lap(4 * MS, 5 * MS);
    fold.lap(6 * MS, 7 * MS);

    let ticks = fold.take_tick();

    assert_eq!((ticks[0].steps, ticks[0].step.count), (2, 1));
    assert_eq!((ticks[1].steps, ticks[1].step.count), (2, 1));
}

#[test]
fn single_steps_are_in_a_tick_only_if_a_destination_wants_them() {
    let mut fold = fold();
    one_epoch(&mut fold, 0, 3);
    assert!(fold.take_tick()[0].sampled.is_empty());

    fold.sample_steps();
    one_epoch(&mut fold, 1_000, 3);
    let tick = fold.take_tick().remove(0);
    let expected = StepRecord {
        step: 4,
        epoch: 1,
        received_s: 1.014,
        step_ms: 10.0,
        wait_ms: Some(4.0),
    };
    assert_eq!(tick.sampled, [expected]);
    assert_eq!(tick.step.count, 2);
}

#[test]
fn an_epoch_that_is_left_early_is_not_exhausted() {
    let mut fold = fold();
    fold.begin_epoch(0);
    fold.lap(0, MS);
    fold.begin_epoch(5 * MS);

    let epochs = fold.take_epochs();

    assert_eq!(epochs.len(), 1);
    assert!(!epochs[0].exhausted);
}

#[test]
fn a_tick_holds_only_the_steps_since_the_last_tick() {
    let mut fold = fold();
    one_epoch(&mut fold, 0, 3);
    fold.take_tick();

    assert!(fold.take_tick().is_empty());
}

#[test]
fn samples_are_absent_if_the_batch_size_is_unknown() {
    let mut fold = fold();
    one_epoch(&mut fold, 0, 3);
    assert_eq!(fold.take_tick()[0].samples, None);

    fold.batch_size = 8;
    one_epoch(&mut fold, 100, 3);
    assert_eq!(fold.take_tick()[0].samples, Some(24));
}

#[test]
fn a_step_begins_when_the_loop_receives_the_batch() {
    let clock = MonotonicClock::new();
    let ticks = |ns: u64| {
        let per_tick = clock.nanos_per_tick();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ticks = (ns as f64 / per_tick) as u64;
        ticks
    };
    let mut fold = fold();
    let origin = clock.ticks();
    fold.add(Event::EpochBegin { at: origin }, &clock);
    for step in 0..3 {
        let request = origin + step * ticks(10 * MS);
        let receive = request + ticks(MS);
        fold.add(Event::Lap { request, receive }, &clock);
        // Units were counted for 4 ms.
        let at = receive + ticks(4 * MS);
        fold.add(Event::HandOver { at }, &clock);
    }

    let tick = fold.take_tick().remove(0);

    assert_eq!(tick.step.count, 2);
    assert!((tick.compute.sum_ms - 10.0).abs() < 0.2, "{tick:?}");
    assert!((tick.step.sum_ms - 12.0).abs() < 0.2, "{tick:?}");
}

#[test]
fn units_are_a_mean_over_the_counted_batches_until_they_cannot_be_counted() {
    let clock = MonotonicClock::new();
    let mut fold = fold();
    assert_eq!(fold.totals().units_per_batch, None);
    fold.add(Event::BatchUnits(Some(10)), &clock);
    // Few of these batches are counted: no count has more weight because it was the last one for long.
    one_epoch(&mut fold, 0, 30);
    fold.add(Event::BatchUnits(Some(30)), &clock);
    one_epoch(&mut fold, 500, 1);
    assert_eq!(fold.totals().units_per_batch, Some(20.0));

    fold.add(Event::BatchUnits(None), &clock);
    assert_eq!(fold.totals().units_per_batch, None);
}

#[test]
fn an_epoch_is_complete_if_its_source_is_exhausted_or_another_one_follows() {
    let mut fold = fold();
    fold.begin_epoch(0);
    fold.lap(0, MS);
    fold.lap(2 * MS, 3 * MS);
    assert_eq!(fold.totals().epoch_steps, None, "it goes on");
    fold.end_epoch(false);
    assert_eq!(
        fold.totals().epoch_steps,
        None,
        "an error may have ended it"
    );
    one_epoch(&mut fold, 100, 5);
    assert_eq!(fold.totals().epoch_steps, Some(5));

    fold.begin_epoch(1000 * MS);
    fold.lap(1000 * MS, 1001 * MS);
    fold.begin_epoch(1100 * MS);
    assert_eq!(
        fold.totals().epoch_steps,
        Some(1),
        "the program left it early"
    );
    assert_eq!(fold.totals().boundaries.count, 2);
}

#[test]
fn batches_that_were_not_recorded_count_in_the_length_of_their_epoch() {
    let mut fold = fold();
    one_epoch(&mut fold, 0, 5);

    // The pause begins within one epoch, and ends within the next.
    fold.begin_epoch(100 * MS);
    fold.lap(100 * MS, 101 * MS);
    fold.lap(110 * MS, 111 * MS);
    fold.gap(3, 130 * MS);
    fold.end_epoch(true);
    assert_eq!(fold.totals().epoch_steps, Some(5));
    fold.begin_epoch(500 * MS);
    assert_eq!(
        fold.totals().last_receive_s,
        Some(0.13),
        "it was not recorded"
    );
    fold.gap(4, 890 * MS);
    fold.lap(900 * MS, 901 * MS);
    fold.end_epoch(true);

    let totals = fold.totals();
    assert_eq!(totals.epoch_steps, Some(5));
    assert_eq!((totals.steps, totals.unrecorded), (8, 7));
    assert_eq!(totals.gaps.count, 0);
    assert_eq!(
        totals.boundaries.count, 1,
        "the next epoch's first batch is unknown"
    );

    fold.begin_epoch(950 * MS);
    fold.lap(951 * MS, 952 * MS);
    assert_eq!(fold.totals().boundaries.count, 2);
}

#[test]
fn a_gap_is_as_long_as_from_one_batch_to_the_next() {
    let clock = MonotonicClock::new();
    let mut fold = fold();
    fold.begin_epoch(0);
    fold.lap(0, MS);
    fold.add(Event::NO_STEP, &clock);
    fold.lap(500 * MS, 501 * MS);
    fold.lap(502 * MS, 503 * MS);

    let gaps = fold.totals().gaps;
    assert_eq!(gaps.count, 1);
    assert!((gaps.mean_s - 0.5).abs() < 1e-9);
    assert_eq!(fold.totals().live.len(), 1);
}
