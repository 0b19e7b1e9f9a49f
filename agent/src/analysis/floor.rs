//! The floor and the headspace from the probe's windows, or the reason why not.
//!
//! With L the mean settled live step and F the mean step in replay, the headspace is (L - F) / L.
//! F is corrected for cached batches that are not like the others (double sampling, see
//! `content`). Means, not medians: they add up to the time a run takes.
//!
//! **Interval.** Both series are resampled in moving blocks within their windows; where cached
//! batches differ from each other, the batches are resampled instead of steps, since they are what
//! was sampled. Deviations are expanded for the number of blocks (see [`bootstrap`]). How the levels of
//! windows differ beyond that, live and in replay, is added by random levels (see `levels`). The
//! interval holds the middle 95 % of 1000 resampled headspaces.
//!
//! **Other programs.** The waits for a core that other programs cause are brought to one level in both
//! kinds of window (see `core_waits`): the headspace is that beside the same programs. To subtract them
//! altogether would be wrong where the loader waits for cores as well: with a loader of 20 ms and a
//! model of 10 ms, both slowed to twice that, half of the step is headspace, and less the model's
//! waits it would be two thirds. Live windows that disagree make the interval wider and leave a
//! warning; there is no number only where the interval gets too wide.
//!
//! **Asynchronous devices.** A replay that timed only launches gives no number (see `asynchronous`).
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
//! with cv 0.05 to 0.5, model cv 0.01 to 0.3, contention (for cores, or for memory), asynchronous
//! devices, epochs, slow first steps. Share of answers within 3 points of the truth, of intervals that
//! hold it, of probes without a number, and mean steps:
//!
//! ```text
//!                              within   covers   none   steps
//! one process                  97.3 %   96.0 %   0.3 %   1015
//!   contention for cores       95.7 %   95.9 %   0.3 %   1014
//! several ranks, fixed         96.6 %   95.9 %   0.2 %   1038
//! beside other programs        80.3 %   91.9 %   2.1 %   1539
//! one process, probe_steps 800 94.0 %   94.9 %   0.5 %    719
//!                          500 91.3 %   93.6 %   0.5 %    469
//!                          300 82.3 %   91.2 %   1.3 %    292
//!                          200 78.8 %   98.7 %  37.9 %    133
//! ```
//!
//! Weakest where compute is 0.6 to 1.0 of the load (94 to 95 % within): the queue then empties and
//! fills over hundreds of steps. Beside other programs 66 to 76 % are within 3 points there.

use thiserror::Error;

pub use super::asynchronous::Asynchrony;
use super::asynchronous::{Level, asynchrony};
use super::bootstrap::{self, Blocks, Rng};
use super::content::Content;
use super::core_waits::{self, Undisturbed};
use super::levels::Levels;
use super::resources::CoresInUse;
use super::selection::{self, Kept};
use super::statistics::mean;
use super::unsteady::Between;
use super::verdict::units::duration_ms;
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
/// ...and the largest and smallest differ by this share of the mean, in percent. Of random steady
/// pipelines, one in 400 does both.
const SPREAD_PCT: f64 = 10.0;
/// Share of the probe in which the loop's thread waited for a core from which on the verdict warns.
const CROWDED: f64 = 0.2;
/// Widest interval worth giving, in percentage points either way.
const WIDEST: f64 = 25.0;
/// Share of the live step below which a step in replay may be a launch on a device, and no more.
const NEXT_TO_NOTHING: f64 = 0.05;
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
        "the live windows disagree: their mean steps differ by {spread_pct:.0} %, which leaves the \
         headspace at {value_pct:.0} % to within {half_pct:.0} points (something changed during \
         the probe; repeat it when the machine is quiet, or raise `probe_steps`)"
    )]
    Disagree {
        /// Largest less smallest mean live step, in percent of the mean.
        spread_pct: f64,
        /// The estimate, in percent.
        value_pct: f64,
        /// Half the width of its interval, in percentage points.
        half_pct: f64,
    },
    /// Steps in replay only queued work on the device.
    #[error(
        "the replay timed only how fast work is queued on the device: {0} (let the loop wait for \
         its result once a step while the probe runs, for example `loss.item()` or \
         `jax.block_until_ready(loss)`)"
    )]
    Asynchronous(Asynchrony),
    /// Replay took longer than live.
    #[error(
        "steps were {pct:.1} % slower with cached batches than live, beyond noise (cached batches \
         may cost more, for example a copy from another device; something changed during the \
         probe, the device's queue was not full in live windows, or the device rests between \
         epochs)"
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
    /// What makes the number less certain than the steps alone say, in words.
    pub warning: Option<String>,
    /// The floor, or why there is none.
    pub result: Result<FloorRecord, NoFloor>,
}

