//! By how much the levels of windows are apart.
//!
//! The variance between windows is compared with what the steps within them explain (one-way random
//! effects: Searle, Casella and `McCulloch`, "Variance Components", 1992, ch. 3; its ratio is the squared
//! Birge ratio, Physical Review 40, 1932).

use crate::statistics::{block_means, mean};

/// Longest run of steps with one level. A longer window is cut into runs of about that length.
const PIECE: usize = 64;

/// How far the levels of the pieces of a series are apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Between {
    /// Variance of the level from piece to piece beyond what steps explain, relative to the squared
    /// mean.
    variance: f64,
    /// Variance between pieces over what the steps within them explain: 1 where their levels agree.
    pub(super) ratio: f64,
}

impl Between {
    /// Of windows of steps, whose neighbours are correlated over `block` steps.
    pub(super) fn from_windows(windows: &[Vec<f64>], block: usize) -> Self {
        let pieces: Vec<&[f64]> = (windows.iter())
            .flat_map(|window| pieces_of(window, block))
            .collect();
        let total: f64 = pieces.iter().map(|piece| piece.len() as f64).sum();
        let centre = mean(&windows.concat());
        let freedom = pieces.len() as f64 - 1.0;
        let squares: f64 = pieces
            .iter()
            .map(|piece| (piece.len() as f64).powi(2))
            .sum();
        let (mut inside, mut blocks, mut apart) = (0.0, 0.0, 0.0);
        for piece in &pieces {
            let level = mean(piece);
            let means = block_means(piece, block);
            inside += means.iter().map(|m| (m - level).powi(2)).sum::<f64>();
            blocks += means.len() as f64 - 1.0;
            apart += piece.len() as f64 * (level - centre).powi(2);
        }
        if freedom < 1.0 || blocks < 1.0 || centre <= 0.0 {
            return Self {
                variance: 0.0,
                ratio: 1.0,
            };
        }
        let per_step = (inside / blocks * block as f64).max(1e-12 * centre * centre);
        let ratio = apart / freedom / per_step;
        // Steps of a piece, on average, as this estimate weighs them.
        let size = (total - squares / total) / freedom;
        Self {
            variance: (ratio - 1.0).max(0.0) * per_step / size / (centre * centre),
            ratio,
        }
    }

    /// Standard deviation of the level from piece to piece, relative to the mean.
    pub(super) fn deviation(&self) -> f64 {
        self.variance.sqrt()
    }
}

/// Runs of about [`PIECE`] steps, whole blocks; all of a shorter window.
pub(super) fn pieces_of(window: &[f64], block: usize) -> impl Iterator<Item = &[f64]> {
    let count = ((window.len() + PIECE / 2) / PIECE).max(1);
    let length = window.len().div_ceil(count).max(1);
    window.chunks(length.next_multiple_of(block.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::Rng;

    fn windows(levels: &[f64], rng: &mut Rng) -> Vec<Vec<f64>> {
        levels
            .iter()
            .map(|level| (0..64).map(|_| level + rng.unit() - 0.5).collect())
            .collect()
    }

    #[test]
    fn windows_at_one_level_agree_and_windows_at_two_levels_differ_by_their_distance() {
        let mut rng = Rng::new(4);
        let alike = Between::from_windows(&windows(&[10.0; 6], &mut rng), 8);
        let apart =
            Between::from_windows(&windows(&[9.0, 11.0, 9.0, 11.0, 9.0, 11.0], &mut rng), 8);

        assert!(alike.ratio < 3.0, "{alike:?}");
        assert!((apart.deviation() - 0.11).abs() < 0.03, "{apart:?}");
    }
}
