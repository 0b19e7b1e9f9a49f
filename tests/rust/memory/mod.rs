//! Random courses of a process's memory whose truth is known.

use std::f64::consts::TAU;

use headspace_agent::statistics::bootstrap::Rng;

/// What memory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Course {
    /// Grows steadily; noise of up to a fifth of the growth.
    Leak,
    /// The same, and a sawtooth of up to two fifths of the growth over it.
    LeakUnderSawtooth,
    /// The same as a leak, with noise that lasts for several points.
    LeakInSlowNoise,
    /// The leak that must be found: 20 MiB over 20 points, noise of up to 3 MiB either way.
    SmallLeak,
    /// The same under a sawtooth of up to 6 MiB.
    SmallLeakUnderSawtooth,
    /// Stays where it is.
    Noise,
    /// The same, with noise that lasts for several points.
    SlowNoise,
    /// Allocates and frees with a period that is seen at least twice.
    Sawtooth,
    /// The same with teeth of different lengths.
    UnevenSawtooth,
    /// Goes up and down in waves that are seen at least twice.
    Wave,
    /// Grows, then stops in the first two thirds.
    Plateau,
    /// A warm-up that saturates: its time constant is up to a third of the time seen.
    Saturation,
    /// One or two steps up.
    Steps,
    /// Falls.
    Fall,
    /// A saturation slower than that, which nobody can tell from a leak.
    SlowSaturation,
    /// A random walk, which nobody can tell from a leak.
    Walk,
}

impl Course {
    /// Leaks, which must be found.
    pub(crate) const LEAKS: [Self; 5] = [
        Self::Leak,
        Self::LeakUnderSawtooth,
        Self::LeakInSlowNoise,
        Self::SmallLeak,
        Self::SmallLeakUnderSawtooth,
    ];

    /// What must not be called a leak.
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

    /// What is only counted.
    pub(crate) const HARD: [Self; 2] = [Self::SlowSaturation, Self::Walk];
}

/// One course, as it was seen.
pub(crate) struct Seen {
    /// Steps and bytes.
    pub(crate) points: Vec<(f64, f64)>,
    /// Bytes per step that it truly grows by; 0 where it is no leak.
    pub(crate) truth: f64,
}

const MIB: f64 = 1_048_576.0;

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// As likely between 1 and 2 as between 10 and 20.
fn scaled(rng: &mut Rng, low: f64, high: f64) -> f64 {
    between(rng, low.ln(), high.ln()).exp()
}

fn coin(rng: &mut Rng) -> bool {
    rng.unit() < 0.5
}

/// Independent noise of that standard deviation: even, bell-shaped, or with rare spikes upwards.
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

/// Noise in which neighbours are correlated by that much (an autoregression of the first order).
fn slow_noise(rng: &mut Rng, count: usize, deviation: f64, correlation: f64) -> Vec<f64> {
    let mut level = 0.0;
    let fresh = (1.0 - correlation * correlation).sqrt() * deviation;
    // Long enough before the first point that it does not know where it began.
    let all = (0..count + 100).map(|_| {
        let bell = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        level = correlation * level + fresh * bell;
        level
    });
    all.skip(100).collect()
}

/// Teeth of height 1 and of that many points on average.
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

/// The values with something added at each place.
fn with(mut values: Vec<f64>, of: &dyn Fn(usize) -> f64) -> Vec<f64> {
    for (at, value) in values.iter_mut().enumerate() {
        *value += of(at);
    }
    values
}

/// What all courses of one seed have in common. Sizes are in MiB.
struct Frame {
    /// Points seen.
    count: usize,
    /// What the course moves by.
    size: f64,
    /// Points in a period, of those that have one.
    period: f64,
}

impl Frame {
    /// How much of the time seen has passed.
    fn share(&self, at: usize) -> f64 {
        at as f64 / self.count as f64
    }

    /// Noise that is small beside what the course moves by.
    fn still(&self, rng: &mut Rng) -> Vec<f64> {
        let deviation = scaled(rng, 0.002, 0.1) * self.size;
        noise(rng, self.count, deviation)
    }

