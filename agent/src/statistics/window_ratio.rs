//! The ratio of the steps in changed windows to the unchanged steps at the same time.
//!
//! The unchanged step during a changed window is a weighted mean of all unchanged windows. Its weights decrease with the
//! distance, as fast as neighbouring unchanged windows differ by more than their steps explain: all windows count alike
//! on a steady machine, and only the nearest ones on a machine that drifts. The variance has two parts: that of the
//! steps within windows, by batch means (Law, "Simulation Modeling and Analysis", chapter 9), and that of the levels of
//! windows. Their degrees of freedom are combined by the rule of Satterthwaite (Biometrics Bulletin 2, 1946).

use super::{block_means, mean, student};

/// Number of steps over which neighbours are correlated, for most loaders.
pub(crate) const BLOCK: usize = 8;

/// A ratio with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A window of steps, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepWindow<'a> {
    /// The change. `None` in an unchanged window.
    pub(crate) change: Option<usize>,
    pub(crate) steps_ms: &'a [f64],
}

/// The ratio for one change: the mean step with it, divided by the mean unchanged step. `None` if there are too few
/// steps. The windows are in the order of time.
pub(crate) fn ratio(windows: &[StepWindow<'_>], change: usize) -> Option<Ratio> {
    let windows: Vec<&StepWindow<'_>> = (windows.iter())
        .filter(|window| window.steps_ms.len() >= 2 * BLOCK)
        .collect();
    let of_change = |change: Option<usize>| {
        let all = windows.iter().enumerate();
        let chosen = all.filter(move |(_, window)| window.change == change);
        Levels::new(chosen.map(|(at, window)| (at, window.steps_ms)).collect())
    };
    let (unchanged, changed) = (of_change(None)?, of_change(Some(change))?);
    let between = unchanged.between();
    let share = 1.0 / changed.steps();
    let mut log = 0.0;
    let mut around = vec![0.0; unchanged.windows.len()];
    for window in &changed.windows {
        let weights = unchanged.weights(window.at, between);
        log += share * window.steps * window.log;
        for ((sum, other), weight) in around.iter_mut().zip(&unchanged.windows).zip(weights) {
            let weight = share * window.steps * weight;
            *sum += weight;
            log -= weight * other.log;
        }
    }
    let own: Vec<f64> = (changed.windows.iter())
        .map(|window| share * window.steps)
        .collect();
    let squares = |weights: &[f64]| weights.iter().map(|weight| weight.powi(2)).sum::<f64>();
    let of_levels = between * (squares(&own) + squares(&around));
    let parts = [
        (changed.variance(&own), changed.freedom),
        (unchanged.variance(&around), unchanged.freedom),
        (of_levels, unchanged.windows.len() as f64 - 1.0),
    ];
    let variance: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let uncertain = |(variance, freedom): &(f64, f64)| variance.powi(2) / freedom.max(1.0);
    let freedom = variance.powi(2)
        / parts
            .iter()
            .map(uncertain)
            .sum::<f64>()
            .max(f64::MIN_POSITIVE);
    let half = student(freedom) * variance.sqrt();
    Some(Ratio {
        value: log.exp(),
        low: (log - half).exp(),
        high: (log + half).exp(),
    })
}

/// Windows with the same change.
struct Levels {
    windows: Vec<Level>,
    /// Variance of a step relative to the squared mean, as the means of blocks show it.
    of_step: f64,
    /// Its degrees of freedom.
    freedom: f64,
}

/// The level of a window.
struct Level {
    /// Its position among all windows.
    at: f64,
    steps: f64,
    /// Logarithm of the mean step.
    log: f64,
}

impl Levels {
    /// `None` without windows, or if their steps take no time.
    fn new(windows: Vec<(usize, &[f64])>) -> Option<Self> {
        let (mut squares, mut freedom) = (0.0, 0.0);
        let mut levels = Vec::new();
        for (at, steps_ms) in windows {
            let level = mean(steps_ms);
            if level <= 0.0 {
                return None;
            }
            let means = block_means(steps_ms, BLOCK);
            let centre = mean(&means);
            squares += means
                .iter()
                .map(|m| ((m - centre) / level).powi(2))
                .sum::<f64>();
            freedom += means.len() as f64 - 1.0;
            levels.push(Level {
                at: at as f64,
                steps: steps_ms.len() as f64,
                log: level.ln(),
            });
        }
        (freedom >= 1.0).then(|| Self {
            windows: levels,
            of_step: squares / freedom * BLOCK as f64,
            freedom,
        })
    }

    fn steps(&self) -> f64 {
        self.windows.iter().map(|window| window.steps).sum()
    }

    /// Variance of a weighted sum of the levels, as far as steps explain it.
    fn variance(&self, weights: &[f64]) -> f64 {
        let windows = self.windows.iter().zip(weights);
        windows
            .map(|(window, weight)| weight.powi(2) * self.of_step / window.steps)
            .sum()
    }

    /// Variance of the level of a window beyond what steps explain, from the differences of neighbours.
    fn between(&self) -> f64 {
        let excess = |pair: &[Level]| {
            let explained = self.of_step * (1.0 / pair[0].steps + 1.0 / pair[1].steps);
            (pair[1].log - pair[0].log).powi(2) - explained
        };
        let pairs: Vec<f64> = self.windows.windows(2).map(excess).collect();
        (mean(&pairs) / 2.0).max(0.0)
    }

    /// Weight of each window for the level at a position, with sum 1. Neighbours of the position are one away.
    fn weights(&self, at: f64, between: f64) -> Vec<f64> {
        let weight = |window: &Level| {
            let of_steps = (self.of_step / window.steps).max(f64::MIN_POSITIVE);
            1.0 / (of_steps + between * (window.at - at).abs())
        };
        let weights: Vec<f64> = self.windows.iter().map(weight).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::Rng;

    fn steps(level: f64, rng: &mut Rng) -> Vec<f64> {
        (0..80).map(|_| level * (0.9 + 0.2 * rng.unit())).collect()
    }

    fn ratio_of(levels: &[(Option<usize>, f64)], seed: u64) -> Option<Ratio> {
        let mut rng = Rng::new(seed);
        let windows: Vec<(Option<usize>, Vec<f64>)> = levels
            .iter()
            .map(|(change, level)| (*change, steps(*level, &mut rng)))
            .collect();
        let windows: Vec<StepWindow<'_>> = windows
            .iter()
            .map(|(change, steps_ms)| StepWindow {
                change: *change,
                steps_ms,
            })
            .collect();
        ratio(&windows, 0)
    }

    #[test]
    fn a_drift_of_the_machine_cancels() {
        let found = ratio_of(
            &[(None, 10.0), (Some(0), 6.0), (None, 14.0), (Some(1), 1.0)],
            1,
        )
        .unwrap();
        assert!((found.value - 0.5).abs() < 0.02, "{found:?}");
        assert!(found.low < 0.5 && found.high > 0.5, "{found:?}");
    }

    #[test]
    fn the_interval_covers_the_truth_in_about_95_of_100_runs() {
        let levels = [
            (None, 10.0),
            (Some(0), 7.0),
            (None, 10.0),
            (Some(0), 7.0),
            (None, 10.0),
        ];
        let covers = (0..400)
            .filter(|seed| {
                let found = ratio_of(&levels, *seed).unwrap();
                found.low < 0.7 && 0.7 < found.high
            })
            .count();
        assert!((368..=396).contains(&covers), "{covers}");
    }

    #[test]
    fn all_unchanged_windows_of_a_steady_machine_count() {
        let half = |levels: &[(Option<usize>, f64)]| {
            let widths = (0..50).map(|seed| {
                let found = ratio_of(levels, seed).unwrap();
                found.high - found.low
            });
            widths.sum::<f64>() / 2.0
        };
        let few = [(None, 10.0), (Some(0), 7.0), (None, 10.0)];
        let many = [&few[..], &[(None, 10.0); 8]].concat();
        assert!(half(&many) < 0.9 * half(&few));
    }

    #[test]
    fn a_change_without_windows_has_no_ratio() {
        assert_eq!(ratio_of(&[(None, 10.0), (Some(1), 5.0)], 2), None);
        assert_eq!(ratio_of(&[(Some(0), 5.0)], 2), None);
    }
}
