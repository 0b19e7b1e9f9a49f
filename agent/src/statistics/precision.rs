//! Standard errors of the mean of correlated values, and of the difference of two means.
//!
//! Within a run: batch means ([`batch_means_variance`]). Batches of three lengths are tried, and the
//! largest error is used: long batches show correlation that reaches further than short ones. The increase
//! from the middle length to the long one is added once more, for correlation that reaches beyond the long
//! batches (the bias of batch means falls with their length: Richardson's extrapolation).
//!
//! Between runs: the same program takes a different time each time it is started, because its memory and
//! its threads are placed differently (Mytkowicz et al., "Producing wrong data without doing anything
//! obviously wrong", ASPLOS 2009). Starts must therefore be repeated (Kalibera and Jones, "Rigorous
//! benchmarking in reasonable time", ISMM 2013). One run per side does not show that variation, and an
//! allowance replaces it. Each further run replaces a share of the allowance by the measured variation
//! (moderated t: Smyth, "Linear models and empirical Bayes methods", SAGMB 3(1), 2004).
//!
//! The allowance has two parts of different reliability: the variation between runs, and the effect of
//! other programs. The degrees of freedom of their sum follow from Satterthwaite ("An approximate
//! distribution of estimates of variance components", Biometrics Bulletin 2, 1946). A large guess for other
//! programs is therefore soon outweighed by measurements of several runs.

use super::{FREEDOM, batch_means_variance, student};
use crate::model::record::Estimate;

/// Numbers of batches that a series is divided into.
const BATCHES: [usize; 3] = [8, 16, 32];

/// Degrees of freedom of the allowance for other programs. It is low, because their effect on one machine
/// hardly predicts their effect on another.
const FREEDOM_OF_OTHERS: f64 = 3.0;

/// Maximum number of runs per side that is recommended.
const MOST_RUNS: u32 = 50;

/// Default standard deviation of a mean between runs, as a share of it.
pub const RUN_TO_RUN: f64 = 0.0075;

/// A mean and its uncertainty.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Known {
    /// The mean.
    pub mean: f64,
    /// Its standard error; `None` with too few values.
    pub error: Option<f64>,
    /// Additional standard deviation that other programs may have caused: a guess.
    pub others: f64,
}

impl Known {
    /// A mean whose error is not known or not needed.
    pub fn exactly(mean: f64) -> Self {
        Self {
            mean,
            ..Self::default()
        }
    }

    /// The value multiplied by `by`, for example to convert it to a smaller unit.
    #[must_use]
    pub fn times(self, by: f64) -> Self {
        Self {
            mean: self.mean * by,
            error: self.error.map(|error| error * by),
            others: self.others * by,
        }
    }
}

/// The sum of values divided by the sum of weights, from ordered pairs of weight and value; `None` if the
/// weights are zero.
pub fn ratio(parts: &[(f64, f64)]) -> Option<Known> {
    let weight: f64 = parts.iter().map(|part| part.0).sum();
    let sum: f64 = parts.iter().map(|part| part.1).sum();
    if weight <= 0.0 || !sum.is_finite() {
        return None;
    }
    let mean = sum / weight;
    let squares = BATCHES.map(|batches| batch_means_variance(parts, batches));
    let [Some(long), middle, short] = squares else {
        return Some(Known::exactly(mean));
    };
    let beyond = 2.0 * long - middle.unwrap_or(long);
    let square = [middle, short, Some(beyond)]
        .into_iter()
        .flatten()
        .fold(long, f64::max);
    Some(Known {
        mean,
        error: Some(square.sqrt()),
        ..Known::default()
    })
}

/// Added to the uncertainty of a difference for the variation that one run cannot show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance(
    /// Standard deviation from run to run, in the unit of the values.
    pub f64,
);

/// The 95 % interval of the program's mean over many starts, from one run's mean; `None` if its error is
/// not known.
pub fn interval(known: Known) -> Option<(f64, f64)> {
    let error = known.error?.hypot(RUN_TO_RUN * known.mean);
    let half = student(FREEDOM) * error;
    Some(((known.mean - half).max(0.0), known.mean + half))
}

/// `b − a` with its 95 % interval. Each side has one mean per run. `None` without an interval.
pub fn difference(a: &[Known], b: &[Known], allowance: Allowance) -> Option<Estimate> {
    let spread = Spread::from_runs(a, b, allowance)?;
    let half = spread.half(spread.a.runs, spread.b.runs);
    Some(Estimate::around(spread.b.mean - spread.a.mean, half))
}

