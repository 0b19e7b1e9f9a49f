//! The live steps of a loop over time, in bounded memory: their mean in buckets, and each recent stall.
//!
//! A stall is one to seven neighbouring steps that are each far slower than usual. More slow steps in a row are
//! no stall: the usual step has changed. Consecutive steps shorter than 10 µs are combined until they last at least
//! 10 µs together. The search for stalls treats them as one step. No training step is that short, and a loop that only
//! iterates costs less to watch.
//!
//! Far slower than usual means at least half as long again as the median, and beyond the upper quartile by
//! one and a half times the distance of the quartiles, on a logarithmic scale (Tukey, "Exploratory Data
//! Analysis", 1977). The quartiles follow the steps by stochastic approximation (Robbins and Monro, Annals of
//! Mathematical Statistics 22, 1951).

use std::collections::VecDeque;

use super::bounded::push_bounded;
use super::bounded_series::BoundedSeries;
use super::step_series::StepSample;

/// Maximum number of buckets. At least half are in use, so an onset is known within 0.4 % of the steps.
const BUCKETS: usize = 512;

/// Number of stalls that are kept (56 KiB).
const STALLS: usize = 1024;

/// Shorter steps are combined until they last this long, in nanoseconds.
const MIN_UNIT_NS: u64 = 10_000;

/// Number of slow steps in a row that are a new level.
const NEW_LEVEL: usize = 8;

/// Number of steps from which the first quartiles are computed.
const FIRST: usize = 16;

/// A stall takes at least this multiple of the usual step.
const MIN_SLOW: f64 = 1.5;

/// Bounds of the relative change of a quartile with each step. The change is large at first.
const RATES: (f64, f64) = (0.005, 0.05);

/// Weight of a step in the usual wait.
const WAIT_WEIGHT: f64 = 0.02;

/// The live steps of one loop.
#[derive(Debug, Clone)]
pub struct StepHistory {
    usual: Usual,
    buckets: BoundedSeries<StepBucket>,
    stalls: VecDeque<Stall>,
    /// Slow steps in a row up to now, and the number of steps and the excess of each unit.
    open: Option<(Stall, Vec<(u64, u64)>)>,
    /// Short steps that are combined.
    unit: Unit,
}

/// One step, or short steps that are combined.
#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    steps: StepBucket,
    /// Number of the first step, counted from the start of the epoch.
    step_in_epoch: u64,
}

impl Default for StepHistory {
    fn default() -> Self {
        Self {
            usual: Usual::default(),
            buckets: BoundedSeries::new(BUCKETS),
            stalls: VecDeque::new(),
            open: None,
            unit: Unit::default(),
        }
    }
}

/// Neighbouring steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepBucket {
    /// Number of the first step. The batches of a loop are numbered from 0.
    pub first_step: u64,
    /// Number of steps.
    pub steps: u64,
    /// Start of the first step, in nanoseconds of the run's clock.
    pub from_ns: u64,
    /// Total duration of the steps in nanoseconds.
    pub step_ns: u64,
    /// Total wait in nanoseconds.
    pub wait_ns: u64,
    /// Time by which the stalls exceed the usual step, in nanoseconds.
    pub stall_excess_ns: u64,
}

impl StepBucket {
    /// Mean step without the excess of stalls, in nanoseconds.
    pub fn usual_step_ns(&self) -> f64 {
        self.usual_ns() / self.steps.max(1) as f64
    }

    /// Total duration of the steps without the excess of stalls, in nanoseconds.
    pub fn usual_ns(&self) -> f64 {
        self.step_ns.saturating_sub(self.stall_excess_ns) as f64
    }

    /// Adds the bucket that follows.
    pub(crate) fn merge(&mut self, later: Self) {
        self.steps += later.steps;
        self.step_ns += later.step_ns;
        self.wait_ns += later.wait_ns;
        self.stall_excess_ns += later.stall_excess_ns;
    }
}

/// Neighbouring steps that are far slower than usual.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stall {
    /// Number of the first of its steps.
    pub step: u64,
    /// The same, counted from the start of the epoch.
    pub step_in_epoch: u64,
    /// Number of its steps.
    pub steps: u64,
    /// Start in nanoseconds of the run's clock.
    pub from_ns: u64,
    /// End in nanoseconds of the run's clock.
    pub to_ns: u64,
    /// Time by which its steps exceed the usual step, in nanoseconds.
    pub excess_ns: u64,
    /// Part of that time in which the loop waited for data, in nanoseconds.
    pub wait_excess_ns: u64,
}

/// A step with its numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NumberedStep {
    /// Number of the step. The batches of a loop are numbered from 0.
    pub step: u64,
    /// The same, counted from the start of the epoch.
    pub step_in_epoch: u64,
    /// End of the step in nanoseconds of the run's clock.
    pub to_ns: u64,
    /// Its two parts.
    pub sample: StepSample,
}

