//! What attribution concludes: typed, without words.

use super::evidence::Evidence;
use super::remedies::action::Action;
use crate::model::record::{ChangeRecord, Resource};

/// What limits the loop, and what would help.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attribution {
    /// What limits throughput; `None` where that is not known.
    pub bottleneck: Option<Bottleneck>,
    /// What would help, best first.
    pub remedies: Vec<Remedy>,
}

/// What limits throughput, how sure that is, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// What it is.
    pub limit: Limit,
    /// Shortest step that it allows, in milliseconds.
    pub limit_ms: Option<f64>,
    /// What it was concluded from.
    pub evidence: Evidence,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

/// What can limit throughput.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// A stage of that name.
    Stage(String),
    /// Threads that several stages share, by the name of their queue.
    Pool(String),
    /// A resource.
    Resource(Resource),
    /// Means would be fast enough, tails are not.
    Jitter,
    /// What the loop does with a batch.
    Compute,
}

/// A change and what it would gain.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// What to do.
    pub action: Action,
    /// The stage it changes.
    pub stage: Option<String>,
    /// The resource it changes.
    pub resource: Option<Resource>,
    /// The knob it turns.
    pub change: Option<ChangeRecord>,
    /// Step time it leads to, in milliseconds.
    pub predicted_step_ms: f64,
    /// By how much that is shorter, in percent of the step.
    pub predicted_gain_pct: f64,
    /// Whether the gain is at least that.
    pub at_least: bool,
    /// What it was concluded from.
    pub evidence: Evidence,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}
