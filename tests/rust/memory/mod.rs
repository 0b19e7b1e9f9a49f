//! Random time series of a process's memory with known growth.

use std::f64::consts::TAU;

use headspace_agent::statistics::bootstrap::Rng;

/// How the memory changes over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// Steady growth, with noise of up to a fifth of the growth.
    Leak,
    /// The same, plus a sawtooth of up to two fifths of the growth.
    LeakUnderSawtooth,
    /// The same as a leak, with noise that lasts for several points.
    LeakInSlowNoise,
    /// A leak with constant growth per step, while the speed of training changes by up to a third for many points.
    LeakAtVaryingSpeed,
    /// The smallest leak that must be found: 20 MiB over 20 points, with noise of up to ±3 MiB.
    SmallLeak,
    /// The same under a sawtooth of up to 6 MiB.
    SmallLeakUnderSawtooth,
    /// Constant, with noise.
    Noise,
    /// The same, with noise that lasts for several points.
    SlowNoise,
    /// Allocates and frees with a period that occurs at least twice.
    Sawtooth,
    /// The same with teeth of different lengths.
    UnevenSawtooth,
    /// Waves whose period occurs at least twice.
    Wave,
    /// Growth that ends in the first two thirds.
    Plateau,
    /// The same, but growth ends between 66 and 85 % of the time, as for a large buffer that fills. In much noise, or
    /// with few points, it cannot be distinguished from a leak.
    LatePlateau,
    /// A warm-up that saturates, with a time constant of up to a third of the series.
    Saturation,
    /// One or two steps up.
    Steps,
    /// A steady decrease.
    Fall,
    /// A slower saturation, which cannot be distinguished from a leak.
    SlowSaturation,
    /// A random walk, which cannot be distinguished from a leak.
    Walk,
}

impl Pattern {
    /// Leaks. They must be found.
    pub(crate) const LEAKS: [Self; 6] = [
        Self::Leak,
        Self::LeakUnderSawtooth,
        Self::LeakInSlowNoise,
        Self::LeakAtVaryingSpeed,
        Self::SmallLeak,
        Self::SmallLeakUnderSawtooth,
    ];

    /// Patterns that must not be called a leak.
    pub(crate) const OTHERS: [Self; 9] = [
        Self::Noise,
        Self::SlowNoise,
        Self::Sawtooth,
        Self::UnevenSawtooth,
        Self::Wave,
        Self::Plateau,
        Self::Saturation,
        Self::Steps,
        Self::Fall,
    ];

    /// Patterns that are counted but not judged.
    pub(crate) const HARD: [Self; 3] = [Self::LatePlateau, Self::SlowSaturation, Self::Walk];
}

/// One series of memory readings.
pub(crate) struct Case {
    /// Steps and bytes.
    pub(crate) points: Vec<(f64, f64)>,
    /// True growth in bytes per step; 0 if the pattern is not a leak.
    pub(crate) truth: f64,
}

const MIB: f64 = 1_048_576.0;

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// A log-uniform random number: a value between 1 and 2 is as likely as one between 10 and 20.
fn scaled(rng: &mut Rng, low: f64, high: f64) -> f64 {
    between(rng, low.ln(), high.ln()).exp()
}

fn coin(rng: &mut Rng) -> bool {
    rng.unit() < 0.5
}

/// Independent noise of this standard deviation: uniform, normal, or normal with rare spikes upwards.
fn noise(rng: &mut Rng, count: usize, deviation: f64) -> Vec<f64> {
    let kind = rng.below(3);
    (0..count)
        .map(|_| {
            let bell = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
            let spike = if rng.unit() < 0.03 { 20.0 } else { 0.0 };
            deviation
                * match kind {
                    0 => (rng.unit() - 0.5) * 12_f64.sqrt(),
                    1 => bell,
                    _ => bell + spike * rng.unit(),
                }
        })
        .collect()
}