    fn leak(&self, course: Course, rng: &mut Rng) -> Vec<f64> {
        match course {
            Course::Leak => with(self.still(rng), &|at| self.size * self.share(at)),
            Course::LeakUnderSawtooth => {
                let height = between(rng, 0.05, 0.4) * self.size;
                let uneven = if coin(rng) { 0.3 } else { 0.0 };
                let saw = sawtooth(rng, self.count, self.period, uneven);
                with(self.still(rng), &|at| {
                    self.size * self.share(at) + height * saw[at]
                })
            }
            Course::LeakInSlowNoise => {
                let (deviation, correlation) = (between(rng, 0.005, 0.08), between(rng, 0.3, 0.9));
                let slow = slow_noise(rng, self.count, deviation * self.size, correlation);
                with(slow, &|at| self.size * self.share(at))
            }
            Course::SmallLeak => {
                let noise = between(rng, 1.0, 3.0);
                (0..self.count)
                    .map(|at| self.size * self.share(at) + between(rng, -noise, noise))
                    .collect()
            }
            Course::SmallLeakUnderSawtooth => {
                let (noise, height) = (between(rng, 0.2, 1.5), between(rng, 2.0, 6.0));
                let saw = sawtooth(rng, self.count, self.period, 0.0);
                (0..self.count)
                    .map(|at| {
                        self.size * self.share(at) + height * saw[at] + between(rng, -noise, noise)
                    })
                    .collect()
            }
            _ => self.other(course, rng),
        }
    }

    fn other(&self, course: Course, rng: &mut Rng) -> Vec<f64> {
        match course {
            Course::Noise => noise(rng, self.count, self.size * 0.2),
            Course::SlowNoise => {
                let correlation = between(rng, 0.3, 0.9);
                slow_noise(rng, self.count, self.size * 0.2, correlation)
            }
            Course::Sawtooth | Course::UnevenSawtooth => {
                let (period, uneven) = match course {
                    Course::Sawtooth => (self.period, 0.0),
                    // So that the longest tooth is still seen twice.
                    _ => ((self.period / 1.5).max(2.0), 0.5),
                };
                let saw = sawtooth(rng, self.count, period, uneven);
                with(self.still(rng), &|at| self.size * saw[at])
            }
            Course::Wave => {
                let phase = rng.unit();
                let wave = |at: usize| (TAU * (at as f64 / self.period + phase)).sin();
                let square = coin(rng);
                with(self.still(rng), &|at| {
                    self.size * if square { wave(at).signum() } else { wave(at) } / 2.0
                })
            }
            Course::Plateau => {
                let end = between(rng, 0.05, 0.66);
                with(self.still(rng), &|at| {
                    self.size * self.share(at).min(end) / end
                })
            }
            Course::Saturation | Course::SlowSaturation => {
                let time = if course == Course::Saturation {
                    scaled(rng, 0.02, 0.333)
                } else {
                    between(rng, 0.5, 1.5)
                };
                with(self.still(rng), &|at| {
                    self.size * (1.0 - (-self.share(at) / time).exp())
                })
            }
            Course::Steps => {
                let steps: Vec<_> = (0..=rng.below(2))
                    .map(|_| (rng.unit(), between(rng, 0.3, 1.0)))
                    .collect();
                with(self.still(rng), &|at| {
                    let passed = steps.iter().filter(|step| step.0 <= self.share(at));
                    self.size * passed.map(|step| step.1).sum::<f64>()
                })
            }
            Course::Fall => with(self.still(rng), &|at| -0.5 * self.size * self.share(at)),
            Course::Walk => {
                let mut place = 0.0;
                (0..self.count)
                    .map(|_| {
                        place += self.size / (self.count as f64).sqrt() * (rng.unit() - 0.5);
                        place
                    })
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A random course of that kind.
pub(crate) fn seen(course: Course, seed: u64) -> Seen {
    let rng = &mut Rng::new(seed);
    let small = matches!(course, Course::SmallLeak | Course::SmallLeakUnderSawtooth);
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
    let values = frame.leak(course, rng);
    let steps = 100.0;
    let truth = if Course::LEAKS.contains(&course) {
        size * MIB / (n * steps)
    } else {
        0.0
    };
    let points = values
        .iter()
        .enumerate()
        .map(|(at, value)| (at as f64 * steps, (level + value) * MIB))
        .collect();
    Seen { points, truth }
}
