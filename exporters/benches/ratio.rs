//! Measures two implementations alternately, so that other load on the machine slows both.

use std::time::{Duration, Instant};

/// Number of measurements of each implementation.
const TURNS: usize = 200;

/// Prints the median time of each, and the ratio of ours to theirs.
pub(crate) fn print<A, B>(
    what: &str,
    mut ours: impl FnMut() -> A,
    peer: &str,
    mut theirs: impl FnMut() -> B,
) {
    let mut took = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        took.0.push(once(&mut ours));
        took.1.push(once(&mut theirs));
    }
    let (own, other) = (median(took.0), median(took.1));
    let ratio = own.as_secs_f64() / other.as_secs_f64();
    println!("{what}: {own:.1?}, {ratio:.2} x {peer} ({other:.1?})");
}

fn once<T>(run: &mut impl FnMut() -> T) -> Duration {
    let begun = Instant::now();
    divan::black_box(run());
    begun.elapsed()
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