/// Number of runs per side that would give an interval with the half-width `half`, if the runs vary as
/// estimated. `None` if the present runs already do, or if more than [`MOST_RUNS`] runs would be needed.
pub fn runs_needed(a: &[Known], b: &[Known], share: f64, half: f64) -> Option<u32> {
    let (a, b) = (logarithms(a)?, logarithms(b)?);
    let spread = Spread::from_runs(&a, &b, Allowance(share))?;
    if spread.half(spread.a.runs, spread.b.runs) <= half {
        return None;
    }
    (2..=MOST_RUNS).find(|runs| spread.half(f64::from(*runs), f64::from(*runs)) <= half)
}

/// Variation of runs about the mean of their side, from measurements and from the allowance.
struct Spread {
    a: Side,
    b: Side,
    variance: f64,
    /// Degrees of freedom of the allowance.
    guessed: f64,
}

impl Spread {
    fn from_runs(a: &[Known], b: &[Known], allowance: Allowance) -> Option<Self> {
        let (a, b) = (Side::from_runs(a)?, Side::from_runs(b)?);
        let runs = a.runs + b.runs;
        let own = (a.within + b.within) / runs + allowance.0.powi(2);
        let others = (a.others + b.others) / runs;
        let guessed = freedom(own, others);
        let squares = a.squares + b.squares + guessed * (own + others);
        Some(Self {
            variance: squares / (runs - 2.0 + guessed),
            a,
            b,
            guessed,
        })
    }

    /// Half-width of the interval with `of_a` and `of_b` runs per side.
    fn half(&self, of_a: f64, of_b: f64) -> f64 {
        let error = (self.variance * (1.0 / of_a + 1.0 / of_b)).sqrt();
        student(of_a + of_b - 2.0 + self.guessed) * error
    }
}

/// Degrees of freedom of the sum of both variances. The variation between runs has [`FREEDOM`].
fn freedom(own: f64, others: f64) -> f64 {
    let parts = own.powi(2) / FREEDOM + others.powi(2) / FREEDOM_OF_OTHERS;
    if parts > 0.0 {
        (own + others).powi(2) / parts
    } else {
        FREEDOM
    }
}

/// The difference relative to `a`: `b / a − 1`.
pub fn relative_difference(a: &[Known], b: &[Known], share: f64) -> Option<Estimate> {
    let (a, b) = (logarithms(a)?, logarithms(b)?);
    Some(difference(&a, &b, Allowance(share))?.map(f64::exp_m1))
}

/// Logarithms of positive values; `None` if a value is not positive.
fn logarithms(values: &[Known]) -> Option<Vec<Known>> {
    let logarithm = |known: &Known| {
        (known.mean > 0.0).then(|| Known {
            mean: known.mean.ln(),
            ..known.times(1.0 / known.mean)
        })
    };
    values.iter().map(logarithm).collect()
}

/// One side of a difference.
struct Side {
    mean: f64,
    runs: f64,
    /// Sum of the runs' squared errors.
    within: f64,
    /// Sum of the squared deviations that other programs may have caused.
    others: f64,
    /// Sum of squares between the runs.
    squares: f64,
}

