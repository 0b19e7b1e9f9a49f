//! Proposes remedies: each changes one term of the model, which is then simulated again.
//!
//! They are sorted by gain times confidence, so a certain gain comes before a possible one. Exception: if too many
//! threads compete for the cores, fewer concurrent calls come first. If the gain cannot be predicted, the remedy has the
//! minimum that the laws promise, and is marked as such.

pub(super) mod action;
mod buffers;
mod concurrency;
mod fewer_calls;
mod hand_off;
mod load_in_workers;
mod measured_gates;
mod work_and_resources;

use self::action::Action;
use super::attribution_result::{ProcessStart, Remedy};
use super::calibration::calibrate;
use super::candidates::{Binding, attainable_by_cores_ms, longest_stage_limit_ms};
use super::evidence::evidence;
use super::law_terms::Term;
use super::loop_waits::loop_waits;
use super::prediction::Predictor;
use super::queueing_model::Model;
use super::simulation::SimulatedPipeline;
use crate::analysis::thresholds::{confidence, counts};
use crate::model::record::{ChangeRecord, Estimate, RemedyCode, Resource, Setting};

/// The model, and what is concluded from it so far.
struct Context<'a> {
    model: &'a Model<'a>,
    predictor: &'a Predictor<'a>,
    binding: Option<Binding>,
}

/// A remedy without its prediction.
#[derive(Debug, Clone)]
struct Draft {
    action: Action,
    /// The stage that the remedy changes.
    stage: Option<usize>,
    /// The term that the remedy relieves. It determines the evidence.
    term: Term,
    change: Option<ChangeRecord>,
    /// The pipeline with the remedy; `None` if it is only known to be at least as fast as now.
    changed: Option<SimulatedPipeline>,
    /// The step in milliseconds that a what-if measured with this change. It replaces a prediction.
    measured: Option<Estimate>,
    confidence: f64,
}

impl Draft {
    /// A remedy for no particular stage. It changes no setting and is not simulated: the step is only known to be at most
    /// as long as now.
    fn new(action: Action, term: Term, confidence: f64) -> Self {
        Self {
            action,
            stage: None,
            term,
            change: None,
            changed: None,
            measured: None,
            confidence,
        }
    }
}

/// Returns the remedies, best first.
pub(super) fn remedies(
    model: &Model<'_>,
    predictor: &Predictor<'_>,
    binding: Option<Binding>,
) -> Vec<Remedy> {
    let context = Context {
        model,
        predictor,
        binding,
    };
    let mut remedies: Vec<Remedy> = concurrency::drafts(&context)
        .into_iter()
        .chain(fewer_calls::drafts(&context))
        .chain(buffers::drafts(&context))
        .chain(work_and_resources::drafts(&context))
        .chain(hand_off::drafts(&context))
        .filter_map(|draft| context.predict(draft))
        .collect();
    remedies.sort_by(|a, b| score(b).total_cmp(&score(a)));
    if fewer_calls::threads_slow_each_other(model) {
        // It is easy to try, and the other predictions assume that calls take as long as now.
        let is_fewer = |one: &Remedy| {
            let for_cores = one.resource == Some(Resource::Cores);
            for_cores && one.action.code() == RemedyCode::FewerWorkers
        };
        remedies.sort_by_key(|one| !is_fewer(one));
    }
    remedies.truncate(counts::MAX_REMEDIES);
    let most = remedies.iter().map(|remedy| remedy.predicted_gain_pct);
    if let Some(found) = binding.filter(|found| found.term == Term::Compute)
        && most
            .chain(spared_pct(model))
            .all(|gain| gain < model.thresholds.worth_tuning_pct)
        && floor_says_stop(model)
    {
        let stop = Draft::new(Action::Stop, Term::Compute, found.confidence);
        remedies.insert(0, context.without_gain(stop));
    }
    remedies
}

/// What free data saves according to the floor, in percent of the step.
fn spared_pct(model: &Model<'_>) -> Option<f64> {
    let facts = model.facts;
    facts
        .floor_ms
        .map(|_| 100.0 * (1.0 - model.free_ms / facts.step_ms))
}

