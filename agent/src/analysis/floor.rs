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
//! one process                  98.2 %   94.4 %   0.6 %    914
//! several ranks, fixed         97.8 %   94.5 %   0.3 %   1035
//! one process, probe_steps 800 97.6 %   93.7 %   0.7 %    697
//!                          500 92.1 %   92.4 %   1.7 %    451
//!                          300 85.6 %   91.6 %   4.9 %    256
//!                          200 81.8 %   88.6 %   8.4 %    134
//! ```
//!
//! Weakest where compute is 0.8 to 1.0 of the load (93 to 94 % within, 86 to 93 % covered): the
//! queue then empties and fills over hundreds of steps.

use thiserror::Error;

use super::bootstrap::{self, Blocks, Rng};
use super::content::Content;
use super::selection::{self, Kept};
use super::steady::{block_means, mean};
use crate::loader::Window;
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
         points (raise `probe_steps`)"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WindowStep;

    fn noise(rng: &mut Rng, level: f64) -> f64 {
        1.0 + level * (rng.unit() + rng.unit() - 1.0)
    }

    /// A window of steps of so many milliseconds of compute and wait, each within 10 %.
    fn window(phase: Phase, cycle: u32, steps: u32, compute_ms: f64, wait_ms: f64) -> Window {
        let mut rng = Rng::new(u64::from(cycle) * 2 + u64::from(phase == Phase::Live));
        let mut ns = |ms: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let ns = (ms * 1e6 * noise(&mut rng, 0.1)) as u64;
            ns
        };
        let steps = (0..steps)
            .map(|_| WindowStep {
                compute_ns: ns(compute_ms),
                wait_ns: ns(wait_ms),
                slot: None,
            })
            .collect();
        Window {
            phase,
            cycle,
            settled_at: Some(0),
            steps,
        }
    }

    /// Pairs of windows: live steps as given, 10 ms in replay.
    fn probe(live: &[(f64, f64)]) -> Vec<Window> {
        (0..)
            .zip(live)
            .flat_map(|(cycle, &(compute_ms, wait_ms))| {
                [
                    window(Phase::Live, cycle, 64, compute_ms, wait_ms),
                    window(Phase::Replay, cycle, 64, 10.0, 0.0),
                ]
            })
            .collect()
    }

    #[test]
    fn waits_are_headspace_and_the_interval_holds_it() {
        let floor = estimate(&probe(&[(10.0, 20.0); 4])).result.unwrap();
        let headspace = floor.headspace_pct;
        assert!((headspace.value - 66.7).abs() < 1.0, "{headspace:?}");
        assert!(
            headspace.low < 66.67 && 66.67 < headspace.high,
            "{headspace:?}"
        );
        assert!(headspace.high - headspace.low < 3.0, "{headspace:?}");
        assert!((floor.exposed_wait_ms - 20.0).abs() < 0.6, "{floor:?}");
        assert!(floor.contention_ms < 0.3, "{floor:?}");
    }

    #[test]
    fn compute_that_replay_relieves_is_contention_and_not_wait() {
        let floor = estimate(&probe(&[(14.0, 6.0); 4])).result.unwrap();
        assert!((floor.contention_ms - 4.0).abs() < 0.4, "{floor:?}");
        assert!((floor.exposed_wait_ms - 6.0).abs() < 0.4, "{floor:?}");
    }

    #[test]
    fn waiting_for_the_loader_is_no_headspace_where_the_device_is_busy_meanwhile() {
        let floor = estimate(&probe(&[(2.0, 8.0); 4])).result.unwrap();
        assert!(
            floor.headspace_pct.low <= 0.0 && floor.headspace_pct.value < 2.0,
            "{floor:?}"
        );
        assert!(floor.contention_ms.abs() < 1e-9, "{floor:?}");
    }

    #[test]
    fn the_same_windows_give_the_same_numbers() {
        let windows = probe(&[(10.0, 5.0); 4]);
        assert_eq!(estimate(&windows), estimate(&windows));
    }

    #[test]
    fn a_loop_that_changed_midway_gives_no_number() {
        let result = estimate(&probe(&[
            (10.0, 5.0),
            (10.0, 5.0),
            (10.0, 9.0),
            (10.0, 9.0),
        ]))
        .result;
        assert!(
            matches!(result, Err(NoFloor::Disagree { .. })),
            "{result:?}"
        );
    }

    #[test]
    fn a_replay_that_is_slower_than_live_gives_no_number() {
        let result = estimate(&probe(&[(8.0, 0.5); 4])).result;
        assert!(
            matches!(result, Err(NoFloor::ReplaySlower { .. })),
            "{result:?}"
        );
    }

    #[test]
    fn a_loop_that_never_settled_or_hardly_ran_gives_no_number() {
        let mut windows = probe(&[(10.0, 5.0); 2]);
        assert!(matches!(
            estimate(&windows[..1]).result,
            Err(NoFloor::TooFewSteps {
                live: 64,
                replay: 0
            })
        ));
        for window in windows
            .iter_mut()
            .filter(|window| window.phase == Phase::Live)
        {
            window.settled_at = None;
        }
        let analysis = estimate(&windows);
        assert_eq!(
            analysis.result,
            Err(NoFloor::Unsettled {
                unsettled: 2,
                windows: 2
            })
        );
        assert!(analysis.windows[0].unused.is_some());
        assert!(matches!(
            estimate(&[]).result,
            Err(NoFloor::TooFewSteps { .. })
        ));
    }

    #[test]
    fn a_window_whose_queue_was_still_full_is_left_out_with_its_reason() {
        let analysis = estimate(&probe(&[(10.0, 0.0), (10.0, 10.0), (10.0, 10.0)]));
        assert!(
            analysis.windows[0]
                .unused
                .as_ref()
                .unwrap()
                .contains("queue was still full")
        );
        assert!((analysis.result.unwrap().headspace_pct.value - 50.0).abs() < 2.0);
    }

    #[test]
    fn the_floor_is_that_of_the_end_of_the_last_replay_when_the_loader_stands_still() {
        let mut windows = probe(&[(14.0, 6.0); 3]);
        for replay in windows
            .iter_mut()
            .filter(|window| window.phase == Phase::Replay)
        {
            replay.steps = window(Phase::Replay, 7, 24, 14.0, 0.0).steps;
        }
        let last = windows.last_mut().unwrap();
        last.steps
            .extend(window(Phase::Replay, 8, 80, 10.0, 0.0).steps);
        let analysis = estimate(&windows);
        assert!(
            analysis.windows[1].unused.is_some(),
            "{:?}",
            analysis.windows
        );
        let floor = analysis.result.unwrap();
        assert!((floor.floor_ms.value - 10.0).abs() < 0.2, "{floor:?}");
    }

    #[test]
    fn cached_batches_that_happen_to_be_quick_do_not_lower_the_floor() {
        // Work per batch varies by a third; of the ten cached ones, all are among the quicker.
        let mut rng = Rng::new(5);
        let mut live = window(Phase::Live, 0, 200, 10.0, 5.0);
        let mut replay = window(Phase::Replay, 0, 200, 10.0, 0.0);
        let works: Vec<f64> = (0..200).map(|_| 1.0 + 0.6 * (rng.unit() - 0.5)).collect();
        let mut quick: Vec<usize> = (0..200).filter(|&i| works[i] < 1.05).take(10).collect();
        quick.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let scaled = |ns: u64, work: f64| (ns as f64 * work) as u64;
        for (i, step) in live.steps.iter_mut().enumerate() {
            step.compute_ns = scaled(step.compute_ns, works[i]);
            step.slot = quick
                .iter()
                .position(|&q| q == i)
                .and_then(|slot| u32::try_from(slot).ok());
        }
        for (i, step) in replay.steps.iter_mut().enumerate() {
            step.slot = u32::try_from(i % 10).ok();
            step.compute_ns = scaled(step.compute_ns, works[quick[i % 10]]);
        }
        let raw = mean(
            &replay
                .steps
                .iter()
                .map(|s| s.step_ns() as f64 * 1e-6)
                .collect::<Vec<_>>(),
        );
        let usual = 10.0 * mean(&works);
        assert!(
            usual - raw > 0.7,
            "{raw} of {usual}: the test has something to correct"
        );
        let floor = estimate(&[live, replay]).result.unwrap();
        assert!(
            (floor.floor_ms.value - usual).abs() < 0.4,
            "{floor:?}, not {usual}"
        );
    }
}
