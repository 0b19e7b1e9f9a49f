//! Random step times of a run with a known fault or without a fault.

use headspace_agent::model::StepHistory;
use headspace_agent::model::StepSample;
use headspace_agent::model::step_history::NumberedStep;
use headspace_agent::statistics::bootstrap::Rng;

/// The fault of a run, or the noise of a healthy run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A stall every n steps. Now and then a stall is missing.
    Periodic,
    /// The same, counted from the start of each epoch.
    PeriodicInEpoch,
    /// From one step on, all steps are slower.
    Change,
    /// From one step on, most steps are slower. The other steps, one to eight in a row, are as before.
    MostlySlow,
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
    /// Rare stalls that cost less than 1 % of the time.
    RareStalls,
    /// Every 50th step is slightly slower, because it writes a log.
    Logging,
    /// The worker processes deliver their batches at the same time.
    WorkersInTurn,
    /// A slow wave of 3 %.
    Wave,
    /// From the start, most steps are slower than the others.
    TwoSpeeds,
    /// From one step on, the loop waits for most batches, while its compute becomes faster and slower by a third.
    WaitInNoise,
    /// Some steps, at random, are much slower, while the machine becomes faster and slower by a third now and then.
    OutliersAtVaryingSpeed,
    /// From one step on, all steps are much slower, while the machine becomes faster and slower by a third.
    ChangeAtVaryingSpeed,
    /// From one step on, every second, third or fourth step stalls.
    ShortPeriod,
}

impl Pattern {
    pub(crate) const FAULTS: [Self; 11] = [
        Self::Periodic,
        Self::ShortPeriod,
        Self::PeriodicInEpoch,
        Self::Change,
        Self::ChangeAtVaryingSpeed,
        Self::MostlySlow,
        Self::WaitInNoise,
        Self::SlowPart,
        Self::Drift,
        Self::Outliers,
        Self::OutliersAtVaryingSpeed,
    ];
    pub(crate) const HEALTHY: [Self; 8] = [
        Self::Noise,
        Self::SlowNoise,
        Self::HeavyTails,
        Self::RareStalls,
        Self::Logging,
        Self::WorkersInTurn,
        Self::Wave,
        Self::TwoSpeeds,
    ];
}

/// A run, and the truth about it.
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
    /// Duration of all steps, in seconds.
    pub(crate) seconds: f64,
    /// Seconds that the fault cost.
    pub(crate) cost_s: f64,
}

/// The numbers of a run that are drawn once.
struct Run {
    pattern: Pattern,
    steps: u64,
    base_ms: f64,
    /// Standard deviation of the noise, as a share of the step.
    spread: f64,
    period: u64,
    from: u64,
    to: u64,
    /// Duration of slow steps divided by that of the others.
    ratio: f64,
    /// Time lost by stalls, as a share of the other time.
    stall_cost: f64,
    outlier_share: f64,
    /// Share of slow steps after the change, if not all steps are slow.
    slow_share: f64,
    workers: u64,
    /// Steps of an epoch.
    epoch: u64,
    /// Correlation of the slow noise from step to step.
    persistence: f64,
}

struct Draw(Rng);

