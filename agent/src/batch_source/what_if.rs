//! Changes one stage at a time, or the loop's requests for batches, in windows of steps, to measure how long a step would be.
//!
//! ```text
//! warm-up  unchanged  decode free  unchanged  read free  unchanged  decode half  ...  unchanged to the end
//! ```
//!
//! Everything is counted in steps, because several ranks must switch at the same step. The first steps after a switch do
//! not count, because buffers hide the change. Each changed window is compared with the unchanged windows around it
//! ([`window_ratio`](crate::statistics::window_ratio)).
//!
//! [`questions`] decides what is asked next. No question begins that the limit of steps would interrupt.

mod gate_search;
mod questions;

use self::questions::{BatchRequests, Questions};
use super::WhatIfPlan;
use crate::model::record::Phase;
use crate::model::{Intervention, WhatIfWindow, WindowStep};
use crate::statistics::mean_of;

/// A stage that has a switch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SwitchedStage {
    /// Name of the stage.
    pub name: String,
    /// Whether a call can return the result of another call.
    pub is_replaceable: bool,
    /// Whether a call can wait before it begins.
    pub is_delayable: bool,
    /// Highest number of calls at once during the warm-up.
    pub calls_at_once: u32,
    /// A smaller number of calls at once that the model proposes, if it proposes one.
    pub proposed_calls: Option<u32>,
    /// Calls during the warm-up.
    pub calls: u64,
    /// Duration of these calls, in nanoseconds.
    pub busy_ns: u64,
}

/// The pipeline whose stages are changed.
pub trait Pipeline {
    /// The stages that have a switch, as counted since the warm-up began.
    fn stages(&self) -> Vec<SwitchedStage>;

    /// Number of cores that the pipeline may use.
    fn cores(&self) -> u32;

    /// Whether the loop may get copies of earlier batches.
    fn can_repeat_batches(&self) -> bool;

    /// Whether an epoch with repeated batches ends at the loader's length.
    fn keeps_epoch_length(&self) -> bool;

    /// Batches that the queues and the calls in progress hold together. `None`: unknown, or not known yet.
    fn batches_held(&self) -> Option<u32>;

    /// Whether calls have behaved as the intervention says since the last window ended.
    fn behaves_as(&self, intervention: &Intervention) -> bool;
}

/// What a new request for a batch leads to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WhatIfTurn {
    /// The window that has ended. Its inputs are not counted yet.
    pub window: Option<WhatIfWindow>,
    /// What the switches must say from now on.
    pub change: Option<Change>,
}

/// What the switches must say from now on.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Stages are unchanged, and their calls are counted.
    Watch,
    /// Stages are unchanged.
    Restore,
    /// One stage is changed, or several (`cut`), or the requests.
    Begin {
        /// The question.
        intervention: Intervention,
        /// The stages whose calls are changed. Empty for the requests.
        stages: Vec<String>,
    },
    /// The what-if has finished.
    Finish,
}

/// Where the what-if is.
#[derive(Debug, Clone, Default, PartialEq)]
enum Segment {
    /// Before the first request.
    #[default]
    New,
    /// Stages are watched.
    WarmUp,
    Unchanged,
    Changed(Intervention),
    Finished,
}

/// The what-if of one loader, over all its epochs.
#[derive(Debug, Clone)]
pub struct WhatIf {
    plan: WhatIfPlan,
    questions: Questions,
    segment: Segment,
    /// Batches delivered since the what-if began, and in this segment.
    total: u32,
    batches: u32,
    /// Whether the last batch of this epoch was delivered in this segment.
    follows: bool,
    /// Whether the last delivered batch ends a step of this segment.
    is_whole: bool,
    steps: Vec<WindowStep>,
    /// Maximum number of steps of this changed window, so that the limit of steps is kept.
    longest: u32,
}

impl WhatIf {
    /// A what-if that follows `plan`.
    pub fn new(plan: WhatIfPlan) -> Self {
        Self {
            plan,
            questions: Questions::new(plan),
            segment: Segment::New,
            total: 0,
            batches: 0,
            follows: false,
            is_whole: false,
            steps: Vec::new(),
            longest: 0,
        }
    }

    /// Begins a new iteration, or continues after steps that were not reported. Windows span epochs.
    pub fn begin_epoch(&mut self) {
        self.follows = false;
        self.is_whole = false;
    }