impl NumberedStep {
    fn begin_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.sample.step_ns())
    }
}

impl StepHistory {
    /// Adds the next live step.
    #[inline]
    pub fn push(&mut self, step: NumberedStep) {
        let unit = &mut self.unit.steps;
        if unit.steps == 0 {
            unit.first_step = step.step;
            unit.from_ns = step.begin_ns();
            self.unit.step_in_epoch = step.step_in_epoch;
        }
        unit.steps += 1;
        unit.step_ns = unit.step_ns.saturating_add(step.sample.step_ns());
        unit.wait_ns = unit.wait_ns.saturating_add(step.sample.wait_ns);
        if unit.step_ns >= MIN_UNIT_NS {
            let unit = std::mem::take(&mut self.unit);
            self.add(unit, step.to_ns);
        }
    }

    fn add(&mut self, unit: Unit, to_ns: u64) {
        let (step, wait) = (unit.steps.step_ns as f64, unit.steps.wait_ns as f64);
        let is_slow = self.usual.is_slow(step);
        if !is_slow {
            self.end_stall();
        }
        self.buckets.push(unit.steps, 1.0, StepBucket::merge);
        if is_slow {
            self.extend_stall(unit, to_ns);
        }
        self.usual.add(step, wait);
    }

    /// Duration of the shortest step that is far slower than usual, in nanoseconds. `None` before the first ones.
    pub fn slow_step_ns(&self) -> Option<f64> {
        self.usual.quartiles.map(slow_from)
    }

    /// The steps in buckets, in order.
    pub fn buckets(&self) -> &[StepBucket] {
        self.buckets.buckets()
    }

    /// The last stalls, in order.
    pub fn stalls(&self) -> impl Iterator<Item = &Stall> {
        self.stalls.iter()
    }

    fn extend_stall(&mut self, unit: Unit, to_ns: u64) {
        let steps = unit.steps;
        let (excess_ns, wait_excess_ns) = self.usual.excess(steps);
        let (stall, excesses) = self.open.get_or_insert_with(|| {
            let stall = Stall {
                step: steps.first_step,
                step_in_epoch: unit.step_in_epoch,
                from_ns: steps.from_ns,
                ..Stall::default()
            };
            (stall, Vec::new())
        });
        excesses.push((steps.steps, excess_ns));
        stall.steps += steps.steps;
        stall.to_ns = to_ns;
        stall.excess_ns += excess_ns;
        stall.wait_excess_ns += wait_excess_ns;
        if excesses.len() == NEW_LEVEL {
            self.open = None;
            self.usual.begin_again();
        }
    }

    fn end_stall(&mut self) {
        let Some((stall, excesses)) = self.open.take() else {
            return;
        };
        // The last bucket holds the last step of the stall, and earlier ones may hold the others.
        let mut excesses = excesses.into_iter().rev().peekable();
        for bucket in self.buckets.buckets_mut().iter_mut().rev() {
            let mut steps = 0;
            while steps < bucket.steps
                && let Some((of_unit, excess_ns)) = excesses.next()
            {
                steps += of_unit;
                bucket.stall_excess_ns += excess_ns;
            }
            if excesses.peek().is_none() {
                break;
            }
        }
        push_bounded(&mut self.stalls, stall, STALLS);
    }
}

/// The duration from which on a step is far slower than usual.
fn slow_from([low, median, high]: [f64; 3]) -> f64 {
    let ratio = high / low;
    // The quartiles' distance, once and half again, on a logarithmic scale.
    (high * ratio * ratio.sqrt()).max(MIN_SLOW * median)
}

/// The usual step.
#[derive(Debug, Clone, Default)]
struct Usual {
    /// The last steps in nanoseconds, until the quartiles are known.
    first: Vec<f64>,
    /// Quartiles in nanoseconds; none before [`FIRST`] steps.
    quartiles: Option<[f64; 3]>,
    /// Number of steps since the quartiles are known.
    steps: u64,
    /// Mean wait of the steps below [`MIN_SLOW`] times the median, in nanoseconds.
    wait: f64,
}

impl Usual {
    fn is_slow(&self, step: f64) -> bool {
        self.quartiles.is_some_and(|quartiles| {
            // Nearly all steps fail the first condition, which is the cheaper one.
            step > MIN_SLOW * quartiles[1] && step > slow_from(quartiles)
        })
    }

    /// Time by which a slow step exceeds the usual one, and how much of it the loop waited.
    fn excess(&self, steps: StepBucket) -> (u64, u64) {
        let usual = self.quartiles.map_or(0.0, |[_, median, _]| median);
        let excess = (steps.step_ns as f64 - usual).max(0.0);
        let wait = (steps.wait_ns as f64 - self.wait).clamp(0.0, excess);
        (nanos(excess), nanos(wait))
    }

