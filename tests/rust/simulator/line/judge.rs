//! Checks the conclusions of the agent: the pipeline runs again with each limit relieved and with each
//! remedy applied.

use headspace_agent::analysis::attribution::{
    Action, Attribution, Bottleneck, Limit, Remedy, attribute, attribute_with,
};
use headspace_agent::analysis::thresholds::Thresholds;
use headspace_agent::model::record::{RemedyCode, Resource};

use super::draw::{self, Class};
use super::engine::run;
use super::facts::facts;
use super::{Line, Part};

/// The named bottleneck is right if its relief gains at least this share of the largest gain.
/// Limits whose gains are that close are bottlenecks together.
const AS_GOOD: f64 = 0.75;

/// Share of waiting in the step above which the loop itself is not the bottleneck.
const WAITS: f64 = 0.1;

/// Smallest gain that runs of this length can show.
const SOME_GAIN: f64 = 0.03;

/// Result for one pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    pub(crate) seed: u64,
    pub(crate) class: Class,
    pub(crate) probed: bool,
    /// `None` if the agent names no bottleneck.
    pub(crate) right: Option<bool>,
    pub(crate) said: String,
    pub(crate) truth: String,
    pub(crate) remedies: Vec<Applied>,
}

/// A remedy, and the simulated step after it.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) code: String,
    pub(crate) at_least: bool,
    pub(crate) before_ms: f64,
    pub(crate) predicted_ms: f64,
    pub(crate) really_ms: f64,
    pub(crate) first: bool,
}

impl Applied {
    /// Relative error of the prediction.
    pub(crate) fn error(&self) -> f64 {
        (self.predicted_ms / self.really_ms - 1.0).abs()
    }
}

/// What can limit throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    Stage(usize),
    Pool,
    Share(Part),
    Gc,
    Jitter,
    Compute,
}

/// Length of the runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    /// Number of calls of all stages together.
    pub(crate) calls: f64,
    pub(crate) most_steps: f64,
}

impl Length {
    pub(crate) fn steps(self, line: &Line) -> u32 {
        let calls: f64 = (0..line.stages.len()).map(|s| line.calls(s)).sum();
        (self.calls / (calls + 1.0)).clamp(150.0, self.most_steps) as u32
    }
}

/// The first conclusions of attribution: the bottleneck, and the best remedy.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) limit: Option<Limit>,
    pub(crate) remedy: Option<Action>,
}

/// The verdicts about a drawn pipeline: the first with the default thresholds, then one with each of `others`.
pub(crate) fn verdicts(seed: u64, length: Length, others: &[Thresholds]) -> Vec<Verdict> {
    let case = draw::draw(seed);
    let totals = run(&case.line, length.steps(&case.line), seed * 3 + 1);
    let facts = facts(&case.line, &totals, case.probed, case.blind);
    let usual = Thresholds::default();
    let thresholds = std::iter::once(&usual).chain(others);
    thresholds
        .map(|thresholds| attribute_with(&facts, thresholds))
        .map(|found| Verdict {
            limit: found.bottleneck.map(|found| found.limit),
            remedy: found.remedies.into_iter().next().map(|one| one.action),
        })
        .collect()
}

/// Draws a pipeline, attributes its step, and checks the conclusions.
pub(crate) fn judge(seed: u64, length: Length) -> Judged {
    let case = draw::draw(seed);
    let line = &case.line;
    let steps = length.steps(line);
    let totals = run(line, steps, seed * 3 + 1);
    let concluded = attribute(&facts(line, &totals, case.probed, case.blind));
    let now = run(line, 2 * steps, seed * 3 + 2).step_ms();
    let waits = totals.wait_ms / totals.ms;
    let (truth, right) = truth(line, &concluded, (now, waits), steps, seed);
    let remedies = concluded
        .remedies
        .iter()
        .take(3)
        .enumerate()
        .filter_map(|(rank, remedy)| {
            let after = apply(line, remedy)?;
            Some(Applied {
                code: remedy.action.code().as_str().to_owned(),
                at_least: remedy.at_least,
                before_ms: now,
                predicted_ms: remedy.predicted_step_ms,
                really_ms: run(&after, 2 * steps, seed * 3 + 2).step_ms(),
                first: rank == 0,
            })
        })
        .collect();
    let said = concluded
        .bottleneck
        .as_ref()
        .map_or("unknown".to_owned(), |b| format!("{:?}", b.limit));
    Judged {
        seed,
        class: case.class,
        probed: case.probed,
        right,
        said,
        truth,
        remedies,
    }
}

