//! Series whose truth is plain. The study of random ones is in the workspace's tests.

use proptest::prelude::*;

use super::*;
use crate::statistics::bootstrap::Rng;

const MIB: f64 = 1_048_576.0;

/// Points a hundred steps apart, in MiB.
fn series(count: u32, level: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    (0..count)
        .map(|at| {
            let share = f64::from(at) / f64::from(count);
            (f64::from(at) * 100.0, level(share) * MIB)
        })
        .collect()
}

/// Noise of up to ±1, the same in each test.
fn jitter(share: f64) -> f64 {
    2.0 * Rng::new(share.to_bits()).unit() - 1.0
}

#[test]
fn a_leak_of_a_mebibyte_in_a_hundred_steps_is_found_within_two_thousand() {
    let found = growth(&series(20, |t| 900.0 + 20.0 * t + 2.0 * jitter(t))).unwrap();

    let truth = 20.0 * MIB / 2000.0;
    assert!(found.low < truth && truth < found.high, "{found:?}");
    assert!((found.value / truth - 1.0).abs() < 0.2, "{found:?}");
}

#[test]
fn a_leak_below_a_sawtooth_is_found() {
    let saw = |t: f64| 6.0 * (t * 4.3).fract();
    let found = growth(&series(40, |t| 900.0 + 40.0 * t + saw(t) + jitter(t))).unwrap();

    let truth = 40.0 * MIB / 4000.0;
    assert!(found.low < truth && truth < found.high, "{found:?}");
}

#[test]
fn series_that_return_to_their_minimum_are_no_leak() {
    for periods in [2.0, 2.4, 3.0, 4.5, 7.0, 11.0] {
        for phase in [0.0, 0.2, 0.4, 0.6, 0.8] {
            let saw = series(60, |t| 900.0 + 50.0 * (t * periods + phase).fract());
            assert!(growth(&saw).is_err(), "{periods} periods from {phase}");
        }
    }
}

#[test]
fn a_warm_up_that_saturates_is_no_leak() {
    for rate in [3.0, 5.0, 10.0, 30.0] {
        let warm_up = series(60, |t| 900.0 - 80.0 * (-t * rate).exp() + 0.2 * jitter(t));
        assert!(growth(&warm_up).is_err(), "{rate}");
    }
}

#[test]
fn a_plateau_and_a_step_are_no_leak() {
    for at in [0.1, 0.3, 0.5, 0.7, 0.75] {
        let plateau = series(60, |t| 900.0 + 80.0 * t.min(at) + 0.2 * jitter(t));
        assert!(growth(&plateau).is_err(), "plateau at {at}");
        let step = series(60, |t| {
            900.0 + if t < at { 0.0 } else { 80.0 } + 0.2 * jitter(t)
        });
        assert!(growth(&step).is_err(), "step at {at}");
    }
}

#[test]
fn a_buffer_that_is_full_before_the_end_is_no_leak() {
    for at in [0.8, 0.85, 0.87] {
        let filling = series(60, |t| 900.0 + 80.0 * t.min(at) + 0.2 * jitter(t));
        assert_eq!(growth(&filling), Err(NoGrowth::NotSteady), "full at {at}");
    }
}

#[test]
fn memory_that_falls_does_not_grow() {
    assert_eq!(
        growth(&series(60, |t| 900.0 - 50.0 * t)),
        Err(NoGrowth::Noise)
    );
}

#[test]
fn growth_by_a_thousandth_of_the_memory_is_no_leak() {
    assert_eq!(
        growth(&series(60, |t| 9000.0 + 8.0 * t)),
        Err(NoGrowth::Noise)
    );
    assert!(growth(&series(60, |t| 9000.0 + 10.0 * t)).is_ok());
}

#[test]
fn rare_spikes_do_not_hide_a_leak() {
    let spikes = |t: f64| {
        if (t * 60.0).round() % 15.0 < 0.5 {
            300.0
        } else {
            0.0
        }
    };
    let found = growth(&series(60, |t| 900.0 + 60.0 * t + jitter(t) + spikes(t))).unwrap();

    let truth = 60.0 * MIB / 6000.0;
    assert!((found.value / truth - 1.0).abs() < 0.1, "{found:?}");
}

#[test]
fn too_few_or_unevenly_spread_points_give_no_result() {
    assert_eq!(growth(&[]), Err(NoGrowth::TooFewPoints));
    let few = series(13, |t| 900.0 + 20.0 * t);
    assert_eq!(growth(&few), Err(NoGrowth::TooFewPoints));
    let mut uneven = series(40, |t| 900.0 + 20.0 * t);
    uneven.push((1e6, 1e12));
    assert_eq!(growth(&uneven), Err(NoGrowth::TooFewPoints));
}

#[test]
fn averaging_many_points_keeps_the_result() {
    let found = growth(&series(5000, |t| 900.0 + 40.0 * t + 3.0 * jitter(t))).unwrap();

    let truth = 40.0 * MIB / 500_000.0;
    assert!((found.value / truth - 1.0).abs() < 0.05, "{found:?}");
}

proptest! {
    #[test]
    fn any_points_give_a_positive_estimate_with_ordered_ends_or_a_reason(
        points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..80)
    ) {
        if let Ok(found) = growth(&points) {
            prop_assert!(found.low > 0.0);
            prop_assert!(found.low <= found.value && found.value <= found.high);
        }
    }

    #[test]
    fn units_and_origin_do_not_change_the_result(shift in -1e6..1e6_f64, scale in 0.01..100.0_f64) {
        let plain = series(40, |t| 900.0 + 30.0 * t + jitter(t));
        let other: Vec<_> = plain.iter().map(|(x, y)| (x * scale + shift, *y)).collect();
        let (plain, other) = (growth(&plain).unwrap(), growth(&other).unwrap());
        prop_assert!((other.value * scale / plain.value - 1.0).abs() < 1e-6);
    }
}