    /// The loop requests a batch. The steps of a changed window do not count if calls did not behave as the intervention
    /// says.
    pub fn request(&mut self, pipeline: &impl Pipeline) -> WhatIfTurn {
        if self.segment == Segment::WarmUp && self.batches >= self.plan.warmup {
            self.use_known_depth(pipeline);
        }
        let plan = self.plan;
        match &self.segment {
            Segment::New => self.begin(Segment::WarmUp, Some(Change::Watch)),
            Segment::WarmUp if self.batches >= plan.warmup + plan.settle => {
                let is_replaceable = if plan.is_fixed {
                    // Ranks may differ in what they can repeat. With a length, all ranks get as many batches.
                    pipeline.keeps_epoch_length()
                } else {
                    pipeline.can_repeat_batches()
                };
                let requests = BatchRequests {
                    is_replaceable,
                    step_ms: mean_of(self.steps.iter().map(|step| step.step_ms())),
                };
                let stages = pipeline.stages();
                self.questions
                    .begin(plan, stages, requests, pipeline.cores());
                self.begin(Segment::Unchanged, Some(Change::Restore))
            }
            Segment::Unchanged if self.batches >= self.settle() + plan.unchanged => {
                self.end_window(None)
            }
            Segment::Changed(_) if self.has_enough_steps() => {
                let Segment::Changed(intervention) = std::mem::take(&mut self.segment) else {
                    return WhatIfTurn::default();
                };
                if !pipeline.behaves_as(&intervention) {
                    self.steps.clear();
                }
                self.end_window(Some(intervention))
            }
            _ => WhatIfTurn::default(),
        }
    }

    /// Uses how many batches the loader holds, if only the pipeline tells. Several ranks would learn it at different steps.
    fn use_known_depth(&mut self, pipeline: &impl Pipeline) {
        if self.plan.is_depth_known || self.plan.is_fixed {
            return;
        }
        if let Some(batches) = pipeline.batches_held() {
            self.plan = self.plan.with_batches_held(batches);
        }
    }

    /// Whether the mean step of a changed window is precise, or cannot get more steps.
    fn has_enough_steps(&self) -> bool {
        let counted = self.batches.saturating_sub(self.plan.settle);
        counted >= self.plan.changed
            && (counted >= self.longest || self.questions.is_precise(&self.steps))
    }

    /// Steps of an unchanged window that do not count. After the warm-up, the loop has settled.
    fn settle(&self) -> u32 {
        if self.questions.has_windows() {
            self.plan.settle
        } else {
            0
        }
    }

    fn begin(&mut self, segment: Segment, change: Option<Change>) -> WhatIfTurn {
        self.segment = segment;
        self.batches = 0;
        self.follows = false;
        self.steps.clear();
        WhatIfTurn {
            window: None,
            change,
        }
    }

    fn end_window(&mut self, intervention: Option<Intervention>) -> WhatIfTurn {
        let was_changed = intervention.is_some();
        let window = WhatIfWindow {
            intervention,
            steps: std::mem::take(&mut self.steps),
            inputs_not_trained_on: 0,
        };
        self.questions.add_window(&window);
        let left = self.plan.limit.saturating_sub(self.total);
        let turn = if was_changed {
            self.begin(Segment::Unchanged, Some(Change::Restore))
        } else if let Some(next) = self.questions.next(left) {
            let stages = self.questions.changed_stages(&next);
            let intervention = next.clone();
            let after = self.plan.pair() - self.plan.changed;
            self.longest = self.plan.longest.min(left.saturating_sub(after));
            let change = Change::Begin {
                intervention,
                stages,
            };
            self.begin(Segment::Changed(next), Some(change))
        } else {
            self.begin(Segment::Finished, Some(Change::Finish))
        };
        WhatIfTurn {
            window: Some(window),
            ..turn
        }
    }

    /// A batch was delivered.
    pub fn delivered(&mut self) {
        self.is_whole = self.follows;
        self.follows = true;
        self.batches = self.batches.saturating_add(1);
        self.total = self.total.saturating_add(1);
    }

    /// Adds a step: `compute_ns` after a batch, then `wait_ns` for the last delivered batch.
    pub fn timed(&mut self, compute_ns: u64, wait_ns: u64) {
        let settle = match self.segment {
            Segment::Unchanged => self.settle(),
            Segment::Changed(_) => self.plan.settle,
            Segment::WarmUp => self.plan.warmup,
            Segment::New | Segment::Finished => return,
        };
        if self.is_whole && self.batches > settle {
            self.steps.push(WindowStep {
                compute_ns,
                wait_ns,
                slot: None,
            });
        }
    }

    /// Phase of the next batch. Until the loop has settled after a changed window, its steps are changed too.
    pub fn phase(&self) -> Phase {
        let is_settled = || self.batches >= self.settle();
        match self.segment {
            Segment::Changed(_) => Phase::Changed,
            Segment::Unchanged if !is_settled() => Phase::Changed,
            _ => Phase::Live,
        }
    }

    /// Maximum number of steps.
    pub fn most_steps(&self) -> u32 {
        self.plan.limit
    }

    /// The smallest limit of steps with which the loop settles after each switch, if the limit of the plan is smaller.
    pub fn steps_to_settle(&self) -> Option<u32> {
        self.plan.steps_to_settle()
    }

    /// Whether all windows are complete.
    pub fn is_over(&self) -> bool {
        self.segment == Segment::Finished
    }
}

#[cfg(test)]
mod tests;
