//! The floor and the headspace from the probe's windows, or the reason why not.
//!
//! With L the mean settled live step and F the mean step in replay, the headspace is (L - F) / L.
//! F is corrected for cached batches that are not like the others (double sampling, see
//! `content`). Means, not medians: they add up to the time a run takes.
//!
//! **Interval.** Both series are resampled in moving blocks within their windows; where cached
//! batches differ from each other, the batches are resampled instead of steps, since they are what
//! was sampled. Deviations are expanded for the number of blocks (see [`bootstrap`]) and those of
//! the live steps by the Birge ratio, where windows differ more than their steps explain (Birge,
//! Physical Review 40, 1932; the Particle Data Group's scale factor). The interval holds the
//! middle 95 % of 1000 resampled headspaces.
//!
//! **Negative results.** Free data cannot make training slower, so a headspace below 0 is
//! reported as 0, with the interval as it is as long as it reaches 0. Where it does not, replay
//! was slower beyond noise and the method does not fit: there is no number.
//!
//! **Split.** Contention relief is what the compute gains; the rest of L - F is exposed wait. On
//! an asynchronous device the compute gets longer in replay, because the loop then waits for the
//! device instead of the loader: relief is 0.
//!
//! **Accuracy.** Measured on 3000 random pipelines in logical time (`tests/rust/study.rs`, run by
//! `make study`): queues of 0 to 64 batches, compute 0.2 to 2 times the load, one to three stages
//! with cv 0.05 to 0.5, model cv 0.01 to 0.3, contention, asynchronous devices, epochs, slow first
//! steps. Share of answers within 3 points of the truth, of intervals that hold it, of probes
//! without a number, and mean steps:
//!
//! ```text
//!                              within   covers   none   steps
//! one process                  98.2 %   94.4 %   0.5 %    914
//! several ranks, fixed         97.7 %   94.5 %   0.2 %   1035
//! one process, probe_steps 800 97.5 %   93.7 %   0.5 %    697
//!                          500 91.8 %   92.5 %   0.8 %    451
//!                          300 84.0 %   91.5 %   1.1 %    256
//!                          200 79.1 %   88.9 %   0.0 %    134
//! ```
//!
//! Weakest where compute is 0.8 to 1.0 of the load (91 to 94 % within, 86 to 93 % covered): the
//! queue then empties and fills over hundreds of steps.

use thiserror::Error;

use super::bootstrap::{self, Blocks, Rng};
use super::content::Content;
use super::selection::{self, Kept};
use super::steady::{block_means, mean};
use crate::model::Window;
use crate::model::record::{Estimate, FloorRecord, Phase, WindowRecord};

/// Resampled headspaces behind an interval. The ends of the interval are then good to a tenth of
/// its width.
const RESAMPLES: usize = 1000;
/// Makes intervals repeatable. Any number will do.
const SEED: u64 = 0x6865_6164_7370_6163;
/// Blocks that a series is cut into, about, and the shortest and longest block in steps. Enough
/// blocks to know their variance, and blocks longer than the correlation of most loaders.
const BLOCKS: usize = 24;
const BLOCK_LENGTHS: (usize, usize) = (4, 24);
/// Fewest settled steps of each phase.
const LEAST_LIVE: usize = 24;
const LEAST_REPLAY: usize = 12;
/// Windows disagree where their variance exceeds what their steps explain by this factor...
const DISAGREE: f64 = 8.0;
/// ...and the largest and smallest differ by this share of the mean. Of random steady pipelines,
/// one in 400 does both.
const SPREAD: f64 = 0.10;
/// Widest interval worth giving, in percentage points either way.
const WIDEST: f64 = 20.0;
/// A whole interval below this headspace, in percent, refutes the method.
const SLOWER: f64 = -1.0;

