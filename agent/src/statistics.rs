//! Computes means, variances, quantiles and Student's t for the probe and the analyses.

pub mod bootstrap;
pub mod precision;
pub(crate) mod ranks;
pub mod steady_state;
pub(crate) mod window_ratio;

use crate::model::record::Estimate;

/// Half of a 95 % interval in standard errors: the 97.5 % quantile of the normal distribution.
pub(crate) const NORMAL: f64 = 1.959_964;

/// Minimum number of batches to estimate how much their means vary.
const LEAST_BATCHES: usize = 4;

/// Steps of the integral over half of Student's distribution. The result has more than six correct digits.
const STEPS: i32 = 256;

/// Degrees of freedom of an error from 8 batches. [`batch_means_variance`] makes all errors comparable to
/// these.
pub const FREEDOM: f64 = 7.0;

/// Arithmetic mean; 0 without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    mean_of(values.iter().copied())
}

/// [`mean`] of values that are not stored in a slice.
pub(crate) fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    mean_and_count(values).0
}

fn mean_and_count(values: impl Iterator<Item = f64>) -> (f64, usize) {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), x| (sum + x, count + 1));
    (sum / count.max(1) as f64, count)
}

/// Sample variance; 0 for fewer than two values.
pub(crate) fn variance(values: &[f64]) -> f64 {
    variance_of(values.iter().copied())
}

/// [`variance`] of values that are not stored in a slice.
pub(crate) fn variance_of(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (centre, count) = mean_and_count(values.clone());
    let squares: f64 = values.map(|x| (x - centre).powi(2)).sum();
    squares / count.saturating_sub(1).max(1) as f64
}

/// A proportion of this many samples with its 95 % interval: the score interval of Wilson, *Probable Inference, the Law of
/// Succession, and Statistical Inference* (1927). It does not vanish at 0 and 1. Without samples, it is all of `[0, 1]`.
pub(crate) fn proportion(value: f64, samples: f64) -> Estimate {
    let z_squared = NORMAL * NORMAL;
    let all = samples + z_squared;
    let centre = (value * samples + z_squared / 2.0) / all;
    let margin = NORMAL * (value * (1.0 - value) * samples + z_squared / 4.0).sqrt() / all;
    Estimate {
        value,
        low: (centre - margin).max(0.0),
        high: (centre + margin).min(1.0),
    }
}

/// The value below which the share `share` of the sorted values lies, interpolated between neighbours; 0
/// without values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = quantile_position(sorted, share);
    let (below, above) = (
        value_at(sorted, position.floor()),
        value_at(sorted, position.ceil()),
    );
    below + (above - below) * position.fract()
}

/// Like [`quantile`], but always one of the values: the lower neighbour.
pub(crate) fn lower_quantile(sorted: &[f64], share: f64) -> f64 {
    value_at(sorted, quantile_position(sorted, share).floor())
}

fn quantile_position(sorted: &[f64], share: f64) -> f64 {
    share.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64
}

fn value_at(sorted: &[f64], index: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to the number of values"
    )]
    let index = index as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// Mean of each block of `length` values. An incomplete last block is left out.
pub fn block_means(values: &[f64], length: usize) -> Vec<f64> {
    values.chunks_exact(length.max(1)).map(mean).collect()
}

/// The standard error of a normal estimate with this 95 % interval.
pub(crate) fn standard_error(low: f64, high: f64) -> f64 {
    (high - low) / 2.0 / NORMAL
}

/// The squared standard error of `sum / weight` of a correlated series, from ordered pairs of weight and sum.
/// It is the spread of about `batches` batches of equal weight (batch means: Law, "Simulation Modeling and
/// Analysis", chapter 9). `None` for fewer than four batches.
///
/// The spread of few batches is less certain. The error is increased so that [`FREEDOM`] degrees of freedom
/// apply.
pub(crate) fn batch_means_variance(parts: &[(f64, f64)], batches: usize) -> Option<f64> {
    let weight: f64 = parts.iter().map(|part| part.0).sum();
    let mean = parts.iter().map(|part| part.1).sum::<f64>() / weight;
    let mut squares = 0.0;
    let mut count = 0.0;
    let (mut seen, mut open) = (0.0, (0.0, 0.0));
    for (w, sum) in parts.iter().filter(|part| part.0 > 0.0) {
        seen += w;
        open = (open.0 + w, open.1 + sum);
        if seen >= weight * (count + 1.0) / batches as f64 - 1e-9 * weight {
            squares += (open.1 - mean * open.0).powi(2);
            count += 1.0;
            open = (0.0, 0.0);
        }
    }
    let freedom = (count - 1.0).min(FREEDOM);
    (count >= LEAST_BATCHES as f64).then(|| {
        let unsure = student(freedom) / student(FREEDOM);
        squares * count / (count - 1.0) / weight.powi(2) * unsure.powi(2)
    })
}

