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
//! Before the other stages are free, the best number of calls of a stage is searched if its calls may slow each other
//! ([`gate_search`]).

use std::cmp::Ordering;

use super::super::WhatIfPlan;
use super::SwitchedStage;
use super::gate_search::{self, Gate};
use crate::model::{Intervention, InterventionKind, WhatIfWindow, WindowStep};
use crate::statistics::window_ratio::{BLOCK, Ratio, StepWindow, ratio};
use crate::statistics::{block_means, mean_of, variance};

/// Maximum number of stages that are asked about.
const MOST_STAGES: usize = 12;
/// Maximum number of windows in which a stage is free before details are asked.
const MOST_FREE: usize = 3;
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
                gate_search::numbers_of_calls(stage, self.cores)
                    .into_iter()
                    .map(gate)
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

    /// The next gate of a stage whose calls may slow each other. `None` if the best number of each such stage is known.
    fn next_gate(
        &self,
        ratios: &[Option<Ratio>],
        asked: impl Fn(usize) -> usize + Copy,
        survivors: &[&str],
    ) -> Option<usize> {
        let most_busy_ns = (self.stages.iter())
            .map(busy_ns_per_concurrent_call)
            .fold(0.0, f64::max);
        let may_limit = |stage: &&SwitchedStage| {
            if self.is_replaced(stage) {
                survivors.is_empty() || survivors.contains(&stage.name.as_str())
            } else {
                // It cannot be free, so only its busy time is known.
                busy_ns_per_concurrent_call(stage) >= LEAST_BUSY_OF_BUSIEST * most_busy_ns
            }
        };
        let gate = |number: usize| Gate {
            question: number,
            calls: self.interventions[number].amount,
            windows: asked(number),
            ratio: ratios[number],
        };
        let gates_of = |stage: &SwitchedStage| -> Vec<Gate> {
            let is_gate = |number: &usize| {
                self.kind(*number) == InterventionKind::Gate
                    && self.stage(*number) == Some(&stage.name)
            };
            let numbers = (0..self.interventions.len()).filter(is_gate);
            numbers.map(gate).collect()
        };
        let is_precise = |ratio: Ratio| half_width_pct(ratio) <= PRECISE_PCT;
        let mut stages: Vec<&SwitchedStage> = self.stages.iter().filter(may_limit).collect();
        stages.sort_by(|a, b| busiest_first(a, b));
        stages.into_iter().find_map(|stage| {
            let begin = gate_search::begin(stage, self.cores)?;
            gate_search::next(&gates_of(stage), begin, is_precise)
        })
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
