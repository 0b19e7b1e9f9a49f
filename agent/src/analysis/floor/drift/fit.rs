//! Fits one model of the drift of levels to the windows.

use super::cholesky::{CholeskyFactor, product};

/// The two phases: whether each one is replay.
const PHASES: [bool; 2] = [false, true];

/// A run of steps with one level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) replayed: bool,
    /// Time of its middle, in milliseconds of the probe.
    pub(super) at_ms: f64,
    /// Logarithm of its mean step.
    pub(super) level: f64,
    /// Variance of `level` caused by the steps within the piece.
    pub(super) variance: f64,
}

/// A model of the drift: an Ornstein-Uhlenbeck process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wandering {
    pub(super) deviation: f64,
    /// Correlation time in milliseconds. 0: the drift of each piece is independent.
    pub(super) memory_ms: f64,
    /// Whether both phases share the same drift.
    pub(super) shared: bool,
    /// The period over which mean levels are estimated: begin and end, in milliseconds of the probe.
    pub(super) period: (f64, f64),
}

impl Wandering {
    /// Covariance of the drift in two phases at the same time; 0 if they do not share it.
    fn variance(&self, one_replayed: bool, other_replayed: bool) -> f64 {
        let common = self.shared || one_replayed == other_replayed;
        f64::from(u8::from(common)) * self.deviation * self.deviation
    }

    /// Covariance of different pieces.
    pub(super) fn between(&self, one: &Piece, other: &Piece) -> f64 {
        if self.memory_ms <= 0.0 {
            return 0.0;
        }
        let apart = (one.at_ms - other.at_ms).abs();
        self.variance(one.replayed, other.replayed) * (-apart / self.memory_ms).exp()
    }

    /// Covariance of two of the pieces, which may be the same.
    fn of_pieces(&self, pieces: &[Piece], one: usize, other: usize) -> f64 {
        if one == other {
            self.deviation * self.deviation
        } else {
            self.between(&pieces[one], &pieces[other])
        }
    }

    /// Covariance of a piece and the mean over the period.
    pub(super) fn with_mean(&self, piece: &Piece, replayed: bool) -> f64 {
        let (begin, end) = self.period;
        let memory = self.memory_ms;
        if memory <= 0.0 || end <= begin {
            return 0.0;
        }
        let faded = |apart: f64| 1.0 - (-apart / memory).exp();
        let alike =
            memory * (faded(piece.at_ms - begin) + faded(end - piece.at_ms)) / (end - begin);
        self.variance(piece.replayed, replayed) * alike
    }

    /// Covariance of the means of two phases over the period.
    pub(super) fn of_means(&self, one_replayed: bool, other_replayed: bool) -> f64 {
        let (begin, end) = self.period;
        let ratio = self.memory_ms / (end - begin).max(1e-9);
        if ratio <= 0.0 {
            return 0.0;
        }
        let alike = 2.0 * ratio * (1.0 - ratio * (1.0 - (-1.0 / ratio).exp()));
        self.variance(one_replayed, other_replayed) * alike
    }
}

/// One fitted model of the drift.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fit {
    pub(super) weight: f64,
    /// Logarithms of the levels live and in replay.
    pub(super) levels: [f64; 2],
    /// Covariance of both levels caused by drift: live variance, replay variance, covariance.
    pub(super) covariance: [f64; 3],
}