/// Estimates the floor and the headspace. The same windows give the same numbers. `cores` are the mean
/// cores in use since the loop began, if known.
#[must_use]
pub fn estimate(windows: &[Window], cores: Option<CoresInUse>) -> FloorAnalysis {
    let undisturbed = core_waits::take_out(windows, cores);
    let (kept, records) = selection::select(&undisturbed.windows, windows);
    let (result, warning) = match evaluate(&undisturbed, &kept) {
        Ok((floor, warning)) => (Ok(floor), warning),
        Err(reason) => (Err(reason), None),
    };
    FloorAnalysis {
        windows: records,
        warning,
        result,
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
            block: block_length(steps, kept.iter().find_map(|window| window.period)),
            windows,
            steps,
        }
    }

    fn between(&self) -> Between {
        Between::of(&self.windows, self.block)
    }

    fn level(&self, unsteady: f64) -> Level {
        Level {
            step_ms: self.mean_ms,
            compute_ms: self.mean_compute_ms,
            unsteady,
        }
    }

    /// Largest less smallest mean of a window, as a share of the mean.
    fn spread(&self) -> f64 {
        let means: Vec<f64> = self.windows.iter().map(|window| mean(window)).collect();
        let largest = means.iter().copied().fold(f64::MIN, f64::max);
        let smallest = means.iter().copied().fold(f64::MAX, f64::min);
        (largest - smallest) / self.mean_ms
    }
}

/// Steps of a block. Where the loop waits for its device once a period, blocks are whole periods.
fn block_length(steps: usize, period: Option<usize>) -> usize {
    let length = (steps / BLOCKS).clamp(BLOCK_LENGTHS.0, BLOCK_LENGTHS.1);
    period.map_or(length, |period| length.next_multiple_of(period.max(1)))
}

/// The floor, and what makes it uncertain.
type Found = (FloorRecord, Option<String>);