/// Why the probe gives no number.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum NoFloor {
    /// The loop ended before the probe did, or epochs hold hardly any whole steps.
    #[error(
        "too few settled steps: {live} live and {replay} in replay, of at least {LEAST_LIVE} and \
         {LEAST_REPLAY} (train for longer, or over longer epochs)"
    )]
    TooFewSteps {
        /// Settled live steps.
        live: usize,
        /// Settled steps in replay.
        replay: usize,
    },
    /// The loop did not come to rest.
    #[error(
        "the live loop did not settle: {unsettled} of {windows} live windows never waited as \
         before the replay (raise `probe_steps`, so that the queue can drain)"
    )]
    Unsettled {
        /// Live windows that had not settled.
        unsettled: usize,
        /// Live windows.
        windows: usize,
    },
    /// The windows tell of different loops.
    #[error(
        "the live windows disagree: their mean steps differ by {spread_pct:.0} %, more than their \
         own noise explains (something changed during the probe; repeat it when the machine is \
         quiet, or raise `probe_steps`)"
    )]
    Disagree {
        /// Largest less smallest mean live step, in percent of the mean.
        spread_pct: f64,
    },
    /// Replay took longer than live.
    #[error(
        "steps were {pct:.1} % slower with cached batches than live, beyond noise (cached batches \
         may cost more, for example a copy from another device; something changed during the \
         probe, or the device rests between epochs)"
    )]
    ReplaySlower {
        /// By how much, in percent of the live step.
        pct: f64,
    },
    /// The steps vary too much for their number.
    #[error(
        "the steps vary too much: headspace {value_pct:.0} %, but only to within {half_pct:.0} \
         points (train for more steps in a probe: raise `probe_steps`, or run for longer)"
    )]
    TooWide {
        /// The estimate, in percent.
        value_pct: f64,
        /// Half the width of its interval, in percentage points.
        half_pct: f64,
    },
}

/// What the windows say.
#[derive(Debug, Clone, PartialEq)]
pub struct FloorAnalysis {
    /// One record a window, in order.
    pub windows: Vec<WindowRecord>,
    /// The floor, or why there is none.
    pub result: Result<FloorRecord, NoFloor>,
}

/// Estimates the floor and the headspace. The same windows give the same numbers.
#[must_use]
pub fn estimate(windows: &[Window]) -> FloorAnalysis {
    let (kept, records) = selection::select(windows);
    FloorAnalysis {
        result: evaluate(windows, &kept),
        windows: records,
    }
}

/// The kept steps of one phase.
struct Series {
    /// Step times in milliseconds, window by window.
    windows: Vec<Vec<f64>>,
    steps: usize,
    mean_ms: f64,
    mean_compute_ms: f64,
    block: usize,
}

