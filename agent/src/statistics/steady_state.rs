//! Finds the beginning of the steady state in a series of block means, with two rules.
//!
//! - [`warmup_blocks`] finds how much of the start of a run to leave out, so that the mean of the rest is most
//!   precise (MSER-5: White, "An effective truncation heuristic for bias reduction in simulation output",
//!   Simulation 69(6), 1997).
//! - [`change_point`] finds whether and where the level of a window changes: the split with the largest
//!   two-sample t statistic (maximally selected: Hawkins, "Testing a sequence of observations for a shift in
//!   location", JASA 72, 1977).
//!
//! MSER alone would reduce a series of rare waits to its quietest end, and bias the mean.

use super::mean;

/// Minimum number of warm-up steps to drop (the convention of SPDL's performance notes).
pub const LEAST_WARMUP: usize = 20;

/// Minimum number of steady steps for a mean.
pub const LEAST_STEADY: u64 = 10;

/// Minimum number of steps for a result: the shortest warm-up, and the fewest steps after it.
pub const ENOUGH_STEPS: u64 = LEAST_WARMUP as u64 + LEAST_STEADY;

/// Number of leading blocks to drop before the mean of the rest is computed, by MSER (MSER-5 with blocks of 5
/// values). `None` if there are fewer than 4 blocks, or if the best truncation is in the second half: the
/// series then had hardly begun to settle when it ended.
pub fn warmup_blocks(block_means: &[f64]) -> Option<usize> {
    let count = block_means.len();
    if count < 4 {
        return None;
    }
    let cut = best_cut(block_means);
    (cut <= count / 2).then_some(cut)
}

/// Number of leading blocks without which the mean of the rest is most precise.
pub fn best_cut(block_means: &[f64]) -> usize {
    let count = block_means.len();
    let (mut sum, mut squares) = (0.0, 0.0);
    // Values are centred first, to avoid cancellation in the difference of squares below.
    let centre = mean(block_means);
    let mut best = (f64::INFINITY, 0);
    // The last few blocks are not candidates: two equal blocks at the end would always win.
    for (at, value) in block_means.iter().enumerate().rev() {
        sum += value - centre;
        squares += (value - centre).powi(2);
        let kept = (count - at) as f64;
        // If all values are equal, the spread is only a rounding error, which must not decide.
        let spread = squares - sum * sum / kept;
        let error = if spread < 1e-9 * squares {
            0.0
        } else {
            spread / (kept * kept)
        };
        if at + 4 <= count && error <= best.0 {
            best = (error, at);
        }
    }
    best.1
}

/// The split with the largest difference of levels: the number of leading blocks, at most `last`, whose mean
/// differs most from the mean of the rest. `None` if no difference exceeds `threshold` standard errors.
pub fn change_point(block_means: &[f64], last: usize, threshold: f64) -> Option<usize> {
    let count = block_means.len();
    let centre = mean(block_means);
    let squares: f64 = block_means.iter().map(|x| (x - centre).powi(2)).sum();
    let mut best = (threshold, None);
    let mut head = 0.0;
    for (seen, value) in (1..=last.min(count.saturating_sub(1))).zip(block_means) {
        head += value - centre;
        let (a, b) = (seen as f64, (count - seen) as f64);
        // The centred values of the tail add up to -head.
        let between = head * head * (1.0 / a + 1.0 / b);
        let floor = 1e-18 * centre * centre;
        let within = ((squares - between) / (count as f64 - 2.0)).max(floor);
        let statistic = (between / within).sqrt();
        if count > 4 && statistic > best.0 {
            best = (statistic, Some(seen));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wiggle(i: usize) -> f64 {
        [0.0, 0.3, -0.2, 0.1, -0.3, 0.2, -0.1][i % 7]
    }

    #[test]
    fn a_slow_beginning_is_dropped_and_the_rest_is_kept() {
        let blocks: Vec<f64> = (0..40)
            .map(|i| 10.0 + wiggle(i) + if i < 6 { 20.0 / (i + 1) as f64 } else { 0.0 })
            .collect();
        let dropped = warmup_blocks(&blocks).unwrap();
        assert!((5..12).contains(&dropped), "{dropped}");
    }

    #[test]
    fn a_steady_series_keeps_most_of_itself() {
        let blocks: Vec<f64> = (0..40).map(|i| 10.0 + wiggle(i)).collect();
        assert!(warmup_blocks(&blocks).unwrap() < 8);
        assert_eq!(change_point(&blocks, 30, 4.0), None);
    }

    #[test]
    fn a_series_that_settles_past_its_middle_has_no_steady_state() {
        let blocks: Vec<f64> = (0..40)
            .map(|i| if i < 30 { 50.0 - i as f64 } else { 10.0 } + wiggle(i))
            .collect();
        assert_eq!(warmup_blocks(&blocks), None);
        assert_eq!(warmup_blocks(&[1.0, 1.0]), None);
    }

    #[test]
    fn a_change_of_the_level_is_found_at_its_position() {
        let blocks: Vec<f64> = (0..30)
            .map(|i| if i < 17 { 12.0 } else { 10.0 } + wiggle(i))
            .collect();
        assert_eq!(change_point(&blocks, 25, 4.0), Some(17));
        assert_eq!(change_point(&[3.0; 12], 9, 4.0), None);
        assert_eq!(change_point(&[], 9, 4.0), None);
    }
}
