//! Estimates the floor and the headspace from the probe's windows, or gives the reason for no number.
//!
//! With L the mean settled live step and F the mean step in replay, the headspace is (L - F) / L. If the
//! cached batches are not typical, F is corrected by double sampling (see `batch_content`). Means are used,
//! not medians, because they add up to the duration of a run.
//!
//! **Interval.** Both series are resampled in moving blocks within their windows. If the cached batches
//! differ from each other, batches are resampled instead of steps, because the batches are the sample.
//! Deviations are expanded for the number of blocks (see [`bootstrap`](crate::statistics::bootstrap)).
//! Random levels add the remaining differences between windows, live and in replay (see `drift`). The
//! interval holds the middle 95 % of 1000 resampled headspaces.
//!
//! **Other programs.** Waits for a core that other programs cause are set to the same level in both phases
//! (see `core_waits`). The headspace is therefore the one with the same other programs running. Subtracting
//! these waits would be wrong if the loader waits for cores too. Example: a loader of 20 ms and a model of
//! 10 ms, both slowed down by a factor of 2. Half of the step is headspace; without the model's waits the
//! result would be two thirds. If live windows disagree, the interval gets wider and there is a warning.
//! There is no number only if the interval becomes too wide.
//!
//! **Asynchronous devices.** A replay that timed only kernel launches gives no number (see
//! `asynchronous_device`).
//!
//! **Negative results.** Free data cannot make training slower. A headspace below 0 is therefore reported
//! as 0, with an unchanged interval, if the interval contains 0. If the interval lies below 0, replay was
//! slower beyond noise. The method then does not apply, and there is no number.
//!
//! **Split.** Contention relief is the decrease of the compute time; the rest of L - F is exposed wait. On
//! an asynchronous device, compute gets longer in replay, because the loop then waits for the device
//! instead of the loader. Relief is then 0.
//!
//! **Accuracy.** Measured on 3000 random pipelines in logical time (`tests/rust/probe_study.rs`, run by `make
//! study`): queues of 0 to 64 batches, compute 0.2 to 2 times the load, one to three stages with cv 0.05 to
//! 0.5, model cv 0.01 to 0.3, contention (for cores, or for memory), asynchronous devices, epochs, slow
//! first steps. Columns: share of estimates within 3 points of the true value, share of intervals that
//! cover it, share of probes without a number, and mean number of steps.
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
//! Accuracy is lowest where compute is 0.6 to 1.0 of the load (94 to 95 % within): the queue then empties
//! and fills over hundreds of steps. With other programs, 66 to 76 % are within 3 points there.

mod asynchronous_device;
mod batch_content;
mod between_windows;
mod core_waits;
mod drift;
mod intervals;
mod kept_steps;
mod probe_windows;
#[cfg(test)]
mod tests;

pub use self::asynchronous_device::Asynchrony;
use self::asynchronous_device::{Level, asynchrony};
use self::batch_content::Content;
use self::between_windows::Between;

use self::core_waits::Undisturbed;
use self::drift::Levels;
use self::intervals::{Draw, intervals};
use self::kept_steps::Kept;
pub use self::probe_windows::{Unused, WindowAnalysis};
use super::resources::CoresInUse;
use crate::model::Window;
use crate::model::record::{Estimate, FloorRecord, Phase};

use crate::statistics::bootstrap::Blocks;
use crate::statistics::mean;

