//! Decides which stage is changed next, and how.
//!
//! First, each stage that can be replaced is free once, the busiest first: the stage that limits throughput is probably
//! one of them. After the busiest, the loop's requests for batches are free, which shows how short a step can become. If
//! batches cannot be repeated, all stages are free together instead. A stage whose
//! interval is below that of another one gets no more windows (successive elimination:
//! Even-Dar, Mannor and Mansour, "Action Elimination and Stopping Conditions for the Multi-Armed Bandit",
//! JMLR 7, 2006). The others are free again until their gain is precise. Then they are asked in more detail: half as much
//! work, fewer calls at once. The rest of the steps goes to the question that is closest to a precise answer.
//!
//! If a stage has more calls at once than there are cores, or the model proposes fewer, the calls may slow each other. The
//! model rarely knows how many are best. So these gates come before the other stages are free: the proposed number, or else
//! half, then twice and half the best number so far, until neither is better.

use std::cmp::Ordering;

use super::super::WhatIfPlan;
use super::SwitchedStage;
use crate::model::{Intervention, InterventionKind, WhatIfWindow, WindowStep};
use crate::statistics::window_ratio::{BLOCK, Ratio, StepWindow, ratio};
use crate::statistics::{block_means, mean_of, variance};

/// Maximum number of stages that are asked about.
const MOST_STAGES: usize = 12;
/// Maximum number of windows in which a stage is free before details are asked.
const MOST_FREE: usize = 3;
/// Maximum number of windows for a number of calls before the other stages are free.
const MOST_GATED: usize = 4;
/// Minimum busy time of a stage that cannot be free, as a share of that of the busiest stage, so that it may limit the loop.
/// Chosen.
const LEAST_BUSY_OF_BUSIEST: f64 = 0.5;
/// A delay in percent of the mean call.
const DELAY_PCT: f64 = 50.0;
/// A delay of a request for a batch, in percent of the mean step.
const REQUEST_DELAY_PCT: f64 = 20.0;
/// An interval is precise if half its width is at most this, in points of the unchanged step.
const PRECISE_PCT: f64 = 3.0;
/// Standard error of the mean step of a window that needs no more steps, in points of the unchanged step.
const PRECISE_WINDOW_PCT: f64 = 1.6;

/// The loop's requests for batches, as they were during the warm-up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchRequests {
    /// Whether they may return copies of earlier batches.
    pub(super) is_replaceable: bool,
    /// Mean duration of a step in milliseconds.
    pub(super) step_ms: f64,
}

/// The questions, with the windows so far.
#[derive(Debug, Clone)]
pub(super) struct Questions {
    plan: WhatIfPlan,
    /// Number of cores that the pipeline may use.
    cores: u32,
    /// In the order of their first calls.
    stages: Vec<SwitchedStage>,
    /// The questions that may be asked, in the order of the first round.
    interventions: Vec<Intervention>,
    /// Windows in the order of time: the number of the question, and the steps in milliseconds.
    windows: Vec<(Option<usize>, Vec<f64>)>,
}

impl Questions {
    pub(super) fn new(plan: WhatIfPlan) -> Self {
        Self {
            plan,
            cores: u32::MAX,
            stages: Vec::new(),
            interventions: Vec::new(),
            windows: Vec::new(),
        }
    }

