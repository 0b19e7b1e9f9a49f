//! The measured time of a stage's call with fewer calls at once than now.
//!
//! A line (`calls_at_once.rs`) is enough to extrapolate to more calls. For fewer calls the shape matters: if the time
//! grows faster than the number of calls, fewer calls deliver more. So the measured times themselves are used, with
//! straight lines between them. More calls at once never make a call faster, so times that fall are averaged with their
//! neighbours (isotonic regression: Barlow et al., *Statistical Inference Under Order Restrictions*, 1972).

use super::calls_at_once::measured_levels;
use super::queueing_model::Model;
use crate::model::record::CallsAtOnce;

/// A measured time of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// Number of calls at once.
    calls: f64,
    mean_ms: f64,
    /// Standard error of the mean, as a share of it.
    error: f64,
}

/// The time of a call over the number of calls at once. It does not fall.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallTimeCurve(Vec<Point>);

/// Times of neighbouring levels that are averaged.
#[derive(Debug, Clone, Copy)]
struct Block {
    levels: usize,
    count: f64,
    mean_ms: f64,
}

impl CallTimeCurve {
    /// The measured times of a stage's calls. `None` if its calls are not known to slow each other.
    pub(super) fn of(model: &Model<'_>, stage: usize) -> Option<Self> {
        measured_levels(model, stage).map(|levels| Self::through(&levels))
    }

    /// The curve through the times of levels, in ascending order.
    fn through(levels: &[CallsAtOnce]) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        for level in levels {
            let mut block = Block {
                levels: 1,
                count: level.count as f64,
                mean_ms: level.mean_ms,
            };
            while let Some(before) = blocks.pop_if(|before| before.mean_ms >= block.mean_ms) {
                block = before.merge(block);
            }
            blocks.push(block);
        }
        let fitted = blocks
            .iter()
            .flat_map(|block| std::iter::repeat_n(block, block.levels));
        let points = levels.iter().zip(fitted).map(|(level, block)| Point {
            calls: f64::from(level.calls),
            mean_ms: block.mean_ms,
            error: level.sd_ms / block.count.max(1.0).sqrt() / block.mean_ms,
        });
        Self(points.collect())
    }

    /// Time of a call if `calls` run at once, and its standard error as a share. `None` below the lowest measured number.
    pub(super) fn call_ms(&self, calls: u32) -> Option<(f64, f64)> {
        let calls = f64::from(calls);
        let above = self.0.iter().position(|point| point.calls >= calls);
        let Some(above) = above else {
            return self.0.last().map(|last| (last.mean_ms, last.error));
        };
        let high = self.0[above];
        if high.calls <= calls {
            return Some((high.mean_ms, high.error));
        }
        let low = self.0[above.checked_sub(1)?];
        let share = (calls - low.calls) / (high.calls - low.calls);
        let mean_ms = low.mean_ms + share * (high.mean_ms - low.mean_ms);
        Some((mean_ms, low.error.max(high.error)))
    }
}

impl Block {
    fn merge(self, next: Self) -> Self {
        let count = self.count + next.count;
        Self {
            levels: self.levels + next.levels,
            count,
            mean_ms: (self.count * self.mean_ms + next.count * next.mean_ms) / count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(means_ms: &[(u32, f64)]) -> CallTimeCurve {
        let levels = means_ms.iter().map(|(calls, mean_ms)| CallsAtOnce {
            calls: *calls,
            count: 100,
            mean_ms: *mean_ms,
            sd_ms: 2.0,
        });
        CallTimeCurve::through(&levels.collect::<Vec<_>>())
    }

    fn call_ms(curve: &CallTimeCurve, calls: u32) -> Option<f64> {
        curve.call_ms(calls).map(|(ms, _)| ms)
    }

    #[test]
    fn times_between_measured_numbers_lie_on_straight_lines() {
        let curve = curve(&[(2, 10.0), (4, 20.0), (8, 100.0)]);
        assert_eq!(call_ms(&curve, 1), None);
        assert_eq!(call_ms(&curve, 2), Some(10.0));
        assert_eq!(call_ms(&curve, 3), Some(15.0));
        assert_eq!(call_ms(&curve, 6), Some(60.0));
        assert_eq!(call_ms(&curve, 9), Some(100.0));
    }

    #[test]
    fn times_that_fall_are_averaged() {
        let curve = curve(&[(1, 10.0), (2, 30.0), (3, 20.0), (4, 40.0)]);
        let all: Vec<_> = (1..=4).map(|calls| call_ms(&curve, calls)).collect();
        assert_eq!(all, [10.0, 25.0, 25.0, 40.0].map(Some));
    }

    #[test]
    fn the_error_of_a_time_is_that_of_its_calls() {
        let (_, error) = curve(&[(1, 10.0), (2, 20.0)]).call_ms(1).unwrap();
        assert!((error - 0.02).abs() < 1e-12);
    }
}
