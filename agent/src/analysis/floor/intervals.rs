//! Intervals of the floor and the headspace, by resampling.

use super::drift::Levels;
use crate::model::record::Estimate;
use crate::statistics::bootstrap::{self, Blocks, Rng};

/// Number of resampled headspaces per interval. The ends of the interval are then accurate to a tenth of
/// its width.
const RESAMPLES: usize = 1000;
/// Fixed seed, so that intervals are reproducible. The value is arbitrary.
const SEED: u64 = 0x6865_6164_7370_6163;

/// Smallest resampled mean, as a share of the mean. A mean of positive numbers is positive, however wide its
/// interval.
const SMALLEST_DRAW: f64 = 0.05;

pub(super) struct Intervals {
    pub(super) live_ms: Estimate,
    pub(super) floor_ms: Estimate,
    pub(super) headspace_pct: Estimate,
}

/// A mean and the blocks that it is resampled from.
pub(super) struct Draw<'a> {
    pub(super) mean: f64,
    /// Blocks of steps within windows.
    pub(super) blocks: &'a Blocks,
}

impl Draw<'_> {
    /// A resampled mean, with its level shifted by `level` (a difference of logarithms).
    fn draw(&self, level: f64, rng: &mut Rng) -> f64 {
        let drawn = (self.mean + self.blocks.deviation(rng)) * level.exp();
        drawn.max(SMALLEST_DRAW * self.mean)
    }
}

/// `deviations` holds additional relative standard deviations of both means.
pub(super) fn intervals(
    live: &Draw<'_>,
    floor: &Draw<'_>,
    levels: &Levels,
    deviations: [f64; 2],
) -> Intervals {
    let headspace = |live: f64, floor: f64| 100.0 * (live - floor) / live;
    let mut rng = Rng::new(SEED);
    let (mut lives, mut floors, mut headspaces) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let mut level = levels.deviations(&mut rng);
        for (level, deviation) in level.iter_mut().zip(deviations) {
            *level += deviation * rng.normal();
        }
        let [live_level, floor_level] = level;
        let (drawn, free) = (
            live.draw(live_level, &mut rng),
            floor.draw(floor_level, &mut rng),
        );
        lives.push(drawn);
        floors.push(free);
        headspaces.push(headspace(drawn, free));
    }
    let estimate = |value: f64, draws: Vec<f64>| {
        let (low, high) = bootstrap::percentiles(draws);
        Estimate { value, low, high }
    };
    Intervals {
        live_ms: estimate(live.mean, lives),
        floor_ms: estimate(floor.mean, floors),
        headspace_pct: estimate(headspace(live.mean, floor.mean), headspaces),
    }
}