fn terms(line: &Line) -> Vec<Term> {
    let mut terms: Vec<Term> = (0..line.stages.len()).map(Term::Stage).collect();
    for part in [Part::Cpu, Part::Gil, Part::Disk, Part::Engine, Part::Memory] {
        let used = line
            .stages
            .iter()
            .any(|s| s.parts.iter().any(|(p, ms)| *p == part && *ms > 0.0));
        if used && (part == Part::Gil || line.supply(part).0 < 1e5) {
            terms.push(Term::Share(part));
        }
    }
    if line.gc > 0.0 {
        terms.push(Term::Gc);
    }
    if line.pool.is_some() {
        terms.push(Term::Pool);
    }
    terms.extend([Term::Jitter, Term::Compute]);
    terms
}

/// The pipeline with one limit relieved.
fn relieved(line: &Line, term: Term) -> Line {
    let mut line = line.clone();
    match term {
        Term::Stage(stage) => line.stages[stage].threads *= 4,
        Term::Pool => line.pool = line.pool.map(|threads| 4 * threads),
        Term::Share(Part::Cpu) => line.cores *= 4.0,
        Term::Share(Part::Gil) => without_lock(&mut line),
        Term::Share(Part::Disk) => line.disk *= 4.0,
        Term::Share(Part::Engine) => line.engines *= 4.0,
        Term::Share(Part::Memory) => line.memory *= 4.0,
        Term::Share(_) => {}
        Term::Gc => line.gc = 0.0,
        Term::Jitter => {
            for stage in &mut line.stages {
                stage.room *= 16;
                stage.ahead = stage.ahead.map(|ahead| 16 * ahead);
            }
        }
        Term::Compute => line.compute_ms *= 0.25,
    }
    line
}

fn without_lock(line: &mut Line) {
    for (part, _) in line.stages.iter_mut().flat_map(|s| &mut s.parts) {
        if *part == Part::Gil {
            *part = Part::Cpu;
        }
    }
}

fn named(line: &Line, said: &Bottleneck) -> Option<Term> {
    Some(match &said.limit {
        Limit::Stage(name) => Term::Stage(line.stages.iter().position(|s| s.name == *name)?),
        Limit::Pool(_) => Term::Pool,
        Limit::Jitter => Term::Jitter,
        Limit::Compute => Term::Compute,
        Limit::Resource(Resource::Cores) if !line.quota => Term::Share(Part::Cpu),
        Limit::Resource(Resource::Quota) if line.quota => Term::Share(Part::Cpu),
        Limit::Resource(Resource::Gil) => Term::Share(Part::Gil),
        Limit::Resource(Resource::Disk) => Term::Share(Part::Disk),
        Limit::Resource(Resource::Nvdec) => Term::Share(Part::Engine),
        Limit::Resource(Resource::Memory) => Term::Share(Part::Memory),
        Limit::Resource(Resource::Gc) => Term::Gc,
        Limit::Resource(_) | Limit::HandOff | Limit::Producers => return None,
    })
}

/// The true bottleneck as text, and whether the agent named it.
fn truth(
    line: &Line,
    concluded: &Attribution,
    (now, waits): (f64, f64),
    steps: u32,
    seed: u64,
) -> (String, Option<bool>) {
    let said = concluded.bottleneck.as_ref();
    if line.inline {
        let right = said.map(|b| {
            matches!(b.limit, Limit::Stage(_))
                || b.limit == Limit::Compute && line.compute_ms > 30.0 * line.stages[0].alone_ms()
        });
        return ("inline".to_owned(), right);
    }
    let mut gains: Vec<(Term, f64)> = terms(line)
        .into_iter()
        .map(|term| {
            let ms = run(&relieved(line, term), steps, seed * 3 + 2).step_ms();
            (term, 1.0 - ms / now)
        })
        .collect();
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    let best = gains[0];
    let words = |(term, gain): (Term, f64)| {
        let name = match term {
            Term::Stage(s) => line.stages[s].name.clone(),
            other => format!("{other:?}"),
        };
        format!("{name} {:.0} %", 100.0 * gain)
    };
    let text = format!("{}, then {}", words(best), words(gains[1]));
    let right = said.map(|said| {
        let Some(term) = named(line, said) else {
            return false;
        };
        let gain = gains
            .iter()
            .find(|(t, _)| *t == term)
            .map_or(0.0, |(_, gain)| *gain);
        if best.1 < SOME_GAIN {
            // No single relief helps. A limit close to the longest one is right, and so is the loop if it hardly waits.
            return limit(line, term) >= 0.95 * longest(line)
                || term == Term::Compute && waits < 0.05;
        }
        if best.0 == Term::Compute && waits > WAITS {
            // A faster loop would gain most, but the loop also waits. If a relief removes most of the waiting, its
            // limit is right.
            let most = gains[1].1.min(waits);
            return if most >= AS_GOOD * waits {
                gain >= AS_GOOD * most && term != Term::Compute
            } else {
                gain >= AS_GOOD * best.1
            };
        }
        gain >= AS_GOOD * best.1
    });
    (text, right)
}