    fn add(&mut self, step: f64, wait: f64) {
        let step = step.max(1.0);
        let Some(quartiles) = &mut self.quartiles else {
            self.first.push(step);
            self.wait += wait / FIRST as f64;
            if self.first.len() == FIRST {
                self.first.sort_by(f64::total_cmp);
                let at = |quarter: usize| self.first[quarter * FIRST / 4];
                self.quartiles = Some([at(1), at(2), at(3)]);
                self.first.clear();
            }
            return;
        };
        let slow = step > MIN_SLOW * quartiles[1];
        self.steps += 1;
        let rate = (1.0 / self.steps as f64).clamp(RATES.0, RATES.1);
        for (quartile, share) in quartiles.iter_mut().zip([0.25, 0.5, 0.75]) {
            let (down, up) = (1.0 - rate * (1.0 - share), 1.0 + rate * share);
            *quartile *= if step < *quartile { down } else { up };
        }
        if !slow {
            self.wait += WAIT_WEIGHT * (wait - self.wait);
        }
    }

    /// Learns the usual step from the next steps.
    fn begin_again(&mut self) {
        *self = Self::default();
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and far below 2^64"
)]
fn nanos(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of the given milliseconds, all of it wait.
    fn history(steps: impl IntoIterator<Item = u64>) -> StepHistory {
        let mut history = StepHistory::default();
        let mut to_ns = 0;
        for (step, ms) in (0..).zip(steps) {
            to_ns += ms * 1_000_000;
            history.push(NumberedStep {
                step,
                step_in_epoch: step,
                to_ns,
                sample: StepSample {
                    compute_ns: 0,
                    wait_ns: ms * 1_000_000,
                },
            });
        }
        history
    }

    #[test]
    fn a_slow_step_is_a_stall_with_its_number_and_its_excess() {
        let history = history((0..200).map(|step| if step == 150 { 60 } else { 10 }));

        let [stall] = history.stalls().collect::<Vec<_>>()[..] else {
            panic!("{:?}", history.stalls);
        };
        assert_eq!((stall.step, stall.steps), (150, 1));
        assert_eq!(stall.to_ns - stall.from_ns, 60_000_000);
        assert!(
            (49_000_000..51_000_000).contains(&stall.excess_ns),
            "{stall:?}"
        );
        assert!(stall.wait_excess_ns >= 49_000_000, "{stall:?}");
    }

    #[test]
    fn slow_steps_that_last_are_a_new_level_and_no_stall() {
        let history = history((0..400).map(|step| if step < 200 { 10 } else { 30 }));

        assert_eq!(history.stalls().count(), 0);
    }

    #[test]
    fn the_excess_of_a_stall_of_seven_steps_is_spread_over_its_seven_buckets() {
        let history =
            history((0..200).map(|step| if (100..107).contains(&step) { 40 } else { 10 }));

        for bucket in history.buckets() {
            let usual_ms = bucket.usual_step_ns() / 1e6;
            assert!((9.0..11.0).contains(&usual_ms), "{bucket:?}");
        }
    }

    #[test]
    fn steps_that_are_too_short_are_combined() {
        let mut history = StepHistory::default();
        for step in 0..1000 {
            history.push(NumberedStep {
                step,
                step_in_epoch: step,
                to_ns: (step + 1) * 1000,
                sample: StepSample {
                    compute_ns: 600,
                    wait_ns: 400,
                },
            });
        }

        let buckets = history.buckets();
        assert_eq!(buckets.len(), 100);
        assert!(
            buckets
                .iter()
                .all(|b| (b.steps, b.step_ns, b.wait_ns) == (10, 10_000, 4_000))
        );
        assert_eq!((buckets[1].first_step, buckets[1].from_ns), (10, 10_000));
    }

    #[test]
    fn noisy_steps_are_no_stalls() {
        // From 5 to 30 ms, in an order without a pattern.
        let history = history((0..5000_u64).map(|step| 5 + (step * step * 7919) % 26));

        assert_eq!(history.stalls().count(), 0);
    }

    #[test]
    fn buckets_hold_all_steps_and_the_excess_of_all_stalls() {
        let history = history((0..100_000).map(|step| if step % 50 == 49 { 60 } else { 10 }));

        let buckets = history.buckets();
        assert!(buckets.len() <= BUCKETS);
        assert_eq!(buckets.iter().map(|b| b.steps).sum::<u64>(), 100_000);
        assert_eq!(history.stalls().count(), STALLS);
        let excess_s = buckets
            .iter()
            .map(|b| b.stall_excess_ns as f64 / 1e9)
            .sum::<f64>();
        assert!((99.0..100.1).contains(&excess_s), "{excess_s}");
    }
}
