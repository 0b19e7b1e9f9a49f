//! By how much the level of the steps differs from one part of a probe to the next.
//!
//! Steps within a window vary about its level, and the level itself varies with what else the
//! machine does. Many steps average out the first, only many windows the second. So the variance is
//! split in two (one-way random effects: Searle, Casella and McCulloch, "Variance Components", 1992,
//! ch. 3), and the interval has both, each with as many degrees of freedom as it was measured with
//! (Satterthwaite, Biometrics Bulletin 2, 1946).

use super::bootstrap::student;
use super::steady::{block_means, mean};

/// Longest run of steps with one level. A longer window is cut into runs of about that length.
const PIECE: usize = 64;

/// 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_964;

/// Degrees of freedom that another phase's variance counts for at most, where it is borrowed.
const BORROWED: f64 = 3.0;

/// How far the levels of the pieces of a series are apart.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Levels {
    /// Variance of the mean by what the steps within pieces explain.
    within: f64,
    /// Variance of the level from piece to piece beyond that, relative to the squared mean.
    between: f64,
    /// Pieces less one.
    freedom: f64,
    /// The share of `between` that is left in the mean of all pieces.
    share: f64,
    /// Blocks within pieces, less one each.
    blocks: f64,
    /// Variance between pieces over what the steps within them explain.
    ratio: f64,
    mean: f64,
}

impl Levels {
    /// Of windows of steps, whose neighbours are correlated over `block` steps.
    pub(super) fn of(windows: &[Vec<f64>], block: usize) -> Self {
        let pieces: Vec<&[f64]> = (windows.iter())
            .flat_map(|window| pieces(window, block))
            .collect();
        let total: f64 = pieces.iter().map(|piece| piece.len() as f64).sum();
        let centre = mean(&windows.concat());
        let freedom = pieces.len() as f64 - 1.0;
        let squares: f64 = pieces.iter().map(|piece| (piece.len() as f64).powi(2)).sum();
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
                mean: centre,
                ratio: 1.0,
                share: 1.0,
                ..Self::default()
            };
        }
        let per_step = (inside / blocks * block as f64).max(1e-12 * centre * centre);
        let ratio = apart / freedom / per_step;
        // Steps of a piece, on average, as this estimate weighs them.
        let size = (total - squares / total) / freedom;
        Self {
            within: per_step / total,
            between: (ratio - 1.0).max(0.0) * per_step / size / (centre * centre),
            freedom,
            share: squares / (total * total),
            blocks,
            ratio,
            mean: centre,
        }
    }

    /// Variance between pieces over what their steps explain: 1 where their levels agree.
    pub(super) fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Standard deviation of the level from piece to piece, relative to the mean.
    pub(super) fn deviation(&self) -> f64 {
        self.between.sqrt()
    }

    /// The same levels, where what is known of `other` counts too: few pieces tell little of how a
    /// machine varies, and the other phase ran on the same machine at the same time.
    pub(super) fn with(self, other: &Self) -> Self {
        let borrowed = other.freedom.min(BORROWED);
        let freedom = self.freedom + borrowed;
        if freedom <= 0.0 {
            return self;
        }
        Self {
            between: (self.freedom * self.between + borrowed * other.between) / freedom,
            freedom,
            ..self
        }
    }

    /// Standard deviation that stands for the levels in a 95 % interval of the mean, widened for how
    /// few pieces it comes from.
    pub(super) fn widening(&self) -> f64 {
        let levels = self.between * self.mean * self.mean * self.share;
        if levels <= 0.0 {
            return 0.0;
        }
        let parts = levels.powi(2) / self.freedom.max(1.0)
            + self.within.powi(2) / self.blocks.max(1.0);
        let freedom = (levels + self.within).powi(2) / parts;
        levels.sqrt() * student(freedom.max(1.0)) / Z
    }
}

/// Runs of about [`PIECE`] steps, whole blocks; all of a shorter window.
fn pieces(window: &[f64], block: usize) -> impl Iterator<Item = &[f64]> {
    let count = ((window.len() + PIECE / 2) / PIECE).max(1);
    let length = window.len().div_ceil(count).max(1);
    window.chunks(length.next_multiple_of(block.max(1)))
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::Rng;
    use super::*;

    fn windows(levels: &[f64], rng: &mut Rng) -> Vec<Vec<f64>> {
        levels
            .iter()
            .map(|level| (0..64).map(|_| level + rng.unit() - 0.5).collect())
            .collect()
    }

    #[test]
    fn windows_at_one_level_widen_little_and_windows_at_several_much() {
        let mut rng = Rng::new(4);
        let alike = Levels::of(&windows(&[10.0; 6], &mut rng), 8);
        let apart = Levels::of(&windows(&[9.0, 11.0, 9.0, 11.0, 9.0, 11.0], &mut rng), 8);

        assert!(alike.widening() < 0.15, "{alike:?}");
        assert!((apart.deviation() - 0.11).abs() < 0.03, "{apart:?}");
        // Six levels that deviate by 1.1 are known to 0.45, and by Student to 0.59.
        assert!((0.5..0.75).contains(&apart.widening()), "{apart:?}");
    }

    #[test]
    fn a_single_window_has_the_variation_of_the_other_phase() {
        let mut rng = Rng::new(4);
        let single = Levels::of(&windows(&[5.0], &mut rng), 8);
        let other = Levels::of(&windows(&[9.0, 11.0, 9.0, 11.0], &mut rng), 8);

        assert!(single.widening() < 1e-9);
        assert!(single.with(&other).widening() > 0.4, "{single:?}");
    }
}