impl Side {
    fn from_runs(runs: &[Known]) -> Option<Self> {
        // A run that is too short for an error estimate gets the largest error of its side.
        let worst = runs.iter().filter_map(|run| run.error).reduce(f64::max)?;
        let errors = runs.iter().map(|run| run.error.unwrap_or(worst));
        let count = runs.len() as f64;
        let mean = runs.iter().map(|run| run.mean).sum::<f64>() / count;
        (!runs.is_empty()).then(|| Self {
            mean,
            runs: count,
            within: errors.map(|error| error.powi(2)).sum(),
            others: runs.iter().map(|run| run.others.powi(2)).sum(),
            squares: runs.iter().map(|run| (run.mean - mean).powi(2)).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::Rng;

    fn noise(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
    }

    #[test]
    fn a_ratio_is_computed_from_sums_not_from_averages() {
        let known = ratio(&[(1.0, 10.0), (99.0, 99.0)]).unwrap();

        assert!((known.mean - 1.09).abs() < 1e-9);
        assert_eq!(known.error, None, "two buckets tell no spread");
        assert_eq!(ratio(&[]), None);
    }

    #[test]
    fn the_error_of_a_correlated_mean_is_not_too_small() {
        // An autoregressive series of 250 values. Its mean varies by 1 / (1 − r) over that of independent
        // values.
        let (r, n) = (0.9, 250);
        let mut rng = Rng::new(5);
        let mut covered = 0;
        for _ in 0..400 {
            let mut x = noise(&mut rng) / (1.0_f64 - r * r).sqrt();
            let series: Vec<(f64, f64)> = (0..n)
                .map(|_| {
                    x = r * x + noise(&mut rng);
                    (10.0, 10.0 * (100.0 + x))
                })
                .collect();
            let known = ratio(&series).unwrap();
            let half = student(FREEDOM) * known.error.unwrap();
            covered += u32::from((known.mean - 100.0).abs() < half);
        }
        assert!((368..=400).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn more_runs_replace_the_allowance_by_measured_variation() {
        let run = |mean| Known {
            mean,
            error: Some(0.1),
            ..Known::default()
        };
        let width = |a: &[Known], b: &[Known]| {
            let d = difference(a, b, Allowance(1.0)).unwrap();
            d.high - d.low
        };

        let one = width(&[run(100.0)], &[run(110.0)]);
        let alike = width(&[run(100.0); 6], &[run(110.0); 6]);
        let apart = [97.0, 98.0, 100.0, 100.0, 102.0, 103.0].map(run);
        let differing = width(&apart, &[run(110.0); 6]);

        assert!(alike < one / 2.5, "{alike} {one}");
        assert!(differing > 2.0 * alike, "{differing} {alike}");
    }

    #[test]
    fn the_allowance_for_other_programs_matters_for_one_run_per_side_and_hardly_for_three() {
        let run = |mean, others| Known {
            mean,
            error: Some(0.5),
            others,
        };
        let half = |runs: usize, others| {
            let side = |mean: f64| vec![run(mean, others); runs];
            let d = difference(&side(100.0), &side(110.0), Allowance(0.75)).unwrap();
            (d.high - d.low) / 2.0
        };

        assert!(half(1, 20.0) > 80.0, "{}", half(1, 20.0));
        assert!(half(3, 20.0) < half(1, 20.0) / 2.5, "{}", half(3, 20.0));
        assert!(half(6, 20.0) < half(1, 20.0) / 5.0, "{}", half(6, 20.0));
        assert!((freedom(1.0, 0.0) - FREEDOM).abs() < 1e-9);
        assert!((freedom(0.0, 1.0) - FREEDOM_OF_OTHERS).abs() < 1e-9);
    }

    #[test]
    fn the_recommended_number_of_runs_gives_the_requested_interval() {
        let run = |mean| Known {
            mean,
            error: Some(0.02 * mean),
            ..Known::default()
        };
        let one = [run(20.0)];

        let needed = runs_needed(&one, &one, RUN_TO_RUN, 0.025).unwrap();

        let side = vec![run(20.0); needed as usize];
        let found = relative_difference(&side, &side, RUN_TO_RUN).unwrap();
        assert!((3..20).contains(&needed), "{needed}");
        assert!(found.high <= 0.025, "{found:?}");
        assert_eq!(runs_needed(&one, &one, RUN_TO_RUN, 0.5), None);
        assert_eq!(runs_needed(&one, &one, RUN_TO_RUN, 1e-6), None);
    }

    #[test]
    fn a_run_without_an_error_uses_the_errors_of_its_side() {
        let run = |error| Known {
            mean: 20.0,
            error,
            ..Known::default()
        };
        let whole = [run(Some(0.1)); 3];

        let found = difference(
            &whole,
            &[run(Some(0.1)), run(None), run(Some(0.1))],
            Allowance(0.1),
        );

        assert_eq!(found, difference(&whole, &whole, Allowance(0.1)));
        assert_eq!(difference(&whole, &[run(None)], Allowance(0.1)), None);
    }

    #[test]
    fn a_relative_difference_is_a_share_of_the_first_side() {
        let known = |mean| Known {
            mean,
            error: Some(0.001 * mean),
            ..Known::default()
        };
        let d = relative_difference(&[known(20.0)], &[known(22.0)], 0.01).unwrap();

        assert!((d.value - 0.1).abs() < 1e-9);
        assert!(d.low > 0.05 && d.high < 0.15, "{d:?}");
        assert_eq!(
            relative_difference(&[known(0.0)], &[known(1.0)], 0.01),
            None
        );
    }
}
