//! The levels, and the fits that they are averaged from.

use super::*;

fn pieces(levels: &[(bool, f64)]) -> Vec<Piece> {
    (levels.iter().enumerate())
        .map(|(at, &(replayed, level))| Piece {
            replayed,
            // Each pair of a live and a replay window has a time of its own.
            at_ms: (at / 2 * 10) as f64,
            level,
            variance: 1e-4,
        })
        .collect()
}

#[test]
fn without_drift_levels_are_the_means_of_their_pieces() {
    let found = pieces(&[(false, 1.0), (true, 0.5), (false, 1.2), (true, 0.7)]);
    let none = Wandering {
        period: (0.0, 3.0),
        ..Wandering::default()
    };
    let fit = fit(&found, &none).unwrap();

    assert!((fit.levels[0] - 1.1).abs() < 1e-9, "{fit:?}");
    assert!((fit.levels[1] - 0.6).abs() < 1e-9, "{fit:?}");
    assert!(fit.covariance.iter().all(|c| c.abs() < 1e-12), "{fit:?}");
}

#[test]
fn a_drift_of_both_phases_is_probably_shared_and_cancels_in_their_difference() {
    let found = pieces(&[
        (false, 1.0),
        (true, 0.5),
        (false, 1.4),
        (true, 0.9),
        (false, 1.1),
        (true, 0.6),
    ]);
    let of = |shared| Wandering {
        deviation: 0.16,
        memory_ms: 1.0,
        shared,
        period: (0.0, 20.0),
    };
    let shared = fit(&found, &of(true)).unwrap();
    let apart = fit(&found, &of(false)).unwrap();

    assert!(shared.weight > apart.weight, "{shared:?} {apart:?}");
    let of_difference = |fit: &Fit| fit.covariance[0] + fit.covariance[1] - 2.0 * fit.covariance[2];
    assert!(of_difference(&shared) < 1e-9, "{shared:?}");
    assert!(of_difference(&apart) > 0.01, "{apart:?}");
}

#[test]
fn covariances_of_means_are_averages_of_covariances_over_the_period() {
    let wandering = Wandering {
        deviation: 0.5,
        memory_ms: 3.0,
        shared: true,
        period: (2.0, 12.0),
    };
    let at = |at_ms| Piece {
        replayed: false,
        at_ms,
        level: 0.0,
        variance: 0.0,
    };
    let moments: Vec<Piece> = (0..1000).map(|k| at(2.005 + f64::from(k) * 0.01)).collect();
    let with = |piece: &Piece| {
        let of = |moment| wandering.between(piece, moment);
        moments.iter().map(of).sum::<f64>() / 1000.0
    };

    let piece = at(4.0);
    assert!((wandering.with_mean(&piece, true) - with(&piece)).abs() < 1e-4);
    let all = moments.iter().map(with).sum::<f64>() / 1000.0;
    assert!((wandering.of_means(false, true) - all).abs() < 1e-4);
}

#[test]
fn predictions_of_a_rising_level_are_less_certain_further_ahead() {
    let found = pieces(&[
        (false, 1.0),
        (true, 0.5),
        (false, 1.1),
        (true, 0.6),
        (false, 1.2),
        (true, 0.7),
    ]);
    let of = |end| {
        let wandering = Wandering {
            deviation: 0.16,
            memory_ms: 40.0,
            shared: false,
            period: (0.0, end),
        };
        fit(&found, &wandering).unwrap()
    };
    let (near, far) = (of(20.0), of(100.0));

    assert!(far.covariance[0] > near.covariance[0], "{far:?} {near:?}");
    assert!(
        far.levels[0] > near.levels[0] + 0.01,
        "the newest pieces tell most: {far:?} {near:?}"
    );
}