/// Autocorrelated noise (an autoregression of the first order).
fn slow_noise(rng: &mut Rng, count: usize, deviation: f64, correlation: f64) -> Vec<f64> {
    let mut level = 0.0;
    let fresh = (1.0 - correlation * correlation).sqrt() * deviation;
    // The first 100 values are dropped, so that the start has no influence.
    let all = (0..count + 100).map(|_| {
        let bell = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        level = correlation * level + fresh * bell;
        level
    });
    all.skip(100).collect()
}

/// A sawtooth of height 1 with a mean period of `period` points.
fn sawtooth(rng: &mut Rng, count: usize, period: f64, uneven: f64) -> Vec<f64> {
    let mut phase = rng.unit();
    let mut current = period;
    let falling = rng.unit() < 0.2;
    (0..count)
        .map(|_| {
            let value = if falling { 1.0 - phase } else { phase };
            phase += 1.0 / current;
            if phase >= 1.0 {
                phase = phase.fract();
                current = period * between(rng, 1.0 - uneven, 1.0 + uneven);
            }
            value
        })
        .collect()
}

/// Adds a function of the index to the values.
fn add(mut values: Vec<f64>, term: &dyn Fn(usize) -> f64) -> Vec<f64> {
    for (at, value) in values.iter_mut().enumerate() {
        *value += term(at);
    }
    values
}

/// Parameters that are the same for all patterns of one seed. Sizes are in MiB.
struct Frame {
    /// Number of points.
    count: usize,
    /// Size of the change of memory.
    size: f64,
    /// Points per period, for periodic patterns.
    period: f64,
}

impl Frame {
    /// The index as a share of the series.
    fn share(&self, at: usize) -> f64 {
        at as f64 / self.count as f64
    }

    /// Noise that is small compared with the size of the change.
    fn quiet(&self, rng: &mut Rng) -> Vec<f64> {
        let deviation = scaled(rng, 0.002, 0.1) * self.size;
        noise(rng, self.count, deviation)
    }

    fn leak(&self, pattern: Pattern, rng: &mut Rng) -> Vec<f64> {
        match pattern {
            Pattern::Leak => add(self.quiet(rng), &|at| self.size * self.share(at)),
            Pattern::LeakUnderSawtooth => {
                let height = between(rng, 0.05, 0.4) * self.size;
                let uneven = if coin(rng) { 0.3 } else { 0.0 };
                let saw = sawtooth(rng, self.count, self.period, uneven);
                add(self.quiet(rng), &|at| {
                    self.size * self.share(at) + height * saw[at]
                })
            }
            Pattern::LeakInSlowNoise => {
                let (deviation, correlation) = (between(rng, 0.005, 0.08), between(rng, 0.3, 0.9));
                let slow = slow_noise(rng, self.count, deviation * self.size, correlation);
                add(slow, &|at| self.size * self.share(at))
            }
            Pattern::LeakAtVaryingSpeed => {
                let (deviation, correlation) = (between(rng, 0.02, 0.15), between(rng, 0.8, 0.99));
                let speeds = slow_noise(rng, self.count, deviation, correlation);
                let mut steps = 0.0;
                let passed: Vec<f64> = (speeds.iter())
                    .map(|speed| {
                        steps += 1.0 + speed.clamp(-0.33, 0.33);
                        steps
                    })
                    .collect();
                let calm = noise(rng, self.count, 0.002 * self.size);
                add(calm, &|at| self.size * passed[at] / steps)
            }
            Pattern::SmallLeak => {
                let noise = between(rng, 1.0, 3.0);
                (0..self.count)
                    .map(|at| self.size * self.share(at) + between(rng, -noise, noise))
                    .collect()
            }
            Pattern::SmallLeakUnderSawtooth => {
                let (noise, height) = (between(rng, 0.2, 1.5), between(rng, 2.0, 6.0));
                let saw = sawtooth(rng, self.count, self.period, 0.0);
                (0..self.count)
                    .map(|at| {
                        self.size * self.share(at) + height * saw[at] + between(rng, -noise, noise)
                    })
                    .collect()
            }
            _ => self.other(pattern, rng),
        }
    }

