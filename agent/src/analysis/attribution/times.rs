//! How long one call takes compared with the mean: a distribution from four percentiles.

use crate::analysis::bootstrap::Rng;
use crate::model::record::StageSummary;

/// Quantiles of a call's time over its mean, straight lines between them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Times {
    /// Probability and value, both rising.
    knots: [(f64, f64); 6],
}

impl Times {
    /// Every call alike.
    pub(super) fn constant() -> Self {
        let at = |p| (p, 1.0);
        Self {
            knots: [at(0.0), at(0.05), at(0.5), at(0.95), at(0.99), at(1.0)],
        }
    }

    /// Around a mean with a coefficient of variation, as if normal.
    pub(super) fn around(cv: f64) -> Self {
        let at = |p: f64, z: f64| (p, (1.0 + cv.clamp(0.0, 0.6) * z).max(0.02));
        Self {
            knots: [
                at(0.0, -2.2),
                at(0.05, -1.645),
                at(0.5, 0.0),
                at(0.95, 1.645),
                at(0.99, 2.326),
                at(1.0, 3.0),
            ],
        }
        .of_mean_one()
    }

    /// As the percentiles of a stage say. What lies above the last of them makes up the mean.
    pub(super) fn of(stage: &StageSummary) -> Self {
        let (Some(mean), Some(p50), Some(p95), Some(p99)) =
            (stage.mean_ms, stage.p50_ms, stage.p95_ms, stage.p99_ms)
        else {
            return Self::constant();
        };
        if mean <= 0.0 || p50 <= 0.0 || p95 < p50 || p99 < p95 {
            return Self::constant();
        }
        // Below the median as far as above it, on a scale of ratios.
        let below = |q: f64| p50 * p50 / q;
        let mut knots = [
            (0.0, below(p99)),
            (0.05, below(p95)),
            (0.5, p50),
            (0.95, p95),
            (0.99, p99),
            (1.0, p99),
        ];
        let missing = (mean - area(&knots)).max(0.0);
        // A triangle over the last hundredth.
        knots[5].1 = (p99 + missing / 0.005).min(100.0 * mean);
        Self { knots }.of_mean_one()
    }

    fn of_mean_one(mut self) -> Self {
        let mean = area(&self.knots);
        for (_, value) in &mut self.knots {
            *value /= mean;
        }
        self
    }

    /// One call's time over the mean.
    pub(super) fn draw(&self, rng: &mut Rng) -> f64 {
        let p = rng.unit();
        let above = self
            .knots
            .iter()
            .position(|(at, _)| *at > p)
            .unwrap_or(5)
            .max(1);
        let ((low, a), (high, b)) = (self.knots[above - 1], self.knots[above]);
        a + (b - a) * (p - low) / (high - low)
    }
}

/// Mean of a distribution given by quantiles.
fn area(knots: &[(f64, f64); 6]) -> f64 {
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
        let times = Times::of(&stage);
        let mut rng = Rng::new(1);
        let mut drawn: Vec<f64> = (0..20_000).map(|_| 12.0 * times.draw(&mut rng)).collect();
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
    fn without_percentiles_every_call_is_alike() {
        assert_eq!(Times::of(&StageSummary::default()), Times::constant());
    }
}
