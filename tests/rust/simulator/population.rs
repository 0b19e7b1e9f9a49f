//! Random pipelines with queues of 0 to 64 batches, compute of 0.2 to 2 times the load, and one to
//! three stages. They also vary the distribution of service times, epochs, contention, slow first
//! steps, asynchronous devices, and the work that a batch causes.

use headspace_agent::statistics::bootstrap::Rng;

use super::others::Others;
use super::pipeline::{Device, Spec, Stage};
use super::service::{Service, Shape};

/// A pipeline, and the parameters with which it was drawn.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) spec: Spec,
    /// Compute (or device) time divided by load time, per batch.
    pub(crate) ratio: f64,
    /// Batches that all queues hold together.
    pub(crate) depth: u32,
    /// Whether the probe knows the depth.
    pub(crate) depth_known: bool,
}

/// Queue depths to draw from. They grow about exponentially, so small queues are as likely as large ones.
const DEPTHS: [u32; 13] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const SHAPES: [Shape; 4] = [
    Shape::Normal,
    Shape::LogNormal,
    Shape::Gamma,
    Shape::Bimodal,
];

/// Random numbers for drawing pipelines.
pub(crate) struct Dice(Rng);

impl Dice {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(rng)
    }

    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.unit()
    }

    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.0.unit() < probability
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn count(&mut self, most: u32) -> u32 {
        let bound = usize::try_from(most).unwrap_or(1);
        1 + u32::try_from(self.0.below(bound)).unwrap_or(0)
    }

    pub(crate) fn one_of<T: Copy, const N: usize>(&mut self, values: [T; N]) -> T {
        values[self.0.below(N)]
    }
}

/// Draws a pipeline.
pub(crate) fn draw(seed: u64) -> Case {
    let dice = &mut Dice(Rng::new(seed ^ 0x5eed_ca5e));
    let ratio = dice.log_uniform(0.2, 2.0);
    let load = dice.log_uniform(5e6, 50e6);
    let depth = dice.one_of(DEPTHS);
    let stages = stages(dice, load, depth);
    let busy = load * ratio;
    let cv = dice.log_uniform(0.01, 0.3);
    // The share of the variance that differences between batches cause.
    let share = if dice.chance(0.2) {
        dice.uniform(0.3, 1.0)
    } else {
        0.0
    };
    let content = Service::new(1.0, cv * share.sqrt(), dice.one_of(SHAPES), 0.0);
    let own_cv = cv * (1.0 - share).sqrt();
    let model = |dice: &mut Dice, mean| Service::new(mean, own_cv, dice.one_of(SHAPES), 0.0);
    let (compute, device) = if dice.chance(0.15) {
        let launch = dice.uniform(0.1, 0.6);
        let in_flight = 1 + dice.0.below(8);
        let device = Device::bounded(model(dice, busy), in_flight);
        (model(dice, busy * launch), Some(device))
    } else {
        (model(dice, busy), None)
    };
    let spec = Spec {
        stages,
        compute,
        device,
        content,
        contention: if dice.chance(0.4) {
            dice.uniform(0.0, 0.5)
        } else {
            0.0
        },
        waits_for_cores: Dice(Rng::new(seed ^ 0xc0_7e5)).chance(0.5),
        first_step: if dice.chance(0.4) {
            dice.log_uniform(10.0, 200.0)
        } else {
            1.0
        },
        epoch: dice
            .chance(0.4)
            .then(|| 20 + u64::from(dice.count(50)).pow(2) * 2 / 5),
        restarts: dice.chance(0.7),
        change: None,
        startup_ns: dice.log_uniform(1e6, 1e9),
        others: None,
        on_core: 1.0,
    };
    Case {
        spec,
        ratio,
        depth,
        depth_known: dice.chance(0.4),
    }
}

/// Draws a pipeline on a machine that other programs use as well.
pub(crate) fn draw_beside_others(seed: u64) -> Case {
    let mut case = draw(seed);
    let dice = &mut Dice(Rng::new(seed ^ 0x0123_4567));
    case.spec.others = Some(Others {
        wave: dice.log_uniform(0.02, 0.2),
        wave_s: dice.log_uniform(0.3, 20.0),
        burst: if dice.chance(0.7) {
            dice.uniform(1.2, 3.0)
        } else {
            1.0
        },
        on_s: dice.log_uniform(0.05, 3.0),
        off_s: dice.log_uniform(0.2, 10.0),
        repeats_ns: None,
    });
    case.spec.on_core = if dice.chance(0.5) {
        1.0
    } else {
        dice.uniform(0.0, 1.0)
    };
    case
}

/// One to three stages. The slowest one produces a batch every `load` nanoseconds, and the queues
/// together hold `depth` batches.
fn stages(dice: &mut Dice, load: f64, depth: u32) -> Vec<Stage> {
    let count = if depth < 2 {
        1
    } else {
        dice.count(3).min(depth)
    };
    let slowest = dice.count(count);
    let mut left = depth;
    (1..=count)
        .map(|stage| {
            let threads = if depth == 0 { 1 } else { dice.count(8) };
            let faster = if stage == slowest {
                1.0
            } else {
                dice.uniform(1.1, 3.0)
            };
            let cv = dice.uniform(0.05, 0.5);
            let correlation = if dice.chance(0.25) {
                dice.uniform(0.0, 0.6)
            } else {
                0.0
            };
            let behind = count - stage;
            let own = if behind == 0 {
                left
            } else {
                dice.count(left - behind)
            };
            left -= own;
            let mean = load * f64::from(threads) / faster;
            let service = Service::new(mean, cv, dice.one_of(SHAPES), correlation);
            Stage {
                threads,
                service,
                depth: own,
            }
        })
        .collect()
}