/// The shortest step that a limit allows, in milliseconds.
fn limit(line: &Line, term: Term) -> f64 {
    match term {
        Term::Stage(s) => {
            let stage = &line.stages[s];
            stage.alone_ms() * line.calls(s) / f64::from(stage.threads)
        }
        Term::Compute => line.compute_ms,
        Term::Pool => {
            let load = |s: usize| line.calls(s) * line.stages[s].alone_ms();
            let threads = f64::from(line.pool.unwrap_or(u32::MAX));
            (0..line.stages.len()).map(load).sum::<f64>() / threads
        }
        Term::Share(part) => {
            let need = |s: usize| -> f64 {
                let parts = line.stages[s].parts.iter().filter(|(p, _)| *p == part);
                line.calls(s) * parts.map(|(_, ms)| ms).sum::<f64>()
            };
            let own = if part == Part::Cpu {
                line.compute_ms * line.compute_cores
            } else {
                0.0
            };
            ((0..line.stages.len()).map(need).sum::<f64>() + own) / line.supply(part).0
        }
        Term::Gc | Term::Jitter => 0.0,
    }
}

fn longest(line: &Line) -> f64 {
    terms(line)
        .into_iter()
        .map(|term| limit(line, term))
        .fold(0.0, f64::max)
}

/// The pipeline after a remedy; `None` if the simulation does not model the remedy.
pub(crate) fn apply(line: &Line, remedy: &Remedy) -> Option<Line> {
    let mut line = line.clone();
    let to = remedy
        .change
        .as_ref()
        .and_then(|change| change.to.parse::<u32>().ok());
    match remedy.action.code() {
        RemedyCode::MoreWorkers | RemedyCode::FewerWorkers if line.inline => {
            let stage = &mut line.stages[0];
            stage.scale(None, f64::from(line.batch));
            stage.parts.push((Part::Cpu, line.handing.send_ms()));
            line.compute_ms += line.handing.receive_ms();
            (stage.threads, stage.ahead) = (to?, Some(2));
            (line.batch, line.inline) = (1, false);
        }
        RemedyCode::MoreWorkers | RemedyCode::FewerWorkers => {
            let stage = stage_of(&line, remedy)?;
            line.stages[stage].threads = to?;
        }
        RemedyCode::BiggerBuffer => {
            let stage = stage_of(&line, remedy)?;
            let stage = &mut line.stages[stage];
            match &mut stage.ahead {
                Some(ahead) => *ahead = to?,
                None => stage.room = to?,
            }
        }
        RemedyCode::Background => {
            line.inline = false;
            line.stages[0].room = 2 * line.batch;
        }
        RemedyCode::MoreThreads => line.pool = Some(to?),
        RemedyCode::CheaperCalls => {
            let stage = stage_of(&line, remedy)?;
            line.stages[stage].scale(None, 0.5);
        }
        RemedyCode::Subprocess => without_lock(&mut line),
        RemedyCode::GcBetweenEpochs => line.gc = 0.0,
        RemedyCode::PageCache => {
            for stage in &mut line.stages {
                stage.scale(Some(Part::Disk), 0.0);
            }
        }
        RemedyCode::Quota | RemedyCode::MoreCores => line.cores = f64::from(to?),
        _ => return None,
    }
    Some(line)
}

fn stage_of(line: &Line, remedy: &Remedy) -> Option<usize> {
    let name = remedy.stage.as_deref()?;
    line.stages.iter().position(|stage| stage.name == name)
}
