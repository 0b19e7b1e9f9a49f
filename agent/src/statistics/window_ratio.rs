//! The ratio of the steps in changed windows to the steps in the unchanged windows around them.
//!
//! The logarithm of the ratio is estimated for each changed window, because changes of the machine that last longer
//! than two windows cancel. Its variance has two parts: that of the steps within windows, by batch means (Law,
//! "Simulation Modeling and Analysis", chapter 9), and that of the levels of windows
//! ([`between_windows`](super::between_windows)).

use super::between_windows::Between;
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
    let unchanged: Vec<Vec<f64>> = (windows.iter())
        .filter(|window| window.change.is_none())
        .map(|window| window.steps_ms.to_vec())
        .collect();
    let levels = Between::from_windows(&unchanged, BLOCK).deviation();
    let mut logs = Vec::new();
    let (mut variance, mut freedom) = (0.0, 0.0);
    for (at, window) in windows.iter().enumerate() {
        if window.change != Some(change) {
            continue;
        }
        let before = windows[..at].iter().rfind(|other| other.change.is_none());
        let after = windows[at + 1..]
            .iter()
            .find(|other| other.change.is_none());
        let neighbours: Vec<&[f64]> = [before, after]
            .into_iter()
            .flatten()
            .map(|window| window.steps_ms)
            .collect();
        let own = Level::new(&[window.steps_ms])?;
        let around = Level::new(&neighbours)?;
        logs.push((own.mean / around.mean).ln());
        let of_levels = levels.powi(2) * (1.0 + 1.0 / neighbours.len() as f64);
        variance += own.variance + around.variance + of_levels;
        freedom += own.freedom.min(around.freedom);
    }
    if logs.is_empty() {
        return None;
    }
    let count = logs.len() as f64;
    let log = mean(&logs);
    let half = student(freedom) * variance.sqrt() / count;
    Some(Ratio {
        value: log.exp(),
        low: (log - half).exp(),
        high: (log + half).exp(),
    })
}

/// The level of one or more windows together.
struct Level {
    mean: f64,
    /// Squared standard error, relative to the squared mean.
    variance: f64,
    /// Degrees of freedom of the variance.
    freedom: f64,
}

impl Level {
    fn new(windows: &[&[f64]]) -> Option<Self> {
        let mean = mean(&windows.concat());
        let (mut squares, mut blocks, mut steps) = (0.0, 0.0, 0.0);
        let mut freedom = 0.0;
        for window in windows {
            let means = block_means(window, BLOCK);
            let level = super::mean(&means);
            squares += means.iter().map(|m| (m - level).powi(2)).sum::<f64>();
            blocks += means.len() as f64;
            freedom += means.len() as f64 - 1.0;
            steps += window.len() as f64;
        }
        let of_block = squares / f64::max(freedom, 1.0);
        (freedom >= 1.0 && mean > 0.0 && blocks > 0.0).then(|| Self {
            mean,
            variance: of_block * BLOCK as f64 / steps / (mean * mean),
            freedom,
        })
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
    fn a_change_without_windows_has_no_ratio() {
        assert_eq!(ratio_of(&[(None, 10.0), (Some(1), 5.0)], 2), None);
        assert_eq!(ratio_of(&[(Some(0), 5.0)], 2), None);
    }
}
