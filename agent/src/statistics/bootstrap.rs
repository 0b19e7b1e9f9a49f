//! Resamples correlated series, and computes intervals from the resamples.
//!
//! Blocks of neighbouring steps are drawn with replacement, which keeps the correlation within a block
//! (moving blocks: Künsch, Annals of Statistics 17, 1989). Blocks do not cross windows. The seed is fixed, so
//! the same steps give the same interval.

use super::{NORMAL, lower_quantile, mean, student};

/// xoshiro256++ seeded by splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom number
/// generators", ACM TOMS 47(4), 2021). For resampling, not for secrets.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator. Every seed is suitable.
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = std::array::from_fn(|_| {
            counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = counter;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { state }
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal number (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// A number below `bound`. `bound` must be at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.bits()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or_default()
    }
}

/// The means of all blocks of neighbouring values within the windows.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    means: Vec<f64>,
    centre: f64,
    /// Number of blocks in a resample, which is as long as the series.
    draws: usize,
    /// Factor by which deviations are widened.
    expansion: f64,
}

impl Blocks {
    pub(crate) fn from_windows(windows: &[Vec<f64>], length: usize) -> Self {
        let total: usize = windows.iter().map(Vec::len).sum();
        let draws = (total / length.max(1)).max(2);
        let means: Vec<f64> = windows
            .iter()
            .flat_map(|window| {
                let length = length.min(window.len()).max(1);
                window.windows(length).map(mean).collect::<Vec<_>>()
            })
            .collect();
        Self {
            centre: mean(&means),
            means,
            draws,
            // Approximate degrees of freedom: the number of whole blocks less one.
            expansion: expansion(draws as f64 - 1.0),
        }
    }

    /// Deviation of a resample's mean from the mean of all blocks, widened by [`expansion`]. It varies like
    /// the mean of the series.
    pub(crate) fn deviation(&self, rng: &mut Rng) -> f64 {
        if self.means.is_empty() {
            return 0.0;
        }
        let sum: f64 = (0..self.draws)
            .map(|_| self.means[rng.below(self.means.len())])
            .sum();
        (sum / self.draws as f64 - self.centre) * self.expansion
    }
}

/// Factor by which to widen deviations of a resampled mean, so that their percentiles are a 95 % interval.
/// The variation of n = `freedom + 1` blocks is too small by sqrt((n - 1)/n), and their variance is an
/// estimate (expanded percentiles: Hesterberg, "What teachers should know about the bootstrap", The American
/// Statistician 69, 2015).
pub(crate) fn expansion(freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    student(freedom) / NORMAL * ((freedom + 1.0) / freedom).sqrt()
}

/// The 2.5 % and 97.5 % percentiles.
pub(crate) fn percentiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        lower_quantile(&values, 0.025),
        lower_quantile(&values, 0.975),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_spread_over_the_unit_interval() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let numbers: Vec<f64> = (0..4000).map(|_| a.unit()).collect();
        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)));
        assert_eq!(numbers[0].to_bits(), b.unit().to_bits());
        assert!((mean(&numbers) - 0.5).abs() < 0.02);
        assert!((0..1000).all(|_| a.below(3) < 3));
    }

    #[test]
    fn resampled_means_vary_like_the_mean_of_a_correlated_series() {
        // An autoregressive series: its mean varies (1 + r) / (1 - r) times as much as that of
        // independent values.
        let (r, n) = (0.6, 4000_u16);
        let mut rng = Rng::new(1);
        let mut x = 0.0;
        let series: Vec<f64> = (0..n)
            .map(|_| {
                x = r * x + rng.unit() - 0.5;
                x
            })
            .collect();
        let blocks = Blocks::from_windows(&[series], 40);
        let deviations: Vec<f64> = (0..2000).map(|_| blocks.deviation(&mut rng)).collect();
        let truth = (1.0 / 12.0 / f64::from(n)).sqrt() / (1.0 - r);
        let ratio = crate::statistics::variance(&deviations).sqrt() / truth;
        assert!((0.8..1.2).contains(&ratio), "{ratio}");
    }
}
