//! Compares two samples by the ranks of their values, which no single extreme value decides (Mann and Whitney, Annals of
//! Mathematical Statistics 18, 1947).

/// By how many standard deviations the values of `more` are larger by rank than without a difference. Equal values count
/// half, and reduce the deviation (Lehmann, "Nonparametrics", 1975, section 1.4).
pub(crate) fn rank_difference(more: &[f64], less: &[f64]) -> f64 {
    let (m, n) = (more.len() as f64, less.len() as f64);
    let mut wins = 0.0;
    for x in more {
        for y in less {
            wins += match x.total_cmp(y) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    let mut all: Vec<f64> = more.iter().chain(less).copied().collect();
    all.sort_by(f64::total_cmp);
    let ties = all.chunk_by(|a, b| a.total_cmp(b).is_eq());
    let ties: f64 = ties
        .map(|equal| (equal.len() as f64).powi(3) - equal.len() as f64)
        .sum();
    let total = m + n;
    let variance = m * n / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    (wins - m * n / 2.0) / variance.max(f64::MIN_POSITIVE).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_separate_values_differ_and_those_of_equal_ones_do_not() {
        let low = [1.0, 2.0, 3.0, 4.0];
        let high = [5.0, 6.0, 7.0, 8.0];

        assert!(rank_difference(&high, &low) >= 2.3);
        assert!(rank_difference(&low, &high) <= -2.3);
        assert!(rank_difference(&low, &low).abs() < 1e-9);
        assert!(rank_difference(&[0.0; 5], &[0.0; 5]).abs() < 1e-9);
    }
}