/// Approximate number of blocks in a series, and the shortest and longest block in steps. There are enough
/// blocks to estimate their variance, and blocks are longer than the correlation of most loaders.
const BLOCKS: usize = 24;
const BLOCK_LENGTHS: (usize, usize) = (4, 24);
/// Fewest settled steps of each phase.
pub(crate) const LEAST_LIVE: usize = 24;
pub(crate) const LEAST_REPLAY: usize = 12;
/// Windows disagree if their variance exceeds the variance explained by their steps by this factor,
/// and if they differ by [`SPREAD_PCT`]. One in 400 random steady pipelines meets both conditions.
const DISAGREE: f64 = 8.0;
/// Difference of the largest and smallest window mean from which windows disagree, in percent of the mean.
const SPREAD_PCT: f64 = 10.0;
/// The verdict warns if the loop's thread waited for a core during at least this share of the probe.
const OVERSUBSCRIBED: f64 = 0.2;
/// Largest half-width of an interval that is still reported, in percentage points.
const WIDEST: f64 = 25.0;
/// Below this share of the live step, a step in replay may be only a launch on a device.
const NEXT_TO_NOTHING: f64 = 0.05;
/// If contention relief is at least this share of the gain, the short step has that reason, and no launch
/// needs to explain it.
const MOSTLY_CONTENTION: f64 = 0.5;
/// The method does not apply if the whole interval is below this headspace, in percent.
const SLOWER: f64 = -1.0;

/// Why the windows give no floor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoFloor {
    /// The loop ended before the probe, or its epochs contain almost no whole steps.
    TooFewSteps {
        /// Settled live steps.
        live: usize,
        /// Settled steps in replay.
        replay: usize,
    },
    /// The loop did not reach a steady state.
    Unsettled {
        /// Live windows that had not settled.
        unsettled: usize,
        /// Live windows.
        windows: usize,
    },
    /// The windows contradict each other.
    Disagree {
        /// Largest less smallest mean live step, in percent of the mean.
        spread_pct: f64,
        /// The estimate, in percent.
        value_pct: f64,
        /// Half the width of its interval, in percentage points.
        half_pct: f64,
    },
    /// Steps in replay only queued work on the device.
    Asynchronous(Asynchrony),
    /// Steps took longer in replay than live.
    ReplaySlower {
        /// Slowdown, in percent of the live step.
        pct: f64,
    },
    /// The steps vary too much for so few of them.
    TooWide {
        /// The estimate, in percent.
        value_pct: f64,
        /// Half the width of its interval, in percentage points.
        half_pct: f64,
    },
}

/// Why a probe's record has no number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoHeadspace {
    /// The loop modifies its batches, and copies of them would be too large.
    CopiesTooLarge,
    /// The loop modified cached batches that were replayed.
    BatchesMutated {
        /// Number of modified batches.
        mutated: u32,
        /// Number of cached batches.
        cached: u32,
    },
    /// The windows give no floor.
    NoFloor(NoFloor),
    /// The windows gave no floor before the run ended.
    EndedEarly(NoFloor),
    /// The floor is not a finite number.
    NotFinite,
    /// The probe is still running.
    NotDone,
}

/// A reason why a floor is less certain than its steps alone suggest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FloorWarning {
    /// The run ended before the long replay.
    ShortReplays,
    /// The live windows have different levels.
    WindowsDiffer {
        /// Largest less smallest mean live step, in percent of the mean.
        spread_pct: f64,
    },
    /// The loop's thread waited for a core.
    Oversubscribed {
        /// Share of the probe's time.
        share: f64,
    },
    /// A step in replay was so short that it may have been only a launch.
    NextToNothing {
        /// The floor.
        floor_ms: f64,
    },
}

/// The result of analysing the windows.
#[derive(Debug, Clone, PartialEq)]
pub struct FloorAnalysis {
    /// One entry per window, in order.
    pub windows: Vec<WindowAnalysis>,
    /// Reasons why the number is less certain than the steps alone suggest.
    pub warnings: Vec<FloorWarning>,
    /// The floor, or why there is none.
    pub result: Result<FloorRecord, NoFloor>,
}

