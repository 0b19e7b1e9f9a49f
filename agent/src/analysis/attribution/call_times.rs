//! Derives the distribution of call times from a stage's percentiles, relative to the mean.

use crate::analysis::thresholds::bounds::{
    MAX_OF_MEAN, MAX_VARIATION, MIN_OF_MEAN, NORMAL_SCORES, QUANTILE_JUMP,
};
use crate::analysis::thresholds::stages::SLOW_CALL;
use crate::model::record::StageSummary;
use crate::statistics::bootstrap::Rng;

/// Normal score of the 75th percentile.
const Z75: f64 = 0.674;
/// Normal score of the 95th percentile.
const Z95: f64 = 1.645;
/// Normal score of the 99th percentile.
const Z99: f64 = 2.326;
/// Probability above the last known percentile, the 99th.
const LAST: f64 = 0.01;

/// Quantiles of a call's time divided by its mean, with linear interpolation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Times {
    /// Probability and value, both ascending.
    knots: Vec<(f64, f64)>,
}

impl Times {
    /// All calls take the same time.
    pub(super) fn constant() -> Self {
        Self {
            knots: vec![(0.0, 1.0), (1.0, 1.0)],
        }
    }

    /// A normal distribution with the coefficient of variation `cv`, without its tails.
    pub(super) fn around(cv: f64) -> Self {
        let cv = cv.clamp(0.0, MAX_VARIATION);
        let at = |p: f64, z: f64| (p, (1.0 + cv * z).max(MIN_OF_MEAN));
        let knots = vec![
            at(0.0, NORMAL_SCORES.0),
            at(0.05, -Z95),
            at(0.5, 0.0),
            at(0.95, Z95),
            at(0.99, Z99),
            at(1.0, NORMAL_SCORES.1),
        ];
        Self { knots }.of_mean_one()
    }

    /// The distribution with the percentiles of a stage. The part above the last one is chosen so that the
    /// mean matches. Percentiles with a ratio above `far_percentiles` are far apart.
    pub(super) fn of(stage: &StageSummary, far_percentiles: f64) -> Self {
        let (Some(mean), Some(p50), Some(p95), Some(p99)) =
            (stage.mean_ms, stage.p50_ms, stage.p95_ms, stage.p99_ms)
        else {
            return Self::constant();
        };
        if mean <= 0.0 || p50 <= 0.0 || p95 < p50 || p99 < p95 {
            return Self::constant();
        }
        // Logarithms are symmetric about the median. The 75th percentile determines their width, because a
        // few very slow calls do not say how fast the fast ones are.
        let body = stage.p75_ms.map_or(f64::INFINITY, |p75| p75 / p50);
        let below = |z: f64, q: f64| p50 / body.powf(z / Z75).min(q / p50);
        let mut knots = vec![(0.0, below(Z99, p99)), (0.05, below(Z95, p95)), (0.5, p50)];
        let known = [
            (0.75, stage.p75_ms),
            (0.9, stage.p90_ms),
            (0.95, Some(p95)),
            (0.99, Some(p99)),
        ];
        let known = known.into_iter().filter_map(|(p, value)| Some((p, value?)));
        for (p, value) in known {
            let below = knots.last().map_or(0.0, |(_, value)| *value);
            knots.push((p, value.max(below)));
        }
        add_slow_calls(&mut knots, stage.slow_pct, SLOW_CALL * p50, far_percentiles);
        let missing = (mean - area(&knots) - LAST * p99).max(0.0);
        // A triangle over the last hundredth.
        let longest = p99 + missing / (LAST / 2.0);
        knots.push((1.0, longest.min(MAX_OF_MEAN * mean)));
        Self { knots }.of_mean_one()
    }

    fn of_mean_one(mut self) -> Self {
        let mean = area(&self.knots);
        for (_, value) in &mut self.knots {
            *value /= mean;
        }
        self
    }

    /// Relative times of `calls` calls in random order: evenly spaced quantiles. They have the distribution's
    /// shape and mean with hardly any sampling noise.
    pub(super) fn draw(&self, calls: usize, rng: &mut Rng) -> Vec<f64> {
        let mut drawn: Vec<f64> = (0..calls)
            .map(|call| self.at((call as f64 + 0.5) / calls as f64))
            .collect();
        // Fisher and Yates.
        for last in (1..calls).rev() {
            drawn.swap(last, rng.below(last + 1));
        }
        drawn
    }