fn evaluate(undisturbed: &Undisturbed, kept: &[Kept<'_>]) -> Result<Found, NoFloor> {
    let windows = &undisturbed.windows;
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
    let between = live.between();
    let asynchrony = asynchrony(
        windows,
        kept,
        live.level(between.deviation()),
        replay.level(between.deviation()),
    );
    if let Some(asynchrony) = asynchrony {
        return Err(NoFloor::Asynchronous(asynchrony));
    }
    let spread_pct = 100.0 * live.spread();
    let disagree = between.ratio() > DISAGREE && spread_pct > SPREAD_PCT;
    // Where the loop waits in few steps, those say nothing of their batches.
    let waits_rarely = kept.iter().any(|window| window.period.is_some());
    let content = Content::of(windows, kept, live.mean_compute_ms).filter(|_| !waits_rarely);
    let by_batch = content.map(|content| content.floors_ms());
    let levels = Levels::fit(kept, [live.block, replay.block], undisturbed.share);
    let [live_factor, floor_factor] = levels.factors();
    let [live_back, floor_back] = undisturbed.back_ms;
    let live_ms = live_factor * (live.mean_ms + live_back);
    let replay_ms = floor_factor * (replay.mean_ms + floor_back);
    let floor_ms = floor_factor * (by_batch.as_deref().map_or(replay.mean_ms, mean) + floor_back);
    let floor_blocks = match by_batch {
        Some(floors) => Blocks::of(&[floors], 1),
        None => Blocks::of(&replay.windows, replay.block),
    };
    let of_live = Draw {
        mean: live_ms,
        blocks: &Blocks::of(&live.windows, live.block),
    };
    let of_floor = Draw {
        mean: floor_ms,
        blocks: &floor_blocks,
    };
    let [of_live_ms, of_floor_ms] = undisturbed.unsure_ms;
    let unsure = [of_live_ms / live.mean_ms, of_floor_ms / replay.mean_ms];
    let intervals = intervals(&of_live, &of_floor, &levels, unsure);
    let mut headspace_pct = intervals.headspace_pct;
    let half_pct = (headspace_pct.high - headspace_pct.low) / 2.0;
    if headspace_pct.high < SLOWER {
        return Err(NoFloor::ReplaySlower {
            pct: -headspace_pct.value,
        });
    }
    if half_pct > WIDEST {
        let value_pct = headspace_pct.value.max(0.0);
        return Err(if disagree {
            NoFloor::Disagree {
                spread_pct,
                value_pct,
                half_pct,
            }
        } else {
            NoFloor::TooWide {
                value_pct,
                half_pct,
            }
        });
    }
    headspace_pct.value = headspace_pct.value.max(0.0);
    headspace_pct.high = headspace_pct.high.max(0.0);
    let gain = (live_ms - floor_ms).max(0.0);
    // Unusual batches make the compute in replay unusual too, by as much as the step.
    let live_compute_ms = live_factor * (live.mean_compute_ms + live_back);
    let replay_compute_ms = floor_factor * (replay.mean_compute_ms + floor_back);
    let relief = live_compute_ms - (replay_compute_ms + floor_ms - replay_ms);
    let contention_ms = relief.clamp(0.0, gain);
    let floor = FloorRecord {
        live_ms: intervals.live_ms,
        floor_ms: intervals.floor_ms,
        headspace_pct,
        exposed_wait_ms: gain - contention_ms,
        contention_ms,
    };
    let idle = replay_ms < NEXT_TO_NOTHING * live_ms && contention_ms < 0.5 * gain;
    let warnings = [
        disagree.then(|| differing(spread_pct)),
        crowded(undisturbed.share),
        (idle && !disagree).then(|| next_to_nothing(floor_ms)),
    ];
    Ok((floor, joined(warnings)))
}

/// One text of those there are.
fn joined<const N: usize>(texts: [Option<String>; N]) -> Option<String> {
    texts
        .into_iter()
        .flatten()
        .reduce(|all, text| all + " " + &text)
}

/// What is said where the loop's thread waited for a core in much of the probe.
fn crowded(share: f64) -> Option<String> {
    (share > CROWDED).then(|| {
        format!(
            "The loop's thread waited for a core in {:.0} % of the probe: the numbers hold beside what \
             used the cores then. Where that was another program, repeat the probe without it.",
            100.0 * share
        )
    })
}

fn differing(spread_pct: f64) -> String {
    format!(
        "The live windows of the probe differ by {spread_pct:.0} % of a step: other programs used \
         the machine, or the loop changed. The interval is wider for it; a probe on a quiet machine \
         gives a narrower one."
    )
}

fn next_to_nothing(floor_ms: f64) -> String {
    format!(
        "A step with free data took only {}. If the loop queues its work on a device and never \
         waits for a result, the true floor is longer: let it wait once a step while the probe runs.",
        duration_ms(floor_ms)
    )
}

struct Intervals {
    live_ms: Estimate,
    floor_ms: Estimate,
    headspace_pct: Estimate,
}

/// What a mean is resampled from.
struct Draw<'a> {
    mean: f64,
    /// The steps within windows.
    blocks: &'a Blocks,
}

impl Draw<'_> {
    /// A resampled mean, with its level shifted by `level` (a difference of logarithms).
    fn draw(&self, level: f64, rng: &mut Rng) -> f64 {
        let drawn = (self.mean + self.blocks.deviation(rng)) * level.exp();
        // A mean of positive numbers is positive, however wide its interval.
        drawn.max(0.05 * self.mean)
    }
}

/// `unsure` are relative standard deviations of both means besides.
fn intervals(live: &Draw<'_>, floor: &Draw<'_>, levels: &Levels, unsure: [f64; 2]) -> Intervals {
    let headspace = |live: f64, floor: f64| 100.0 * (live - floor) / live;
    let mut rng = Rng::new(SEED);
    let (mut lives, mut floors, mut headspaces) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let mut level = levels.deviations(&mut rng);
        for (level, unsure) in level.iter_mut().zip(unsure) {
            *level += unsure * rng.normal();
        }
        let [of_live, of_floor] = level;
        let (drawn, free) = (live.draw(of_live, &mut rng), floor.draw(of_floor, &mut rng));
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
