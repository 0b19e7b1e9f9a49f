//! The steps of one loop and phase over a run, in bounded memory.
//!
//! To find the steady state, the analysis needs the early steps in order, because they include the warm-up.
//! So early steps are kept individually, and later steps as a distribution. A
//! [`BoundedSeries`](super::BoundedSeries) would merge the early steps too.

use super::distribution::Distribution;

/// Number of steps that are kept individually (64 KiB).
pub const EARLY: usize = 4096;

/// The two parts of a step, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepSample {
    /// Time from the receipt of a batch to the request for the next.
    pub compute_ns: u64,
    /// Time from the request for that next batch to its receipt.
    pub wait_ns: u64,
}

impl StepSample {
    /// Time from the receipt of a batch to the receipt of the next.
    pub fn step_ns(self) -> u64 {
        self.compute_ns.saturating_add(self.wait_ns)
    }
}

/// The steps of one loop and phase, in order.
#[derive(Debug, Clone, Default)]
pub struct StepSeries {
    early: Vec<StepSample>,
    late: Totals,
}

/// Totals of a set of steps, without their order.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Durations of whole steps.
    pub step: Distribution,
    /// Sum of the waits of these steps in nanoseconds.
    pub wait_ns: u64,
}

impl Totals {
    fn add(&mut self, sample: StepSample) {
        self.step.record(sample.step_ns());
        self.wait_ns = self.wait_ns.saturating_add(sample.wait_ns);
    }

    /// Mean step in milliseconds; `None` without steps.
    pub fn step_ms(&self) -> Option<f64> {
        self.step.mean_ms()
    }

    /// Mean wait in milliseconds; `None` without steps.
    pub fn wait_ms(&self) -> Option<f64> {
        (!self.step.is_empty()).then(|| self.wait_ns as f64 / self.step.count() as f64 / 1e6)
    }
}

impl StepSeries {
    /// Appends a step.
    pub fn push(&mut self, sample: StepSample) {
        if self.early.len() < EARLY {
            self.early.push(sample);
        } else {
            self.late.add(sample);
        }
    }

    /// The first steps, at most [`EARLY`], in order.
    pub fn early(&self) -> &[StepSample] {
        &self.early
    }

    /// Number of steps.
    pub fn len(&self) -> u64 {
        self.early.len() as u64 + self.late.step.count()
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.early.is_empty()
    }

    /// Totals of all steps after the first `skip`, which is at most [`EARLY`].
    pub fn totals_after(&self, skip: usize) -> Totals {
        let mut totals = self.late.clone();
        for &sample in self.early.iter().skip(skip) {
            totals.add(sample);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_steps_count_although_they_are_not_kept_individually() {
        let mut series = StepSeries::default();
        for _ in 0..EARLY + 100 {
            series.push(StepSample {
                compute_ns: 3_000_000,
                wait_ns: 1_000_000,
            });
        }

        let totals = series.totals_after(20);

        assert_eq!(series.early().len(), EARLY);
        assert_eq!(series.len(), EARLY as u64 + 100);
        assert_eq!(totals.step.count(), EARLY as u64 + 80);
        assert_eq!(totals.step_ms(), Some(4.0));
        assert_eq!(totals.wait_ms(), Some(1.0));
    }
}