/// Fits one model by generalised least squares. The weight is the logarithm of the restricted likelihood.
/// The levels are the best linear predictions of their means over the period (universal kriging: Cressie,
/// "Statistics for Spatial Data", 1993, ch. 3.4).
pub(super) fn fit(pieces: &[Piece], wandering: &Wandering) -> Option<Fit> {
    let factor = CholeskyFactor::of_matrix(pieces.len(), |i, j| {
        wandering.of_pieces(pieces, i, j) + if i == j { pieces[i].variance } else { 0.0 }
    })?;
    let is = PHASES.map(|phase| {
        let phases = pieces.iter().map(move |piece| piece.replayed == phase);
        factor.solve(phases.map(|is| f64::from(u8::from(is))))
    });
    let level = factor.solve(pieces.iter().map(|piece| piece.level));
    let normal = NormalEquations::from_indicators(&is)?;
    let centres = normal.solve(product(&is[0], &level), product(&is[1], &level));
    let residual: Vec<f64> = (level.iter().zip(&is[0]).zip(&is[1]))
        .map(|((level, live), replay)| level - centres[0] * live - centres[1] * replay)
        .collect();
    let weight = -factor.half_log_determinant()
        - 0.5 * normal.determinant.ln()
        - 0.5 * product(&residual, &residual);
    let with_mean = PHASES.map(|phase| {
        let pieces = pieces.iter();
        pieces
            .map(|piece| wandering.with_mean(piece, phase))
            .collect::<Vec<f64>>()
    });
    let weights = weights_of_pieces(&factor, &is, &normal, &with_mean);
    let levels = weights.each_ref().map(|weights| {
        let terms = weights.iter().zip(pieces);
        terms.map(|(weight, piece)| weight * piece.level).sum()
    });
    let covariance = if wandering.deviation > 0.0 {
        prediction_errors(pieces, wandering, &weights, &with_mean)
    } else {
        [0.0; 3]
    };
    Some(Fit {
        weight,
        levels,
        covariance,
    })
}

/// The normal equations of both levels: a symmetric matrix of two rows.
struct NormalEquations {
    live: f64,
    both: f64,
    replay: f64,
    determinant: f64,
}

impl NormalEquations {
    /// Returns `None` if the equations have no unique solution. `indicators` holds a vector for each
    /// phase: 1 in its windows.
    fn from_indicators(indicators: &[Vec<f64>; 2]) -> Option<Self> {
        let [live, both, replay] = [(0, 0), (0, 1), (1, 1)]
            .map(|(one, other): (usize, usize)| product(&indicators[one], &indicators[other]));
        let determinant = live * replay - both * both;
        (determinant > 0.0).then_some(Self {
            live,
            both,
            replay,
            determinant,
        })
    }

    fn solve(&self, live: f64, replay: f64) -> [f64; 2] {
        [
            (self.replay * live - self.both * replay) / self.determinant,
            (self.live * replay - self.both * live) / self.determinant,
        ]
    }
}

/// Weight of each piece in each level. `with_mean` holds the covariances of the pieces and the levels.
fn weights_of_pieces(
    factor: &CholeskyFactor,
    is: &[Vec<f64>; 2],
    normal: &NormalEquations,
    with_mean: &[Vec<f64>; 2],
) -> [Vec<f64>; 2] {
    let predicted = [0, 1].map(|phase: usize| factor.solve(with_mean[phase].iter().copied()));
    let back = [&is[0], &is[1], &predicted[0], &predicted[1]];
    let [live, replay, of_live, of_replay] = back.map(|solved| factor.solve_transposed(solved));
    [(0, of_live), (1, of_replay)].map(|(phase, predicted_by)| {
        let left =
            |of: usize| f64::from(u8::from(of == phase)) - product(&predicted[phase], &is[of]);
        let (of_live, of_replay) = (left(0), left(1));
        (live.iter().zip(&replay).zip(predicted_by))
            .map(|((&live, &replay), predicted)| {
                let [live, replay] = normal.solve(live, replay);
                of_live * live + of_replay * replay + predicted
            })
            .collect()
    })
}

/// Covariance of the prediction errors of both levels caused by drift only: live, replay, both.
fn prediction_errors(
    pieces: &[Piece],
    wandering: &Wandering,
    weights: &[Vec<f64>; 2],
    with_mean: &[Vec<f64>; 2],
) -> [f64; 3] {
    [(0, 0), (1, 1), (0, 1)].map(|(one, other): (usize, usize)| {
        let all = 0..pieces.len();
        let pairs = all.clone().flat_map(|i| all.clone().map(move |j| (i, j)));
        let of_pieces: f64 = pairs
            .map(|(i, j)| weights[one][i] * wandering.of_pieces(pieces, i, j) * weights[other][j])
            .sum();
        wandering.of_means(PHASES[one], PHASES[other])
            - product(&weights[one], &with_mean[other])
            - product(&weights[other], &with_mean[one])
            + of_pieces
    })
}