    pub(super) fn has_windows(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Sets the plan, the stages that are called in the loop, in the order of their first calls, the requests and the number
    /// of cores.
    pub(super) fn begin(
        &mut self,
        plan: WhatIfPlan,
        stages: Vec<SwitchedStage>,
        requests: BatchRequests,
        cores: u32,
    ) {
        (self.plan, self.stages, self.cores) = (plan, stages, cores);
        let mut order: Vec<&SwitchedStage> = (self.stages.iter())
            .filter(|stage| stage.calls > 0 || self.plan.is_fixed)
            .collect();
        if self.plan.is_fixed {
            // The ranks count different times, but their stages have the same names.
            order.sort_by(|a, b| a.name.cmp(&b.name));
        } else {
            order.sort_by(|a, b| busiest_first(a, b));
        }
        order.truncate(MOST_STAGES);
        let replaced = || order.iter().filter(|stage| self.is_replaced(stage));
        let free = replaced().map(|stage| question(stage, InterventionKind::Free, 1.0));
        let half = replaced().map(|stage| question(stage, InterventionKind::Half, 0.5));
        // The first stage alone is the same as `free`.
        let first = self.stages.iter().find(|stage| self.is_replaced(stage));
        let cut = (order.iter())
            .filter(|stage| self.is_replaced(stage) && !self.plan.is_fixed)
            .filter(|stage| first.is_some_and(|first| first != **stage))
            .map(|stage| question(stage, InterventionKind::Cut, 1.0));
        let gated = (order.iter())
            .filter(|stage| stage.is_delayable && stage.calls_at_once > 1 && !self.plan.is_fixed)
            .flat_map(|stage| {
                let gate = |calls| question(stage, InterventionKind::Gate, f64::from(calls));
                self.numbers_of_calls(stage).into_iter().map(gate)
            });
        let delayed = (order.iter())
            .filter(|stage| self.plan.keep_data && (stage.is_delayable || self.plan.is_fixed))
            .map(|stage| {
                let delay_ms = mean_ms(stage) * DELAY_PCT / 100.0;
                question(stage, InterventionKind::Delay, delay_ms)
            });
        let (floor, others) = questions_about_requests(plan, requests);
        let of_stages = half.chain(gated).chain(cut).chain(delayed);
        let questions = free.chain(floor).chain(of_stages).chain(others);
        self.interventions = questions.collect();
    }

    /// Whether calls of the stage may return results of other calls.
    fn is_replaced(&self, stage: &SwitchedStage) -> bool {
        // Ranks may differ in what they can replace. Where a call does its work, the window does not count.
        (stage.is_replaceable || self.plan.is_fixed) && !self.plan.keep_data
    }

    /// Adds a window that has ended.
    pub(super) fn add_window(&mut self, window: &WhatIfWindow) {
        let asked =
            |asked: &Intervention| self.interventions.iter().position(|other| other == asked);
        let question = window.intervention.as_ref().and_then(asked);
        let steps = window.steps.iter();
        let steps_ms = steps.map(|step| step.step_ms()).collect();
        self.windows.push((question, steps_ms));
    }

    /// The stages that a question changes.
    pub(super) fn changed_stages(&self, question: &Intervention) -> Vec<String> {
        if question.kind != InterventionKind::Cut {
            return question.stage.iter().cloned().collect();
        }
        let end =
            (self.stages.iter()).position(|stage| Some(&stage.name) == question.stage.as_ref());
        let before = self.stages.iter().take(end.map_or(0, |end| end + 1));
        let replaced = before.filter(|stage| self.is_replaced(stage));
        replaced.map(|stage| stage.name.clone()).collect()
    }

    /// The next question. `None` if there is none, or too few steps are left.
    pub(super) fn next(&self, steps_left: u32) -> Option<Intervention> {
        if steps_left < self.plan.pair() {
            return None;
        }
        let asked = |number: usize| {
            let of_question =
                |(question, _): &&(Option<usize>, Vec<f64>)| *question == Some(number);
            self.windows.iter().filter(of_question).count()
        };
        let number = if self.plan.is_fixed {
            (0..self.interventions.len()).min_by_key(|number| asked(*number))
        } else {
            self.most_useful(asked)
        };
        number.map(|number| self.interventions[number].clone())
    }

    /// The next question if its choice may depend on the windows so far.
    fn most_useful(&self, asked: impl Fn(usize) -> usize + Copy) -> Option<usize> {
        let ratios = self.ratios();
        let survivors = self.survivors(&ratios);
        let is_first = |number: &usize| {
            self.kind(*number) == InterventionKind::Free && self.stage(*number).is_some()
        };
        let not_asked = |number: &usize| asked(*number) == 0;
        let of_survivor = |number: &usize| {
            let may_be_best = |stage| survivors.contains(&stage);
            survivors.is_empty() || self.stage(*number).is_none_or(may_be_best)
        };
        let all = || 0..self.interventions.len();
        let is_close = survivors.len() > 1;
        let repeats = |number: &usize| {
            is_close && is_first(number) && of_survivor(number) && asked(*number) < MOST_FREE
        };
        let half_pct = |number: usize| ratios[number].map_or(f64::MAX, half_width_pct);
        let by_width = |a: &usize, b: &usize| half_pct(*a).total_cmp(&half_pct(*b));
        let is_wide = |number: &usize| half_pct(*number) > PRECISE_PCT;
        let has_floor = self.interventions.iter().any(Intervention::is_floor);
        let is_last_cut = |number: usize| {
            self.kind(number) == InterventionKind::Cut && self.stage(number) == self.last_replaced()
        };
        let is_floor = |number: &usize| {
            self.interventions[*number].is_floor() || !has_floor && is_last_cut(*number)
        };
        let is_busiest = |number: &usize| all().find(is_first) == Some(*number);
        (all().filter(is_busiest).find(not_asked))
            .or_else(|| all().filter(is_floor).find(not_asked))
            .or_else(|| self.next_gate(&ratios, asked, &survivors))
            .or_else(|| all().filter(is_first).find(not_asked))
            .or_else(|| all().filter(repeats).min_by_key(|number| asked(*number)))
            .or_else(|| all().filter(of_survivor).filter(is_first).find(is_wide))
            .or_else(|| all().filter(of_survivor).find(not_asked))
            .or_else(|| all().filter(of_survivor).filter(is_wide).min_by(by_width))
            .or_else(|| all().filter(is_first).filter(is_wide).min_by(by_width))
            .or_else(|| all().filter(of_survivor).max_by(by_width))
    }

    /// The next gate of a stage whose calls may slow each other: first the number of calls with which the search begins, then
    /// the neighbours of the best number. `None` if the best number of each such stage is known.
    fn next_gate(
        &self,
        ratios: &[Option<Ratio>],
        asked: impl Fn(usize) -> usize + Copy,
        survivors: &[&str],
    ) -> Option<usize> {
        let most_busy_ns = (self.stages.iter())
            .map(busy_ns_per_concurrent_call)
            .fold(0.0, f64::max);
        let is_searched = |stage: &&SwitchedStage| {
            let may_limit = if self.is_replaced(stage) {
                survivors.is_empty() || survivors.contains(&stage.name.as_str())
            } else {
                // It cannot be free, so only its busy time is known.
                busy_ns_per_concurrent_call(stage) >= LEAST_BUSY_OF_BUSIEST * most_busy_ns
            };
            may_limit && self.begin_of_search(stage).is_some()
        };
        let gates_of = |stage: &SwitchedStage| -> Vec<usize> {
            let is_gate = |number: &usize| {
                self.kind(*number) == InterventionKind::Gate
                    && self.stage(*number) == Some(&stage.name)
            };
            (0..self.interventions.len()).filter(is_gate).collect()
        };
        let mut stages: Vec<&SwitchedStage> = self.stages.iter().filter(is_searched).collect();
        stages.sort_by(|a, b| busiest_first(a, b));
        (stages.into_iter())
            .find_map(|stage| self.next_gate_of(stage, &gates_of(stage), ratios, asked))
    }

    /// The next of the gates of a stage, which are in the order of the numbers of calls.
    fn next_gate_of(
        &self,
        stage: &SwitchedStage,
        gates: &[usize],
        ratios: &[Option<Ratio>],
        asked: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let begin = f64::from(self.begin_of_search(stage)?);
        let first =
            (gates.iter().copied()).find(|number| self.interventions[*number].amount >= begin)?;
        if asked(first) == 0 {
            return Some(first);
        }
        let known = gates
            .iter()
            .filter_map(|number| Some((*number, ratios[*number]?)));
        let Some((best, ratio)) = known.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value)) else {
            // No window counted so far.
            return (asked(first) < MOST_GATED).then_some(first);
        };
        if ratio.value >= 1.0 {
            // The present number is better than those so far.
            return gates.last().copied().filter(|most| asked(*most) == 0);
        }
        let place = gates.iter().position(|number| *number == best)?;
        let neighbours = [place.checked_sub(1), Some(place + 1)];
        let mut neighbours =
            (neighbours.into_iter().flatten()).filter_map(|place| gates.get(place));
        let is_wide = half_width_pct(ratio) > PRECISE_PCT;
        (neighbours.find(|number| asked(**number) == 0).copied())
            .or_else(|| (is_wide && asked(best) < MOST_GATED).then_some(best))
    }

    /// The number of calls with which the search for the best number begins. `None` if the calls of the stage probably do not
    /// slow each other.
    fn begin_of_search(&self, stage: &SwitchedStage) -> Option<u32> {
        let proposed = stage
            .proposed_calls
            .filter(|calls| *calls < stage.calls_at_once);
        proposed.or_else(|| (stage.calls_at_once > self.cores).then(|| half_of(stage)))
    }

    /// The numbers of calls at once to measure, in ascending order: half of the present one. If the best number is searched,
    /// the number with which the search begins, and those below the present one that are 2, 4 … times as large or as small.
    fn numbers_of_calls(&self, stage: &SwitchedStage) -> Vec<u32> {
        let Some(begin) = self.begin_of_search(stage) else {
            return vec![half_of(stage)];
        };
        let fewer = std::iter::successors(Some(begin), |calls| Some(calls / 2));
        let mut numbers: Vec<u32> = fewer.take_while(|calls| *calls > 0).collect();
        numbers.reverse();
        let more = std::iter::successors(begin.checked_mul(2), |calls| calls.checked_mul(2));
        numbers.extend(more.take_while(|calls| *calls < stage.calls_at_once));
        numbers
    }

    /// The last stage of the pipeline that can be free.
    fn last_replaced(&self) -> Option<&str> {
        let mut replaced = self.stages.iter().filter(|stage| self.is_replaced(stage));
        replaced.next_back().map(|stage| stage.name.as_str())
    }

    /// Whether the mean of these steps is precise compared with an unchanged step.
    pub(super) fn is_precise(&self, steps: &[WindowStep]) -> bool {
        let unchanged = (self.windows.iter()).filter(|(question, _)| question.is_none());
        let unchanged_ms = mean_of(unchanged.flat_map(|(_, steps_ms)| steps_ms.iter().copied()));
        let steps_ms: Vec<f64> = steps.iter().map(|step| step.step_ms()).collect();
        let means = block_means(&steps_ms, BLOCK);
        let error = (variance(&means) / means.len().max(1) as f64).sqrt();
        100.0 * error <= PRECISE_WINDOW_PCT * unchanged_ms
    }

    fn kind(&self, number: usize) -> InterventionKind {
        self.interventions[number].kind
    }

    fn stage(&self, number: usize) -> Option<&str> {
        self.interventions[number].stage.as_deref()
    }

    /// The ratio of each question, as far as it is known.
    fn ratios(&self) -> Vec<Option<Ratio>> {
        let windows: Vec<StepWindow<'_>> = (self.windows.iter())
            .map(|(change, steps_ms)| StepWindow {
                change: *change,
                steps_ms,
            })
            .collect();
        let numbers = 0..self.interventions.len();
        numbers.map(|number| ratio(&windows, number)).collect()
    }

    /// The stages that may have the largest gain if they are free.
    fn survivors(&self, ratios: &[Option<Ratio>]) -> Vec<&str> {
        let free = || {
            let asked = self.interventions.iter().zip(ratios);
            let of_free = asked.filter(|(asked, _)| asked.kind == InterventionKind::Free);
            of_free.filter_map(|(asked, ratio)| Some((asked.stage.as_deref()?, (*ratio)?)))
        };
        let least = free().map(|(_, ratio)| ratio.high).fold(f64::MAX, f64::min);
        let may_be_best = free().filter(|(_, ratio)| ratio.low <= least);
        may_be_best.map(|(stage, _)| stage).collect()
    }
}