/// Half of a 95 % interval in standard errors, with `freedom` degrees of freedom.
pub(crate) fn student(freedom: f64) -> f64 {
    student_quantile(freedom, 0.975)
}

/// Quantile of Student's t with `freedom` degrees of freedom, at least 1, for a probability from one half to
/// less than 1.
///
/// With `t = sqrt(freedom) * sinh(u)` the density of `u` is proportional to `cosh(u)^-freedom`. It is
/// integrated by Simpson's rule from the middle on. Newton's method gives the last step.
pub fn student_quantile(freedom: f64, probability: f64) -> f64 {
    let freedom = freedom.max(1.0);
    let density = |u: f64| u.cosh().powf(-freedom);
    let area = |from: f64, length: f64| {
        let middle = 4.0 * density(from + length / 2.0);
        length / 6.0 * (density(from) + middle + density(from + length))
    };
    // Above this limit, the density is below the rounding error.
    let step = 1e17_f64.powf(1.0 / freedom).acosh() / f64::from(STEPS);
    let starts = || (0..STEPS).map(|number| f64::from(number) * step);
    let half: f64 = starts().map(|from| area(from, step)).sum();
    let mut left = (2.0 * probability - 1.0) * half;
    let mut from = 0.0;
    for next in starts() {
        from = next;
        let whole = area(from, step);
        if left < whole {
            break;
        }
        left -= whole;
    }
    let mut length = left / density(from);
    for _ in 0..4 {
        length -= (area(from, length) - left) / density(from + length);
    }
    freedom.sqrt() * (from + length).sinh()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_proportion_is_that_of_wilson() {
        // Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I, method 3.
        let table = [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ];
        for (hits, samples, low, high) in table {
            let found = proportion(hits / samples, samples);
            assert!(
                (found.low - low).abs() < 6e-5,
                "{hits}/{samples}: {found:?}"
            );
            assert!(
                (found.high - high).abs() < 6e-5,
                "{hits}/{samples}: {found:?}"
            );
        }
        let unknown = proportion(1.0, 0.0);
        assert_eq!((unknown.low, unknown.high), (0.0, 1.0));
    }

    #[test]
    fn quantiles_of_students_t_match_the_tables() {
        // Abramowitz and Stegun, "Handbook of Mathematical Functions", table 26.10; the last line by
        // integrating the density.
        let table = [
            (1.0, 0.975, 12.706),
            (2.0, 0.975, 4.303),
            (3.0, 0.975, 3.182),
            (7.0, 0.975, 2.365),
            (7.0, 0.995, 3.499),
            (30.0, 0.975, 2.042),
            (5.0, 0.75, 0.727),
            (1e6, 0.975, NORMAL),
            (2.5, 0.975, 3.575),
        ];
        for (freedom, probability, expected) in table {
            let found = student_quantile(freedom, probability);
            assert!((found - expected).abs() < 6e-4, "{freedom}: {found}");
        }
    }

    #[test]
    fn a_lower_quantile_is_one_of_the_values_and_a_quantile_lies_between_two() {
        let sorted = [1.0, 2.0, 4.0, 8.0];

        assert!((quantile(&sorted, 0.5) - 3.0).abs() < 1e-12);
        assert!((lower_quantile(&sorted, 0.5) - 2.0).abs() < 1e-12);
        assert!((quantile(&sorted, 1.0) - 8.0).abs() < 1e-12);
        assert!(quantile(&[], 0.5).abs() < 1e-12);
    }

    #[test]
    fn few_batches_have_a_larger_error_than_many_with_the_same_spread() {
        let error = |count: usize| {
            let parts: Vec<(f64, f64)> = (0..count)
                .map(|i| (1.0, if i % 2 == 0 { 9.0 } else { 11.0 }))
                .collect();
            batch_means_variance(&parts, count).unwrap() * count as f64
        };

        assert!(error(4) > 1.5 * error(8), "{} {}", error(4), error(8));
    }

    #[test]
    fn the_interval_of_a_normal_estimate_determines_its_error() {
        let found = standard_error(10.0 - 2.0 * NORMAL, 10.0 + 2.0 * NORMAL);

        assert!((found - 2.0).abs() < 1e-12);
    }
}
