//! Counts over estimates whose truth is known.

/// Largest error of a right answer, in percentage points.
pub(crate) const TOLERANCE: f64 = 3.0;

/// Estimates in percentage points, compared with the truth.
#[derive(Default)]
pub(crate) struct Answers {
    count: u32,
    within: u32,
    covered: u32,
    error: f64,
    half_width: f64,
}

impl Answers {
    /// Adds an estimate: its error, whether its interval contains the truth, and half the width of the interval.
    pub(crate) fn add(&mut self, error: f64, is_covered: bool, half_width: f64) {
        self.count += 1;
        self.within += u32::from(error.abs() <= TOLERANCE);
        self.covered += u32::from(is_covered);
        self.error += error;
        self.half_width += half_width;
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / f64::from(self.count.max(1))
    }

    /// Share of answers within the tolerance.
    pub(crate) fn within_pct(&self) -> f64 {
        self.mean(100.0 * f64::from(self.within))
    }

    /// Share of intervals that contain the truth.
    pub(crate) fn covered_pct(&self) -> f64 {
        self.mean(100.0 * f64::from(self.covered))
    }

    pub(crate) fn mean_error(&self) -> f64 {
        self.mean(self.error)
    }

    pub(crate) fn mean_half_width(&self) -> f64 {
        self.mean(self.half_width)
    }
}