/// Estimates the floor and the headspace. The function is deterministic. `cores` is the mean number of
/// cores in use since the loop began, if known.
pub fn estimate(windows: &[Window], cores: Option<CoresInUse>) -> FloorAnalysis {
    let undisturbed = core_waits::subtract_waits_by_others(windows, cores);
    let (kept, records) = probe_windows::select_steps(&undisturbed.windows, windows);
    let (result, warnings) = match evaluate(&undisturbed, &kept) {
        Ok((floor, warnings)) => (Ok(floor), warnings),
        Err(reason) => (Err(reason), Vec::new()),
    };
    FloorAnalysis {
        windows: records,
        warnings,
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
    fn from_kept(kept: &[Kept<'_>], phase: Phase) -> Self {
        let kept: Vec<&Kept<'_>> = kept.iter().filter(|window| window.phase == phase).collect();
        let windows: Vec<Vec<f64>> = kept.iter().map(|window| window.step_ms()).collect();
        let steps: usize = windows.iter().map(Vec::len).sum();
        let total_compute_ms =
            |window: &&Kept<'_>| window.mean_compute_ms() * window.steps.len() as f64;
        let compute: f64 = kept.iter().map(total_compute_ms).sum();
        Self {
            mean_ms: mean(&windows.concat()),
            mean_compute_ms: compute / f64::max(steps as f64, 1.0),
            block: block_length(steps, kept.iter().find_map(|window| window.period)),
            windows,
            steps,
        }
    }

    fn between(&self) -> Between {
        Between::from_windows(&self.windows, self.block)
    }

    fn level(&self, unsteady: f64) -> Level {
        Level {
            step_ms: self.mean_ms,
            compute_ms: self.mean_compute_ms,
            unsteady,
        }
    }

    /// Largest minus smallest window mean, as a share of the mean.
    fn spread(&self) -> f64 {
        let means: Vec<f64> = self.windows.iter().map(|window| mean(window)).collect();
        let largest = means.iter().copied().fold(f64::MIN, f64::max);
        let smallest = means.iter().copied().fold(f64::MAX, f64::min);
        (largest - smallest) / self.mean_ms
    }
}

/// Number of steps in a block. If the loop waits for its device once per period, a block is a multiple of
/// the period.
fn block_length(steps: usize, period: Option<usize>) -> usize {
    let length = (steps / BLOCKS).clamp(BLOCK_LENGTHS.0, BLOCK_LENGTHS.1);
    period.map_or(length, |period| length.next_multiple_of(period.max(1)))
}

/// The floor, and the warnings about it.
type Found = (FloorRecord, Vec<FloorWarning>);

fn evaluate(undisturbed: &Undisturbed, kept: &[Kept<'_>]) -> Result<Found, NoFloor> {
    let windows = &undisturbed.windows;
    let live = Series::from_kept(kept, Phase::Live);
    let replay = Series::from_kept(kept, Phase::Replay);
    require_steps(windows, &live, &replay)?;
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
    let disagree = between.ratio > DISAGREE && spread_pct > SPREAD_PCT;
    // If the loop waits for its device in few steps, the times of single steps do not depend on their
    // batches.
    let waits_rarely = kept.iter().any(|window| window.period.is_some());
    let content = Content::fit(windows, kept, live.mean_compute_ms).filter(|_| !waits_rarely);
    let by_batch = content.map(|content| content.floors_ms());
    let levels = Levels::fit(kept, [live.block, replay.block], undisturbed.share);
    let free_ms = by_batch.as_deref().map_or(replay.mean_ms, mean);
    let means = Means::new(&live, &replay, free_ms, &levels, undisturbed.added_ms);
    let floor_blocks = match by_batch {
        Some(floors) => Blocks::from_windows(&[floors], 1),
        None => Blocks::from_windows(&replay.windows, replay.block),
    };
    let live_draw = Draw {
        mean: means.live,
        blocks: &Blocks::from_windows(&live.windows, live.block),
    };
    let floor_draw = Draw {
        mean: means.floor,
        blocks: &floor_blocks,
    };
    let [live_deviation_ms, floor_deviation_ms] = undisturbed.added_deviation_ms;
    let deviations = [
        live_deviation_ms / live.mean_ms,
        floor_deviation_ms / replay.mean_ms,
    ];
    let intervals = intervals(&live_draw, &floor_draw, &levels, deviations);
    let (gain_ms, contention_ms) = (means.gain_ms(), means.contention_ms());
    let floor = FloorRecord {
        live_ms: intervals.live_ms,
        floor_ms: intervals.floor_ms,
        headspace_pct: require_plausible(intervals.headspace_pct, disagree.then_some(spread_pct))?,
        exposed_wait_ms: gain_ms - contention_ms,
        contention_ms,
    };
    let idle =
        means.replay < NEXT_TO_NOTHING * means.live && contention_ms < MOSTLY_CONTENTION * gain_ms;
    let share = undisturbed.share;
    let warnings = [
        disagree.then_some(FloorWarning::WindowsDiffer { spread_pct }),
        (share > OVERSUBSCRIBED).then_some(FloorWarning::Oversubscribed { share }),
        (idle && !disagree).then_some(FloorWarning::NextToNothing {
            floor_ms: means.floor,
        }),
    ];
    Ok((floor, warnings.into_iter().flatten().collect()))
}

fn require_steps(windows: &[Window], live: &Series, replay: &Series) -> Result<(), NoFloor> {
    if live.steps >= LEAST_LIVE && replay.steps >= LEAST_REPLAY {
        return Ok(());
    }
    let live_windows = || windows.iter().filter(|window| window.phase == Phase::Live);
    let unsettled = live_windows()
        .filter(|window| window.settled_at.is_none())
        .count();
    Err(if unsettled > 0 && replay.steps >= LEAST_REPLAY {
        NoFloor::Unsettled {
            unsettled,
            windows: live_windows().count(),
        }
    } else {
        NoFloor::TooFewSteps {
            live: live.steps,
            replay: replay.steps,
        }
    })
}

/// Mean steps at the corrected level of each phase, in milliseconds.
struct Means {
    live: f64,
    live_compute: f64,
    replay: f64,
    replay_compute: f64,
    floor: f64,
}

impl Means {
    /// `free_ms` is the mean step in replay, corrected for the choice of cached batches.
    fn new(
        live: &Series,
        replay: &Series,
        free_ms: f64,
        levels: &Levels,
        added_ms: [f64; 2],
    ) -> Self {
        let [live_factor, floor_factor] = levels.factors();
        let [live_added, floor_added] = added_ms;
        Self {
            live: live_factor * (live.mean_ms + live_added),
            live_compute: live_factor * (live.mean_compute_ms + live_added),
            replay: floor_factor * (replay.mean_ms + floor_added),
            replay_compute: floor_factor * (replay.mean_compute_ms + floor_added),
            floor: floor_factor * (free_ms + floor_added),
        }
    }

    fn gain_ms(&self) -> f64 {
        (self.live - self.floor).max(0.0)
    }

    /// The part of the gain that comes from shorter compute.
    fn contention_ms(&self) -> f64 {
        // Unusual batches change the compute in replay by the same amount as the step.
        let compute_ms = self.replay_compute + self.floor - self.replay;
        (self.live_compute - compute_ms).clamp(0.0, self.gain_ms())
    }
}

/// Returns the headspace if its interval is narrow enough and plausible. `spread_pct` is the spread of the
/// live windows, if they disagree.
fn require_plausible(
    mut headspace_pct: Estimate,
    spread_pct: Option<f64>,
) -> Result<Estimate, NoFloor> {
    if headspace_pct.high < SLOWER {
        return Err(NoFloor::ReplaySlower {
            pct: -headspace_pct.value,
        });
    }
    let half_pct = (headspace_pct.high - headspace_pct.low) / 2.0;
    headspace_pct.value = headspace_pct.value.max(0.0);
    headspace_pct.high = headspace_pct.high.max(0.0);
    if half_pct > WIDEST {
        let value_pct = headspace_pct.value;
        return Err(match spread_pct {
            Some(spread_pct) => NoFloor::Disagree {
                spread_pct,
                value_pct,
                half_pct,
            },
            None => NoFloor::TooWide {
                value_pct,
                half_pct,
            },
        });
    }
    Ok(headspace_pct)
}