impl Series {
    fn of(kept: &[Kept<'_>], phase: Phase) -> Self {
        let kept: Vec<&Kept<'_>> = kept.iter().filter(|window| window.phase == phase).collect();
        let windows: Vec<Vec<f64>> = kept.iter().map(|window| window.step_ms()).collect();
        let steps: usize = windows.iter().map(Vec::len).sum();
        let compute: f64 = kept
            .iter()
            .map(|window| window.mean_compute_ms() * window.steps.len() as f64)
            .sum();
        Self {
            mean_ms: mean(&windows.concat()),
            mean_compute_ms: compute / f64::max(steps as f64, 1.0),
            block: (steps / BLOCKS).clamp(BLOCK_LENGTHS.0, BLOCK_LENGTHS.1),
            windows,
            steps,
        }
    }

    /// Variance between windows over what the variance within them explains; 1 where they agree.
    fn birge_ratio_squared(&self) -> f64 {
        let (mut within, mut freedom) = (0.0, 0.0);
        let mut between = 0.0;
        for window in &self.windows {
            let level = mean(window);
            let blocks = block_means(window, self.block);
            within += blocks
                .iter()
                .map(|block| (block - level).powi(2))
                .sum::<f64>();
            freedom += blocks.len() as f64 - 1.0;
            between += window.len() as f64 * (level - self.mean_ms).powi(2);
        }
        let others = self.windows.len() as f64 - 1.0;
        if others < 1.0 || freedom < 1.0 {
            return 1.0;
        }
        let per_step = within / freedom * self.block as f64;
        between / others / per_step.max(1e-12 * self.mean_ms.powi(2))
    }

    /// Largest less smallest mean of a window, as a share of the mean.
    fn spread(&self) -> f64 {
        let means: Vec<f64> = self.windows.iter().map(|window| mean(window)).collect();
        let largest = means.iter().copied().fold(f64::MIN, f64::max);
        let smallest = means.iter().copied().fold(f64::MAX, f64::min);
        (largest - smallest) / self.mean_ms
    }
}

fn evaluate(windows: &[Window], kept: &[Kept<'_>]) -> Result<FloorRecord, NoFloor> {
    let live = Series::of(kept, Phase::Live);
    let replay = Series::of(kept, Phase::Replay);
    if live.steps < LEAST_LIVE || replay.steps < LEAST_REPLAY {
        let of_loop = || windows.iter().filter(|window| window.phase == Phase::Live);
        let unsettled = of_loop()
            .filter(|window| window.settled_at.is_none())
            .count();
        return Err(if unsettled > 0 && replay.steps >= LEAST_REPLAY {
            NoFloor::Unsettled {
                unsettled,
                windows: of_loop().count(),
            }
        } else {
            NoFloor::TooFewSteps {
                live: live.steps,
                replay: replay.steps,
            }
        });
    }
    let birge = live.birge_ratio_squared();
    if birge > DISAGREE && live.spread() > SPREAD {
        return Err(NoFloor::Disagree {
            spread_pct: 100.0 * live.spread(),
        });
    }
    let content = Content::of(windows, kept, live.mean_compute_ms);
    let by_batch = content.map(|content| content.floors_ms());
    let floor_ms = by_batch.as_deref().map_or(replay.mean_ms, mean);
    let floor_blocks = match by_batch {
        Some(floors) => Blocks::of(&[floors], 1),
        None => Blocks::of(&replay.windows, replay.block),
    };
    let intervals = intervals(&live, floor_ms, &floor_blocks, birge.max(1.0).sqrt());
    let mut headspace_pct = intervals.headspace_pct;
    let half_pct = (headspace_pct.high - headspace_pct.low) / 2.0;
    if headspace_pct.high < SLOWER {
        return Err(NoFloor::ReplaySlower {
            pct: -headspace_pct.value,
        });
    }
    if half_pct > WIDEST {
        return Err(NoFloor::TooWide {
            value_pct: headspace_pct.value.max(0.0),
            half_pct,
        });
    }
    headspace_pct.value = headspace_pct.value.max(0.0);
    headspace_pct.high = headspace_pct.high.max(0.0);
    let gain = (live.mean_ms - floor_ms).max(0.0);
    // Unusual batches make the compute in replay unusual too, by as much as the step.
    let relief = live.mean_compute_ms - (replay.mean_compute_ms + floor_ms - replay.mean_ms);
    let contention_ms = relief.clamp(0.0, gain);
    Ok(FloorRecord {
        live_ms: intervals.live_ms,
        floor_ms: intervals.floor_ms,
        headspace_pct,
        exposed_wait_ms: gain - contention_ms,
        contention_ms,
    })
}

struct Intervals {
    live_ms: Estimate,
    floor_ms: Estimate,
    headspace_pct: Estimate,
}

fn intervals(live: &Series, floor_ms: f64, floor_blocks: &Blocks, live_scale: f64) -> Intervals {
    let live_blocks = Blocks::of(&live.windows, live.block);
    let live_scale = live_scale * bootstrap::expansion(live_blocks.freedom());
    let floor_scale = bootstrap::expansion(floor_blocks.freedom());
    let headspace = |live: f64, floor: f64| 100.0 * (live - floor) / live;
    let mut rng = Rng::new(SEED);
    let (mut lives, mut floors, mut headspaces) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let deviation = live_scale * live_blocks.deviation(&mut rng);
        // A mean of positive numbers is positive, however wide its interval.
        let drawn = (live.mean_ms + deviation).max(0.05 * live.mean_ms);
        let floor = (floor_ms + floor_scale * floor_blocks.deviation(&mut rng)).max(0.0);
        lives.push(drawn);
        floors.push(floor);
        headspaces.push(headspace(drawn, floor));
    }
    let estimate = |value: f64, draws: Vec<f64>| {
        let (low, high) = bootstrap::percentiles(draws);
        Estimate { value, low, high }
    };
    Intervals {
        live_ms: estimate(live.mean_ms, lives),
        floor_ms: estimate(floor_ms, floors),
        headspace_pct: estimate(headspace(live.mean_ms, floor_ms), headspaces),
    }
}