    /// The quantile of the probability `p`.
    fn at(&self, p: f64) -> f64 {
        let above = self.knots.iter().position(|(at, _)| *at > p);
        let above = above.unwrap_or(self.knots.len() - 1).max(1);
        let ((low, a), (high, b)) = (self.knots[above - 1], self.knots[above]);
        a + (b - a) * (p - low) / (high - low)
    }
}

/// Adds the quantile at which slow calls begin: `slow_pct` of the calls take more than `slow_ms`. If the
/// neighbouring percentiles are far apart, hardly any call lies between them, so the quantile jumps there.
fn add_slow_calls(
    knots: &mut Vec<(f64, f64)>,
    slow_pct: Option<f64>,
    slow_ms: f64,
    far_percentiles: f64,
) {
    let Some(p) = slow_pct.map(|pct| 1.0 - pct / 100.0) else {
        return;
    };
    let at = knots.partition_point(|(known, _)| *known < p);
    let before = at.checked_sub(1).map(|before| knots[before]);
    let (Some((before, low)), Some((after, high))) = (before, knots.get(at).copied()) else {
        return;
    };
    let is_near = p - before < QUANTILE_JUMP || after - p < QUANTILE_JUMP;
    if is_near || low >= slow_ms || high <= slow_ms {
        return;
    }
    if high > far_percentiles * low {
        let half = QUANTILE_JUMP / 2.0;
        knots.splice(at..at, [(p - half, low), (p + half, high)]);
    } else {
        knots.insert(at, (p, slow_ms));
    }
}

/// Mean of a distribution from its quantiles.
fn area(knots: &[(f64, f64)]) -> f64 {
    knots
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_percentiles_of_the_stage() {
        let stage = StageSummary {
            mean_ms: Some(12.0),
            p50_ms: Some(10.0),
            p95_ms: Some(15.0),
            p99_ms: Some(60.0),
            ..StageSummary::default()
        };
        let times = Times::of(&stage, 3.0);
        let mut rng = Rng::new(1);
        let drawn = times.draw(20_000, &mut rng);
        let mut drawn: Vec<f64> = drawn.iter().map(|time| 12.0 * time).collect();
        drawn.sort_by(f64::total_cmp);

        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        assert!((mean / 12.0 - 1.0).abs() < 0.02, "{mean}");
        assert!(
            (drawn[10_000] / 10.0 - 1.0).abs() < 0.1,
            "{}",
            drawn[10_000]
        );
        assert!(
            (drawn[19_800] / 60.0 - 1.0).abs() < 0.2,
            "{}",
            drawn[19_800]
        );
    }

    #[test]
    fn a_slow_tail_does_not_change_the_times_of_other_calls() {
        // Of a hundred calls 92 take 26 ms and 8 take 200.
        let stage = StageSummary {
            mean_ms: Some(39.9),
            p50_ms: Some(26.0),
            p75_ms: Some(26.0),
            p90_ms: Some(26.0),
            p95_ms: Some(200.0),
            p99_ms: Some(200.0),
            slow_pct: Some(8.0),
            ..StageSummary::default()
        };
        let times = Times::of(&stage, 3.0);
        let mut rng = Rng::new(1);
        let drawn = times.draw(20_000, &mut rng);
        let drawn: Vec<f64> = drawn.iter().map(|time| 39.9 * time).collect();
        let share =
            |of: &dyn Fn(f64) -> bool| drawn.iter().filter(|ms| of(**ms)).count() as f64 / 20_000.0;

        assert!((share(&|ms| (25.0..28.0).contains(&ms)) - 0.9).abs() < 0.02);
        assert!((share(&|ms| ms > 78.0) - 0.08).abs() < 0.01);
    }

    #[test]
    fn without_percentiles_all_calls_take_the_same_time() {
        assert_eq!(Times::of(&StageSummary::default(), 3.0), Times::constant());
    }
}
