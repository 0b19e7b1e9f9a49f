//! A what-if of a simulated pipeline, and the same changes made for a whole run.

use headspace_agent::analysis::what_if::answers;
use headspace_agent::batch_source::WhatIfPlan;
use headspace_agent::batch_source::what_if::{Change, Pipeline, SwitchedStage, WhatIf};
use headspace_agent::model::record::WhatIfRecord;
use headspace_agent::model::{Intervention, InterventionKind};

use super::Line;
use super::draw::Case;
use super::engine::Engine;
use super::engine::switched::{Switch, step_ms};

/// The results of a what-if.
pub(crate) struct Found {
    /// All answers, including imprecise ones.
    pub(crate) answers: Vec<WhatIfRecord>,
    /// Number of steps that the what-if took.
    pub(crate) steps: u32,
}

/// The plan for a pipeline of one process.
pub(crate) fn plan(line: &Line) -> WhatIfPlan {
    WhatIfPlan::for_loader(depth(line), 1)
}

/// The number of batches that the queues hold, if the loader knows it. Worker processes prefetch a known number.
pub(crate) fn depth(line: &Line) -> Option<u32> {
    let workers = |s: &super::Stage| s.ahead.map(|ahead| ahead * s.threads);
    let depth = line.stages.iter().find_map(workers);
    depth.or(line.inline.then_some(0))
}

/// Runs a pipeline with a what-if until it is over.
pub(crate) fn ask(case: &Case, plan: WhatIfPlan, seed: u64) -> Found {
    let mut engine = Engine::new(&case.line, seed);
    let mut what_if = WhatIf::new(plan);
    let mut windows = Vec::new();
    let mut steps = 0;
    let mut compute_ms = None;
    what_if.begin_epoch();
    while !what_if.is_over() {
        let turn = what_if.request(&Watched {
            stages: stages(case, &engine),
            cores: case.line.cores as u32,
        });
        windows.extend(turn.window);
        if let Some(change) = turn.change {
            set_switches(&mut engine, &case.line, &change);
        }
        let wait_ms = engine.next_batch();
        what_if.delivered();
        if let Some(compute_ms) = compute_ms {
            what_if.timed(ns(compute_ms), ns(wait_ms));
        }
        compute_ms = Some(engine.compute_step());
        steps += 1;
    }
    Found {
        answers: answers(&windows),
        steps,
    }
}

/// The stages of a simulated pipeline. Their calls always follow the intervention.
struct Watched {
    stages: Vec<SwitchedStage>,
    cores: u32,
}

impl Pipeline for Watched {
    fn stages(&self) -> Vec<SwitchedStage> {
        self.stages.clone()
    }

    fn cores(&self) -> u32 {
        self.cores
    }

    fn can_repeat_batches(&self) -> bool {
        true
    }

    fn keeps_epoch_length(&self) -> bool {
        true
    }

    fn batches_held(&self) -> Option<u32> {
        None
    }

    fn behaves_as(&self, _: &Intervention) -> bool {
        true
    }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// The stages that the agent knows, with their counts up to now.
fn stages(case: &Case, engine: &Engine<'_>) -> Vec<SwitchedStage> {
    let totals = &engine.totals().stages;
    (switched(case).map(|s| (&case.line.stages[s], &totals[s])))
        .map(|(spec, at)| SwitchedStage {
            name: spec.name.clone(),
            proposed_calls: None,
            is_replaceable: true,
            is_delayable: true,
            calls_at_once: at.peak,
            calls: at.calls as u64,
            busy_ns: ns(at.active_ms),
        })
        .collect()
}

/// Indices of the stages that have a switch.
pub(crate) fn switched(case: &Case) -> impl Iterator<Item = usize> {
    let hidden = case.blind.stage;
    (0..case.line.stages.len()).filter(move |s| hidden != Some(*s))
}

fn set_switches(engine: &mut Engine<'_>, line: &Line, change: &Change) {
    let Change::Begin {
        intervention,
        stages,
    } = change
    else {
        for stage in 0..=line.stages.len() {
            engine.set_switch(stage, Switch::Unchanged);
        }
        return;
    };
    if intervention.stage.is_none() {
        engine.set_switch(line.stages.len(), switch(intervention));
    }
    for (stage, spec) in line.stages.iter().enumerate() {
        if stages.contains(&spec.name) {
            engine.set_switch(stage, switch(intervention));
        }
    }
}

fn switch(intervention: &Intervention) -> Switch {
    match intervention.kind {
        InterventionKind::Free | InterventionKind::Cut => Switch::Replace { every: 1 },
        InterventionKind::Half => Switch::Replace { every: 2 },
        InterventionKind::Gate => Switch::Gate(intervention.amount as u32),
        InterventionKind::Delay => Switch::Delay(intervention.amount),
    }
}

/// Finds the true gain of a change: the changed pipeline runs as a whole.
pub(crate) struct Truth<'a> {
    case: &'a Case,
    steps: u32,
    seed: u64,
    unchanged_ms: f64,
}

impl<'a> Truth<'a> {
    pub(crate) fn new(case: &'a Case, steps: u32, seed: u64) -> Self {
        Self {
            case,
            steps,
            seed,
            unchanged_ms: step_ms(&case.line, &[], steps, seed),
        }
    }

    /// The gain of a change, in percent of the unchanged step. Stages that are free do no work in the whole run.
    pub(crate) fn gain_pct(&self, intervention: &Intervention) -> f64 {
        let (mut line, kind) = (self.case.line.clone(), intervention.kind);
        let mut switches = vec![Switch::Unchanged; line.stages.len() + 1];
        let Some(name) = &intervention.stage else {
            switches[line.stages.len()] = switch(intervention);
            return self.gain_of(&line, &switches);
        };
        let Some(stage) = (line.stages.iter()).position(|stage| stage.name == *name) else {
            return f64::NAN;
        };
        match kind {
            InterventionKind::Free => line.stages[stage].scale(None, 0.0),
            InterventionKind::Cut => {
                for s in switched(self.case).filter(|s| *s <= stage) {
                    line.stages[s].scale(None, 0.0);
                }
            }
            _ => switches[stage] = switch(intervention),
        }
        self.gain_of(&line, &switches)
    }

    /// The gain if the calls of a stage take half the time. Without a name, the calls of all stages do.
    pub(crate) fn gain_of_half_the_work_pct(&self, stage: Option<&str>) -> f64 {
        let mut line = self.case.line.clone();
        let is_faster = |spec: &&mut super::Stage| stage.is_none_or(|stage| spec.name == stage);
        for spec in line.stages.iter_mut().filter(is_faster) {
            spec.scale(None, 0.5);
        }
        self.gain_of(&line, &[])
    }

    fn gain_of(&self, line: &Line, switches: &[Switch]) -> f64 {
        100.0 * (1.0 - step_ms(line, switches, self.steps, self.seed) / self.unchanged_ms)
    }
}
