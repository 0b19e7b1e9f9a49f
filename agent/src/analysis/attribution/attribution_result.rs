//! The result of attribution: the bottleneck and the remedies. The texts are in the `wording` module.

use super::calibration::ModelledStep;
use super::evidence::Evidence;
use super::line_gains::LineGain;
use super::remedies::action::Action;
use crate::model::record::{ChangeRecord, Estimate, Resource, SentPartsRecord};

/// What limits the loop, and what would help.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attribution {
    /// What limits throughput. `None` if no bottleneck was found. Then
    /// [`explain_wait`](super::explain_wait) decides whether it is "unknown", or whether there is nothing to
    /// explain.
    pub bottleneck: Option<Bottleneck>,
    /// What would help, best first.
    pub remedies: Vec<Remedy>,
    /// Lines of stages that are worth less time, the largest gain first.
    pub lines: Vec<LineGain>,
    /// The step of each measured what-if by the model.
    pub modelled_steps: Vec<ModelledStep>,
    /// A smaller capacity of the last queue with which the step stays about as long.
    pub smaller_buffer: Option<SmallerBuffer>,
}

impl Attribution {
    /// Multiplies all predicted steps. The predicted gains, in percent, stay the same, and so does what was measured.
    pub(crate) fn scale_steps(mut self, factor: f64) -> Self {
        let predicted = |remedy: &&mut Remedy| remedy.measured_step_ms.is_none();
        for remedy in self.remedies.iter_mut().filter(predicted) {
            remedy.predicted_step_ms *= factor;
        }
        for step in &mut self.modelled_steps {
            step.step_ms *= factor;
        }
        for line in &mut self.lines {
            line.predicted_step_ms *= factor;
        }
        if let Some(buffer) = &mut self.smaller_buffer {
            buffer.predicted_step_ms *= factor;
        }
        self
    }

    /// Time per step in which the loader, on the training thread, waits for another thread or for a device.
    /// `None` if this is a small part of the loader's time, or if compute is not the bottleneck.
    pub fn wait_blocked_ms(&self) -> Option<f64> {
        match self.bottleneck.as_ref()?.evidence {
            Evidence::BlockedLoading { share, wait_ms, .. } => Some(share * wait_ms),
            _ => None,
        }
    }
}

/// What limits throughput, with the confidence and the evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// The kind of limit.
    pub limit: Limit,
    /// Shortest step that the limit allows, in milliseconds.
    pub limit_ms: Option<f64>,
    /// The measurements behind the conclusion.
    pub evidence: Evidence,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

impl Bottleneck {
    /// Whether a remedy changes the bottleneck, or a stage that its evidence names.
    pub(super) fn is_changed_by(&self, remedy: &Remedy) -> bool {
        let names = |name: &str| match &self.limit {
            Limit::Stage(limit) | Limit::Pool(limit) => limit == name,
            Limit::Resource(_)
            | Limit::Jitter
            | Limit::HandOff
            | Limit::Producers
            | Limit::Compute => false,
        };
        let is_named = |stage: &str| names(stage) || self.evidence.stages().contains(&stage);
        let resource = remedy.resource.map(Limit::Resource);
        resource.as_ref() == Some(&self.limit)
            || remedy.stage.as_deref().is_some_and(is_named)
            || remedy.evidence == self.evidence
    }
}

/// What can limit throughput.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// The stage with this name.
    Stage(String),
    /// Threads that several stages share, with the name of their queue.
    Pool(String),
    /// A resource.
    Resource(Resource),
    /// Mean times would be fast enough, but slow calls are not.
    Jitter,
    /// The receipt of batches from other processes, on the training thread.
    HandOff,
    /// Threads or processes without stages, which make what the loop waits for.
    Producers,
    /// The loop's own work on a batch.
    Compute,
}

