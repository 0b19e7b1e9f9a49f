//! Random step times of a run with a known fault, or with none.

use headspace_agent::model::StepHistory;
use headspace_agent::model::StepSample;
use headspace_agent::model::step_history::NumberedStep;
use headspace_agent::statistics::bootstrap::Rng;

/// What is wrong with a run, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A stall every n steps, now and then left out.
    Periodic,
    /// The same, counted from the begin of each epoch.
    PeriodicInEpoch,
    /// From one step on, all steps are slower.
    Change,
    /// The steps are slower for a part of the run.
    SlowPart,
    /// The steps become slower and slower.
    Drift,
    /// Some steps, at random, are much slower.
    Outliers,
    /// Independent noise.
    Noise,
    /// Noise that lasts for up to a thousand steps.
    SlowNoise,
    /// Noise with heavy tails.
    HeavyTails,
    /// Rare stalls that cost less than a hundredth of the time.
    RareStalls,
    /// Every 50th step is slightly slower: it logs.
    Logging,
    /// Batches of worker processes come together.
    WorkersInTurn,
    /// A slow wave of 3 %.
    Wave,
}

impl Pattern {
    pub(crate) const FAULTS: [Self; 6] = [
        Self::Periodic,
        Self::PeriodicInEpoch,
        Self::Change,
        Self::SlowPart,
        Self::Drift,
        Self::Outliers,
    ];
    pub(crate) const HEALTHY: [Self; 7] = [
        Self::Noise,
        Self::SlowNoise,
        Self::HeavyTails,
        Self::RareStalls,
        Self::Logging,
        Self::WorkersInTurn,
        Self::Wave,
    ];
}

/// A run, and what is true about it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) history: StepHistory,
    pub(crate) steps: u64,
    /// First slow step.
    pub(crate) from: u64,
    /// Steps from one stall to the next.
    pub(crate) period: u64,
    /// Number of worker processes.
    pub(crate) workers: Option<u64>,
    /// Seconds of all steps.
    pub(crate) seconds: f64,
    /// Seconds that the fault cost.
    pub(crate) cost_s: f64,
}

struct Draw(Rng);

impl Draw {
    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.unit()
    }

    fn whole(&mut self, low: u64, high: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small"
        )]
        let value = self.uniform(low as f64, high as f64 + 1.0) as u64;
        value.min(high)
    }

    /// A whole number with a uniform logarithm.
    fn scale(&mut self, low: f64, high: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small"
        )]
        let value = self.uniform(low.ln(), high.ln()).exp() as u64;
        value
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.0.unit().max(1e-12), self.0.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

/// A random run of a pattern. `steps` is drawn if it is `None`.
pub(crate) fn draw_case(pattern: Pattern, seed: u64, steps: Option<u64>) -> Case {
    let mut draw = Draw(Rng::new(
        seed.wrapping_mul(0x9E37_79B9).wrapping_add(pattern as u64),
    ));
    let steps = steps.unwrap_or_else(|| draw.scale(1_000.0, 100_000.0));
    let base_ms = draw.uniform(5.0, 200.0);
    let spread = draw.uniform(0.01, 0.2);
    // At least ten stalls.
    let period = draw.scale(5.0, (steps as f64 / 15.0).min(1000.0));
    let from_share = draw.uniform(0.0, 0.3);
    let from = match pattern {
        Pattern::Periodic => 20 + (from_share * steps as f64) as u64,
        Pattern::Change | Pattern::SlowPart => {
            (draw.uniform(0.1, if pattern == Pattern::Change { 0.9 } else { 0.5 }) * steps as f64)
                as u64
        }
        _ => 20,
    };
    let to = match pattern {
        Pattern::SlowPart => from + (draw.uniform(0.1, 0.4) * steps as f64) as u64,
        _ => steps,
    };
    let ratio = draw.uniform(1.25, 3.0);
    // Share of the time that stalls take, and so their size.
    let stall_cost = draw.uniform(0.05, 0.3);
    let workers = draw.whole(2, 8);
    let outlier_share = draw.uniform(0.005, 0.05);
    let epoch = (period * draw.whole(3, 20) + draw.whole(1, period - 1)).min(steps / 3);
    let persistence = draw.uniform(0.9, 0.999);
    let stall_ms = |share: f64| (stall_cost * base_ms / share).max(1.5 * base_ms);
    let mut case = Case {
        history: StepHistory::default(),
        steps,
        from,
        period: if pattern == Pattern::Logging {
            50
        } else {
            period
        },
        workers: (pattern == Pattern::WorkersInTurn).then_some(workers),
        seconds: 0.0,
        cost_s: 0.0,
    };
    let (mut slow_noise, mut to_ns) = (0.0, 0_u64);
    for step in 0..steps {
        let mut ms = base_ms * (spread * draw.normal()).exp();
        slow_noise =
            persistence * slow_noise + (1.0 - persistence * persistence).sqrt() * draw.normal();
        let inside = (from..to).contains(&step);
        let in_epoch = if pattern == Pattern::PeriodicInEpoch {
            step % epoch
        } else {
            step
        };
        let mut lost = 0.0;
        match pattern {
            Pattern::Periodic if inside && (step - from) % period == 0 && draw.0.unit() > 0.03 => {
                lost = stall_ms(1.0 / period as f64) * (0.1 * draw.normal()).exp();
            }
            Pattern::PeriodicInEpoch if in_epoch % period == period - 1 => {
                lost = stall_ms(1.0 / period as f64) * (0.1 * draw.normal()).exp();
            }
            Pattern::Change | Pattern::SlowPart if inside => lost = ms * (ratio - 1.0),
            Pattern::Drift => lost = ms * (ratio - 1.0) * step as f64 / steps as f64,
            Pattern::Outliers if draw.0.unit() < outlier_share => {
                lost = stall_ms(outlier_share) * draw.uniform(0.5, 1.5);
            }
            Pattern::SlowNoise => ms *= (0.03 * slow_noise).exp(),
            Pattern::HeavyTails => {
                // Student's t with three degrees of freedom.
                let squares: f64 = (0..3).map(|_| draw.normal().powi(2)).sum();
                ms = base_ms * (1.0 + 0.05 * (draw.normal() / (squares / 3.0).sqrt()).abs());
            }
            Pattern::RareStalls if draw.0.unit() < 0.001 => ms *= draw.uniform(3.0, 10.0),
            Pattern::Logging if step % 50 == 0 => ms *= 1.15,
            Pattern::WorkersInTurn => {
                ms *= if step % workers == 0 {
                    workers as f64 * 0.8
                } else {
                    0.2
                };
            }
            Pattern::Wave => {
                let turns = 3.0 * step as f64 / steps as f64;
                ms *= 1.0 + 0.03 * (std::f64::consts::TAU * turns).sin();
            }
            _ => {}
        }
        case.cost_s += lost / 1e3;
        case.seconds += (ms + lost) / 1e3;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive"
        )]
        let nanos = ((ms + lost) * 1e6) as u64;
        to_ns += nanos;
        case.history.push(NumberedStep {
            step,
            step_in_epoch: in_epoch,
            to_ns,
            sample: StepSample {
                compute_ns: nanos / 2,
                wait_ns: nanos - nanos / 2,
            },
        });
    }
    case
}