impl Draw {
    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.unit()
    }

    fn whole(&mut self, low: u64, high: u64) -> u64 {
        whole(self.uniform(low as f64, high as f64 + 1.0)).min(high)
    }

    /// A whole number with a uniform logarithm.
    fn scale(&mut self, low: f64, high: f64) -> u64 {
        whole(self.uniform(low.ln(), high.ln()).exp())
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.0.unit().max(1e-12), self.0.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and far below 2^64"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

impl Run {
    fn draw(pattern: Pattern, steps: Option<u64>, draw: &mut Draw) -> Self {
        let steps = steps.unwrap_or_else(|| draw.scale(1_000.0, 100_000.0));
        // This period gives at least ten stalls.
        let period = match pattern {
            Pattern::ShortPeriod => draw.whole(2, 4),
            _ => draw.scale(5.0, (steps as f64 / 15.0).min(1000.0)),
        };
        let share = |share: f64| whole(share * steps as f64);
        let from = match pattern {
            Pattern::Periodic => 20 + share(draw.uniform(0.0, 0.3)),
            Pattern::Change
            | Pattern::ChangeAtVaryingSpeed
            | Pattern::MostlySlow
            | Pattern::ShortPeriod
            | Pattern::WaitInNoise => share(draw.uniform(0.1, 0.9)),
            Pattern::TwoSpeeds => 0,
            Pattern::SlowPart => share(draw.uniform(0.1, 0.5)),
            _ => 20,
        };
        let to = match pattern {
            Pattern::SlowPart => from + share(draw.uniform(0.1, 0.4)),
            _ => steps,
        };
        Self {
            pattern,
            steps,
            base_ms: draw.uniform(5.0, 200.0),
            spread: draw.uniform(0.01, 0.2),
            period,
            from,
            to,
            ratio: match pattern {
                // If a slow phase ends at the change, the step still becomes a third longer: 1.8 / SLOWDOWN = 1.33.
                Pattern::ChangeAtVaryingSpeed => draw.uniform(1.8, 3.0),
                _ => draw.uniform(1.25, 3.0),
            },
            stall_cost: draw.uniform(0.05, 0.3),
            outlier_share: draw.uniform(0.005, 0.05),
            workers: draw.whole(2, 8),
            epoch: (period * draw.whole(3, 20) + draw.whole(1, period - 1)).min(steps / 3),
            persistence: draw.uniform(0.9, 0.999),
            slow_share: draw.uniform(0.65, 0.95),
        }
    }

    /// Number of steps from here on that are as fast as before, if only most are slow.
    fn draw_fast_steps(&self, draw: &mut Draw) -> u64 {
        const LONGEST: u64 = 8;
        let mean_length = f64::midpoint(1.0, LONGEST as f64);
        let begins = (1.0 - self.slow_share) / (self.slow_share * mean_length);
        if draw.0.unit() < begins {
            draw.whole(1, LONGEST)
        } else {
            0
        }
    }

    fn step_in_epoch(&self, step: u64) -> u64 {
        match self.pattern {
            Pattern::PeriodicInEpoch => step % self.epoch,
            _ => step,
        }
    }

    /// Length of a step without the fault, in milliseconds.
    fn usual_ms(&self, step: u64, slow_noise: f64, draw: &mut Draw) -> f64 {
        let ms = self.base_ms * (self.spread * draw.normal()).exp();
        match self.pattern {
            Pattern::SlowNoise => ms * (0.03 * slow_noise).exp(),
            Pattern::HeavyTails => {
                // Student's t with three degrees of freedom.
                let squares: f64 = (0..3).map(|_| draw.normal().powi(2)).sum();
                self.base_ms * (1.0 + 0.05 * (draw.normal() / (squares / 3.0).sqrt()).abs())
            }
            Pattern::RareStalls if draw.0.unit() < 0.001 => ms * draw.uniform(3.0, 10.0),
            Pattern::Logging if step.is_multiple_of(50) => ms * 1.15,
            Pattern::WorkersInTurn if step.is_multiple_of(self.workers) => {
                ms * self.workers as f64 * 0.8
            }
            Pattern::WorkersInTurn => ms * 0.2,
            Pattern::Wave => {
                let turns = 3.0 * step as f64 / self.steps as f64;
                ms * (1.0 + 0.03 * (std::f64::consts::TAU * turns).sin())
            }
            _ => ms,
        }
    }

    /// The time that the fault adds to a step, in milliseconds.
    fn lost_ms(&self, step: u64, usual_ms: f64, draw: &mut Draw) -> f64 {
        let stall_ms = |share: f64| (self.stall_cost / share).max(1.5) * self.base_ms;
        let per_period = 1.0 / self.period as f64;
        let inside = (self.from..self.to).contains(&step);
        match self.pattern {
            Pattern::Periodic | Pattern::ShortPeriod
                if inside
                    && (step - self.from).is_multiple_of(self.period)
                    && draw.0.unit() > 0.03 =>
            {
                stall_ms(per_period) * (0.1 * draw.normal()).exp()
            }
            Pattern::PeriodicInEpoch
                if self.step_in_epoch(step) % self.period == self.period - 1 =>
            {
                stall_ms(per_period) * (0.1 * draw.normal()).exp()
            }
            Pattern::Change
            | Pattern::ChangeAtVaryingSpeed
            | Pattern::MostlySlow
            | Pattern::WaitInNoise
            | Pattern::TwoSpeeds
            | Pattern::SlowPart
                if inside =>
            {
                usual_ms * (self.ratio - 1.0)
            }
            Pattern::Drift => usual_ms * (self.ratio - 1.0) * step as f64 / self.steps as f64,
            Pattern::Outliers | Pattern::OutliersAtVaryingSpeed
                if draw.0.unit() < self.outlier_share =>
            {
                stall_ms(self.outlier_share) * draw.uniform(0.5, 1.5)
            }
            _ => 0.0,
        }
    }
}

/// Factor by which steps are slower while another virtual machine works. Measured on a shared machine: 24 to 33 ms.
const SLOWDOWN: f64 = 1.35;

/// Another virtual machine on the same core. It works and rests in turn.
#[derive(Debug)]
struct Neighbour {
    works: bool,
    steps_left: u64,
    /// Limits of the number of steps for which it works or rests.
    lengths: (f64, f64),
}

impl Neighbour {
    fn new(lengths: (f64, f64)) -> Self {
        Self {
            works: false,
            steps_left: 0,
            lengths,
        }
    }

    /// Factor by which the next step is slower.
    fn slowdown(&mut self, draw: &mut Draw) -> f64 {
        if self.steps_left == 0 {
            self.works = !self.works;
            self.steps_left = draw.scale(self.lengths.0, self.lengths.1);
        }
        self.steps_left -= 1;
        if self.works { SLOWDOWN } else { 1.0 }
    }
}

/// A random run of a pattern. `steps` is drawn if it is `None`.
pub(crate) fn draw_case(pattern: Pattern, seed: u64, steps: Option<u64>) -> Case {
    let seed = seed.wrapping_mul(0x9E37_79B9).wrapping_add(pattern as u64);
    let mut draw = Draw(Rng::new(seed));
    let run = Run::draw(pattern, steps, &mut draw);
    let mut case = Case {
        history: StepHistory::default(),
        steps: run.steps,
        from: run.from,
        period: run.period,
        workers: (pattern == Pattern::WorkersInTurn).then_some(run.workers),
        seconds: 0.0,
        cost_s: 0.0,
    };
    let is_mixed = matches!(
        pattern,
        Pattern::MostlySlow | Pattern::WaitInNoise | Pattern::TwoSpeeds
    );
    let (mut slow_noise, mut to_ns, mut fast_steps) = (0.0, 0_u64, 0);
    let mut neighbour = match pattern {
        Pattern::WaitInNoise | Pattern::ChangeAtVaryingSpeed => Some(Neighbour::new((10.0, 150.0))),
        Pattern::OutliersAtVaryingSpeed => {
            let steps = run.steps as f64;
            Some(Neighbour::new((steps / 10.0, steps / 2.0)))
        }
        _ => None,
    };
    for step in 0..run.steps {
        let change = (1.0 - run.persistence * run.persistence).sqrt();
        slow_noise = run.persistence * slow_noise + change * draw.normal();
        let mut usual_ms = run.usual_ms(step, slow_noise, &mut draw);
        if let Some(neighbour) = &mut neighbour {
            usual_ms *= neighbour.slowdown(&mut draw);
        }
        let mut lost_ms = run.lost_ms(step, usual_ms, &mut draw);
        if is_mixed && fast_steps > 0 {
            (lost_ms, fast_steps) = (0.0, fast_steps - 1);
        } else if is_mixed && step >= run.from {
            fast_steps = run.draw_fast_steps(&mut draw);
        }
        case.cost_s += lost_ms / 1e3;
        case.seconds += (usual_ms + lost_ms) / 1e3;
        let nanos = whole((usual_ms + lost_ms) * 1e6);
        let wait_ns = match pattern {
            Pattern::WaitInNoise => whole((lost_ms + 0.05 * usual_ms) * 1e6).min(nanos),
            _ => nanos - nanos / 2,
        };
        to_ns += nanos;
        case.history.push(NumberedStep {
            step,
            step_in_epoch: run.step_in_epoch(step),
            to_ns,
            sample: StepSample {
                compute_ns: nanos - wait_ns,
                wait_ns,
            },
        });
    }
    case
}