/// A change and what it would gain.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// What to do.
    pub action: Action,
    /// The stage that the remedy changes.
    pub stage: Option<String>,
    /// The resource that the remedy changes.
    pub resource: Option<Resource>,
    /// The setting that the remedy changes.
    pub change: Option<ChangeRecord>,
    /// Predicted step time, in milliseconds.
    pub predicted_step_ms: f64,
    /// Predicted reduction of the step, in percent.
    pub predicted_gain_pct: f64,
    /// Step time that a what-if measured with the same change, in milliseconds.
    pub measured_step_ms: Option<Estimate>,
    /// Whether the gain is unknown. The predicted gain is then 0, its lower limit.
    pub at_least: bool,
    /// Whether it changes the bottleneck, or a stage that the bottleneck's evidence names.
    pub concerns_bottleneck: bool,
    /// What the processes that it starts get. `None` if it starts none, or if nothing is known of what they get.
    pub process_start: Option<ProcessStart>,
    /// The measurements behind the prediction.
    pub evidence: Evidence,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

/// The start of a new process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessStart {
    /// What it gets from the training process.
    pub sent: SentPartsRecord,
    /// Time in which it gets this, in milliseconds. `None` if nothing is pickled.
    pub ms: Option<f64>,
}

/// A smaller capacity of the last queue, and the memory that it frees.
#[derive(Debug, Clone, PartialEq)]
pub struct SmallerBuffer {
    /// The setting that changes.
    pub change: ChangeRecord,
    /// Name of the queue.
    pub queue: String,
    /// Maximum number of items in the queue now.
    pub from: u32,
    /// Maximum number of items that is enough.
    pub to: u32,
    /// Predicted step time with it, in milliseconds: at least the measured one.
    pub predicted_step_ms: f64,
    /// By how much the mean number of items in the queue falls at least.
    pub freed_items: f64,
    /// Bytes of these items. `None` if the bytes of a batch are unknown.
    pub freed_bytes: Option<f64>,
    /// From 0 (a guess) to 1 (measured).
    pub confidence: f64,
}

#[cfg(test)]
mod tests {
    use super::super::evidence::StageEvidence;
    use super::*;

    fn stage_that_nests(inner: &str) -> Evidence {
        Evidence::Stage(StageEvidence {
            inner: Some((inner.to_owned(), 0.8)),
            ..StageEvidence::default()
        })
    }

    fn remedy(stage: Option<&str>, resource: Option<Resource>) -> Remedy {
        Remedy {
            action: Action::Stop,
            stage: stage.map(str::to_owned),
            resource,
            change: None,
            predicted_step_ms: 10.0,
            predicted_gain_pct: 10.0,
            measured_step_ms: None,
            at_least: false,
            process_start: None,
            concerns_bottleneck: false,
            evidence: Evidence::Waiting {
                wait_ms: 1.0,
                step_ms: 10.0,
                gpu_ms: None,
            },
            confidence: 0.5,
        }
    }

    #[test]
    fn predicted_steps_are_scaled_and_measured_ones_are_not() {
        let measured = Remedy {
            measured_step_ms: Some(Estimate::around(10.0, 1.0)),
            ..remedy(None, None)
        };
        let attribution = Attribution {
            remedies: vec![remedy(None, None), measured],
            ..Attribution::default()
        };
        let scaled = attribution.scale_steps(1.5).remedies;
        let steps_ms: Vec<f64> = scaled.iter().map(|one| one.predicted_step_ms).collect();
        assert!((steps_ms[0] - 15.0).abs() < 1e-9, "{steps_ms:?}");
        assert!((steps_ms[1] - 10.0).abs() < 1e-9, "{steps_ms:?}");
    }

    #[test]
    fn a_remedy_concerns_the_bottleneck_if_it_changes_it_or_a_stage_of_its_evidence() {
        let found = |limit, evidence| Bottleneck {
            limit,
            limit_ms: None,
            evidence,
            confidence: 0.5,
        };
        let stage = found(Limit::Stage("fetch".to_owned()), stage_that_nests("decode"));
        assert!(stage.is_changed_by(&remedy(Some("fetch"), None)));
        assert!(stage.is_changed_by(&remedy(Some("decode"), None)), "nested");
        assert!(!stage.is_changed_by(&remedy(Some("collate"), None)));
        assert!(!stage.is_changed_by(&remedy(None, Some(Resource::Cores))));

        let cores = found(Limit::Resource(Resource::Cores), stage_that_nests("decode"));
        assert!(cores.is_changed_by(&remedy(None, Some(Resource::Cores))));
        assert!(cores.is_changed_by(&remedy(Some("decode"), None)));
        assert!(!cores.is_changed_by(&remedy(Some("fetch"), Some(Resource::Gil))));
    }
}
