//! Linear equations with a symmetric positive definite matrix.

/// The Cholesky factor L of a symmetric positive definite matrix L Lᵀ: its lower triangle, by rows.
pub(super) struct CholeskyFactor(Vec<Vec<f64>>);

impl CholeskyFactor {
    /// Returns `None` if the matrix is not positive definite.
    pub(super) fn of_matrix(size: usize, element: impl Fn(usize, usize) -> f64) -> Option<Self> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
        for row in 0..size {
            let mut values: Vec<f64> = Vec::with_capacity(row + 1);
            for column in 0..row {
                let left = element(row, column) - product(&values, &rows[column][..column]);
                values.push(left / rows[column][column]);
            }
            let left = element(row, row) - product(&values, &values);
            values.push((left > 0.0).then(|| left.sqrt())?);
            rows.push(values);
        }
        Some(Self(rows))
    }

    /// Solves L x = `values`.
    pub(super) fn solve(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(self.0.len());
        for (row, value) in self.0.iter().zip(values) {
            let diagonal = row[solved.len()];
            solved.push((value - product(&row[..solved.len()], &solved)) / diagonal);
        }
        solved
    }

    /// Solves Lᵀ x = `values`.
    pub(super) fn solve_transposed(&self, values: &[f64]) -> Vec<f64> {
        let mut solved = values.to_vec();
        for row in (0..solved.len()).rev() {
            let below: f64 = (row + 1..solved.len())
                .map(|lower| self.0[lower][row] * solved[lower])
                .sum();
            solved[row] = (solved[row] - below) / self.0[row][row];
        }
        solved
    }

    /// Half the logarithm of the matrix's determinant.
    pub(super) fn half_log_determinant(&self) -> f64 {
        self.0
            .iter()
            .enumerate()
            .map(|(at, row)| row[at].ln())
            .sum()
    }
}

pub(super) fn product(first: &[f64], second: &[f64]) -> f64 {
    first.iter().zip(second).map(|(x, y)| x * y).sum()
}