/// The question about the floor, and the less important ones about the requests.
fn questions_about_requests(
    plan: WhatIfPlan,
    requests: BatchRequests,
) -> (Option<Intervention>, Vec<Intervention>) {
    let question = |kind, amount| Intervention {
        stage: None,
        kind,
        amount,
    };
    if plan.keep_data {
        let delay_ms = requests.step_ms * REQUEST_DELAY_PCT / 100.0;
        return (None, vec![question(InterventionKind::Delay, delay_ms)]);
    }
    let floor = (requests.is_replaceable).then(|| question(InterventionKind::Free, 1.0));
    // On the fixed schedule of several ranks, stages get the steps of this question.
    let asks_half = requests.is_replaceable && !plan.is_fixed;
    let half = asks_half.then(|| question(InterventionKind::Half, 0.5));
    (floor, half.into_iter().collect())
}

fn question(stage: &SwitchedStage, kind: InterventionKind, amount: f64) -> Intervention {
    Intervention {
        stage: Some(stage.name.clone()),
        kind,
        amount,
    }
}

/// Half of the highest number of calls at once.
fn half_of(stage: &SwitchedStage) -> u32 {
    (stage.calls_at_once / 2).max(1)
}

/// Half the width of the interval, in points of the unchanged step.
fn half_width_pct(ratio: Ratio) -> f64 {
    100.0 * (ratio.high - ratio.low) / 2.0
}

/// Busy time of a stage during the warm-up in nanoseconds, divided by the number of its concurrent calls.
fn busy_ns_per_concurrent_call(stage: &SwitchedStage) -> f64 {
    stage.busy_ns as f64 / f64::from(stage.calls_at_once.max(1))
}

fn busiest_first(a: &SwitchedStage, b: &SwitchedStage) -> Ordering {
    busy_ns_per_concurrent_call(b).total_cmp(&busy_ns_per_concurrent_call(a))
}

fn mean_ms(stage: &SwitchedStage) -> f64 {
    stage.busy_ns as f64 / 1e6 / f64::max(stage.calls as f64, 1.0)
}
