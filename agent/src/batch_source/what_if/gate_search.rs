//! Searches the number of calls at once with the shortest step, for a stage whose calls may slow each other: it has more
//! calls at once than there are cores, or the model proposes fewer.
//!
//! The model rarely knows how many are best. So the search begins with the proposed number, or else with half of the present
//! one. Then it measures twice and half the best number so far, until neither is better.

use super::SwitchedStage;
use crate::statistics::window_ratio::Ratio;

/// Maximum number of windows for a number of calls before the other stages are free.
const MOST_WINDOWS: usize = 4;

/// A number of calls at once that may be measured, and what is known of it.
pub(super) struct Gate {
    /// Number of the question.
    pub(super) question: usize,
    /// Maximum number of calls at once.
    pub(super) calls: f64,
    /// Number of windows so far.
    pub(super) windows: usize,
    /// The step with this number, as a share of the present one. `None` if no window counted so far.
    pub(super) ratio: Option<Ratio>,
}

/// The question of the number of calls to measure next. `None` if the best number is known.
///
/// `gates` are those of one stage, in the order of their numbers of calls. The search begins with `begin` calls.
pub(super) fn next(
    gates: &[Gate],
    begin: u32,
    is_precise: impl Fn(Ratio) -> bool,
) -> Option<usize> {
    let first = (gates.iter()).find(|gate| gate.calls >= f64::from(begin))?;
    if first.windows == 0 {
        return Some(first.question);
    }
    let known = gates.iter().enumerate();
    let known = known.filter_map(|(place, gate)| Some((place, gate.ratio?)));
    let Some((best, ratio)) = known.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value)) else {
        return (first.windows < MOST_WINDOWS).then_some(first.question);
    };
    if ratio.value >= 1.0 {
        // The present number is better than those so far.
        let most = gates.last().filter(|most| most.windows == 0);
        return most.map(|most| most.question);
    }
    let neighbours = [best.checked_sub(1), Some(best + 1)];
    let mut neighbours = (neighbours.into_iter().flatten()).filter_map(|place| gates.get(place));
    let again = (!is_precise(ratio) && gates[best].windows < MOST_WINDOWS).then_some(&gates[best]);
    let next = neighbours.find(|gate| gate.windows == 0).or(again);
    next.map(|gate| gate.question)
}

/// The number of calls with which the search begins. `None` if the calls of the stage probably do not slow each other.
pub(super) fn begin(stage: &SwitchedStage, cores: u32) -> Option<u32> {
    let is_fewer = |calls: &u32| *calls < stage.calls_at_once;
    let proposed = stage.proposed_calls.filter(is_fewer);
    proposed.or_else(|| (stage.calls_at_once > cores).then(|| half_of(stage)))
}

/// The numbers of calls at once to measure, in ascending order: half of the present one. If the best number is searched, the
/// number with which the search begins, and those below the present one that are 2, 4 … times as large or as small.
pub(super) fn numbers_of_calls(stage: &SwitchedStage, cores: u32) -> Vec<u32> {
    let Some(begin) = begin(stage, cores) else {
        return vec![half_of(stage)];
    };
    let fewer = std::iter::successors(Some(begin), |calls| Some(calls / 2));
    let mut numbers: Vec<u32> = fewer.take_while(|calls| *calls > 0).collect();
    numbers.reverse();
    let more = std::iter::successors(begin.checked_mul(2), |calls| calls.checked_mul(2));
    numbers.extend(more.take_while(|calls| *calls < stage.calls_at_once));
    numbers
}

/// Half of the highest number of calls at once.
fn half_of(stage: &SwitchedStage) -> u32 {
    (stage.calls_at_once / 2).max(1)
}
