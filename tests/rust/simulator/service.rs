//! Random durations: how long a thread of a stage, or the model, takes for one item.

use headspace_agent::statistics::bootstrap::Rng;

/// The shape of a distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Normal,
    LogNormal,
    Gamma,
    /// One item in eight is slow, such as a long clip or a file that is not cached.
    Bimodal,
    /// One item in forty is very slow, such as a retried request.
    Rare,
}

/// Random durations around a mean. Successive durations may be correlated.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// Nanoseconds, or a factor.
    pub(crate) mean: f64,
    /// Coefficient of variation: standard deviation divided by mean.
    pub(crate) cv: f64,
    shape: Shape,
    /// Correlation of the normal scores of successive items, in [0, 1).
    correlation: f64,
    /// Normal score of the previous item.
    score: f64,
}

impl Service {
    pub(crate) fn new(mean: f64, cv: f64, shape: Shape, correlation: f64) -> Self {
        Self {
            mean,
            cv,
            shape,
            correlation,
            score: 0.0,
        }
    }

    pub(crate) fn constant(mean: f64) -> Self {
        Self::new(mean, 0.0, Shape::Normal, 0.0)
    }

    /// The next duration.
    pub(crate) fn sample(&mut self, rng: &mut Rng) -> f64 {
        if self.cv == 0.0 {
            return self.mean;
        }
        // A Gaussian copula: the normal scores are correlated, and then converted to the shape.
        let fresh = (1.0 - self.correlation * self.correlation).sqrt() * rng.normal();
        self.score = self.correlation * self.score + fresh;
        self.mean * self.shaped(self.score)
    }

    /// Converts a normal score to a value of the shape with mean 1.
    fn shaped(&self, score: f64) -> f64 {
        let cv = self.cv;
        match self.shape {
            Shape::Normal => (1.0 + cv * score).max(0.05),
            Shape::LogNormal => {
                let variance = (1.0 + cv * cv).ln();
                (variance.sqrt() * score - variance / 2.0).exp()
            }
            // Wilson and Hilferty: the cube of a normal variable is approximately gamma distributed.
            Shape::Gamma => {
                let variance = cv * cv / 9.0;
                (1.0 - variance + variance.sqrt() * score).max(0.05).powi(3)
            }
            Shape::Bimodal => {
                // One normal score in eight exceeds 1.1503.
                let spread = cv / (0.125_f64 * 0.875).sqrt();
                if score > 1.1503 {
                    1.0 + 0.875 * spread
                } else {
                    1.0 - 0.125 * spread
                }
            }
            Shape::Rare => {
                // One normal score in forty exceeds 1.96.
                let spread = cv / (0.025_f64 * 0.975).sqrt();
                if score > 1.96 {
                    1.0 + 0.975 * spread
                } else {
                    (1.0 - 0.025 * spread).max(0.05)
                }
            }
        }
    }
}