/// Whether a floor was measured, and its interval contains no gain that is worth further tuning. A short wait
/// alone does not exclude contention.
fn floor_says_stop(model: &Model<'_>) -> bool {
    model.facts.floor_ms.is_some_and(|floor| {
        let most = 100.0 * (1.0 - floor.low / model.facts.step_ms);
        most < model.thresholds.possibly_worth_tuning_pct || floor.high >= model.facts.step_ms
    })
}

fn score(remedy: &Remedy) -> f64 {
    remedy.predicted_gain_pct * remedy.confidence
}

impl Context<'_> {
    fn step_ms(&self) -> f64 {
        self.model.facts.step_ms
    }

    fn binds(&self, term: Term) -> bool {
        self.binding.is_some_and(|found| found.term == term)
    }

    /// Adds the prediction to a remedy. Returns `None` if the gain is too small.
    fn predict(&self, mut draft: Draft) -> Option<Remedy> {
        let (step, t) = (self.step_ms(), self.model.thresholds);
        let changed = draft.changed.take();
        let at_least = changed.is_none() && draft.measured.is_none();
        if at_least && draft.action.adds_concurrency() && !loop_waits(self.model) {
            // More calls do not help a loop that does not wait.
            return None;
        }
        let known = draft.measured.map_or(step, |measured| measured.value);
        let predicted = changed.map_or(known, |simulated| {
            let predicted = self.predictor.step_ms(&simulated);
            match draft.stage.filter(|_| draft.action.relieves_stage()) {
                Some(stage) => calibrate(
                    self.predictor,
                    &self.model.nodes[stage].stage.name,
                    predicted,
                ),
                None => predicted,
            }
        });
        let predicted = if draft.action.adds_concurrency() {
            predicted.max(attainable_by_cores_ms(self.model))
        } else if draft.action.enlarges_buffer() {
            predicted.max(longest_stage_limit_ms(self.model).min(step))
        } else {
            predicted
        };
        let gain = 1.0 - predicted / step;
        if !at_least && gain < t.min_remedy_gain {
            return None;
        }
        Some(Remedy {
            predicted_step_ms: predicted,
            predicted_gain_pct: 100.0 * gain,
            at_least,
            confidence: confidence::of_prediction(draft.confidence, self.predictor.error()),
            ..self.without_gain(draft)
        })
    }

    /// A remedy after which the step is as long as now.
    fn without_gain(&self, draft: Draft) -> Remedy {
        let starts_processes = draft.action.starts_processes();
        Remedy {
            process_start: (starts_processes.then(|| process_start(self.model))).flatten(),
            action: draft.action,
            stage: (draft.stage).map(|stage| self.model.nodes[stage].stage.name.clone()),
            resource: draft.term.resource(),
            change: draft.change,
            predicted_step_ms: self.step_ms(),
            predicted_gain_pct: 0.0,
            measured_step_ms: draft.measured,
            at_least: false,
            concerns_bottleneck: false,
            evidence: evidence(self.model, draft.term),
            confidence: draft.confidence,
        }
    }
}

/// What a new process gets. `None` if nothing is known of that.
fn process_start(model: &Model<'_>) -> Option<ProcessStart> {
    let sent = model.facts.loader.sent.clone()?;
    let t = model.thresholds;
    let ms = sent.bytes.zip(sent.objects).map(|(bytes, objects)| {
        let mib = bytes as f64 / 1_048_576.0;
        t.process_start_mib_ms * mib + t.process_start_object_ms * objects as f64
    });
    Some(ProcessStart { sent, ms })
}

/// Changes a setting of the stage or queue `target`, or of the loader or process.
fn change<T: ToString + Copy>(
    target: Option<&str>,
    setting: Setting,
    from: T,
    to: T,
) -> ChangeRecord {
    ChangeRecord::new(target, setting, from.to_string(), to.to_string())
}