    fn other(&self, pattern: Pattern, rng: &mut Rng) -> Vec<f64> {
        match pattern {
            Pattern::Noise => noise(rng, self.count, self.size * 0.2),
            Pattern::SlowNoise => {
                let correlation = between(rng, 0.3, 0.9);
                slow_noise(rng, self.count, self.size * 0.2, correlation)
            }
            Pattern::Sawtooth | Pattern::UnevenSawtooth => {
                let (period, uneven) = match pattern {
                    Pattern::Sawtooth => (self.period, 0.0),
                    // A shorter period, so that even the longest tooth occurs twice.
                    _ => ((self.period / 1.5).max(2.0), 0.5),
                };
                let saw = sawtooth(rng, self.count, period, uneven);
                add(self.quiet(rng), &|at| self.size * saw[at])
            }
            Pattern::Wave => {
                let phase = rng.unit();
                let wave = |at: usize| (TAU * (at as f64 / self.period + phase)).sin();
                let square = coin(rng);
                add(self.quiet(rng), &|at| {
                    self.size * if square { wave(at).signum() } else { wave(at) } / 2.0
                })
            }
            Pattern::Plateau | Pattern::LatePlateau => {
                let end = match pattern {
                    Pattern::Plateau => between(rng, 0.05, 0.66),
                    _ => between(rng, 0.66, 0.85),
                };
                add(self.quiet(rng), &|at| {
                    self.size * self.share(at).min(end) / end
                })
            }
            Pattern::Saturation | Pattern::SlowSaturation => {
                let time = if pattern == Pattern::Saturation {
                    scaled(rng, 0.02, 0.333)
                } else {
                    between(rng, 0.5, 1.5)
                };
                add(self.quiet(rng), &|at| {
                    self.size * (1.0 - (-self.share(at) / time).exp())
                })
            }
            Pattern::Steps => {
                let steps: Vec<_> = (0..=rng.below(2))
                    .map(|_| (rng.unit(), between(rng, 0.3, 1.0)))
                    .collect();
                add(self.quiet(rng), &|at| {
                    let passed = steps.iter().filter(|step| step.0 <= self.share(at));
                    self.size * passed.map(|step| step.1).sum::<f64>()
                })
            }
            Pattern::Fall => add(self.quiet(rng), &|at| -0.5 * self.size * self.share(at)),
            Pattern::Walk => self.walk(rng),
            _ => Vec::new(),
        }
    }

    /// A random walk.
    fn walk(&self, rng: &mut Rng) -> Vec<f64> {
        let mut level = 0.0;
        (0..self.count)
            .map(|_| {
                level += self.size / (self.count as f64).sqrt() * (rng.unit() - 0.5);
                level
            })
            .collect()
    }
}

/// Draws a random series of this pattern.
pub(crate) fn draw_case(pattern: Pattern, seed: u64) -> Case {
    let rng = &mut Rng::new(seed);
    let small = matches!(
        pattern,
        Pattern::SmallLeak | Pattern::SmallLeakUnderSawtooth
    );
    let count = if small {
        20
    } else {
        [20, 30, 60, 120, 256][rng.below(5)]
    };
    let n = count as f64;
    let level = scaled(rng, 200.0, 8000.0);
    let size = if small {
        20.0
    } else {
        scaled(rng, 0.01, 0.5) * level
    };
    let frame = Frame {
        count,
        size,
        period: scaled(rng, 2.0, n / 2.0),
    };
    let values = frame.leak(pattern, rng);
    let steps = 100.0;
    let truth = if Pattern::LEAKS.contains(&pattern) {
        size * MIB / (n * steps)
    } else {
        0.0
    };
    let points = values
        .iter()
        .enumerate()
        .map(|(at, value)| (at as f64 * steps, (level + value) * MIB))
        .collect();
    Case { points, truth }
}
