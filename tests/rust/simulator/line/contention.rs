//! Pipelines in which concurrent calls of a stage slow each other down, and the agent's proposals for them.

use std::fmt;
use std::ops::Range;

use headspace_agent::analysis::attribution::{Remedy, attribute};
use headspace_agent::model::record::RemedyCode;
use headspace_agent::statistics::bootstrap::Rng;

use super::super::for_each_seed;
use super::super::population::Dice;
use super::super::service::{Service, Shape};
use super::draw::{self, Blind, Class};
use super::engine::run;
use super::facts::facts;
use super::judge::{Length, apply};
use super::what_if::{ask, plan};
use super::{Line, Part, Stage};

/// What the calls compete for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contended {
    /// Cores, with a loss for each thread in excess of the cores.
    Cores,
    /// Memory bandwidth.
    Memory,
    /// A lock. It costs time to pass it to another thread.
    Lock,
}

const KINDS: [Contended; 3] = [Contended::Cores, Contended::Memory, Contended::Lock];

/// Name of the stage with many threads.
pub(crate) const MANY: &str = "demux";

/// Largest relative error of a right prediction.
const RIGHT: f64 = 0.1;

/// Without a proposal, a pipeline counts as missed if a gain of at least this share is possible.
const LARGE_GAIN: f64 = 0.1;

/// A pipeline, and whether the stage with many threads runs in a child process.
pub(crate) struct Case {
    pub(crate) contended: Contended,
    pub(crate) line: Line,
    in_child: bool,
}

/// Draws a pipeline of three stages whose second one has many threads.
pub(crate) fn draw(seed: u64) -> Case {
    let dice = &mut Dice::new(Rng::new(seed ^ 0xc0_07e4));
    let contended = dice.one_of(KINDS);
    let base = dice.log_uniform(5.0, 40.0);
    let own_ms = dice.uniform(0.0, 0.5) * base;
    let cores = f64::from(1 + dice.count(4));
    let threads = match contended {
        Contended::Cores => cores as u32 * (1 + dice.count(3)),
        Contended::Memory | Contended::Lock => 3 + dice.count(13),
    };
    let mut many = Stage::of(MANY, threads, Part::Wait, 0.0, dice.one_of([2, 4, 8]));
    many.parts = match contended {
        Contended::Cores => vec![(Part::Wait, 0.2 * own_ms), (Part::Cpu, base)],
        Contended::Memory => vec![(Part::Memory, base)],
        Contended::Lock => vec![(Part::Cpu, own_ms), (Part::Lock, base)],
    };
    many.service = Service::new(1.0, dice.uniform(0.05, 0.4), Shape::LogNormal, 0.0);
    let mut fetch = Stage::of("fetch", 4, Part::Wait, 0.2 * base, 4);
    fetch.service = Service::new(1.0, 0.2, Shape::LogNormal, 0.0);
    let decode = Stage::of("decode", 1, Part::Cpu, dice.uniform(0.1, 0.4) * base, 4);
    let mut line = Line::of(vec![fetch, many, decode], 0.0);
    line.batch = dice.one_of([1, 3, 8]);
    line.compute_ms = f64::from(line.batch) * base * dice.uniform(0.1, 0.8);
    line.compute = Service::new(1.0, 0.05, Shape::Normal, 0.0);
    line.epoch = Some(20 + dice.count(80));
    line.cores = 24.0;
    match contended {
        Contended::Cores => {
            (line.cores, line.compute_cores) = (cores, 1.0);
            line.switching = dice.uniform(0.0, 0.3);
        }
        Contended::Memory => {
            line.memory = f64::from(1 + dice.count(3));
            line.memory_penalty = dice.uniform(0.1, 0.8);
            line.contention = dice.uniform(0.0, 0.4) / f64::from(threads);
        }
        Contended::Lock => line.lock_penalty = dice.uniform(0.0, 0.3),
    }
    Case {
        contended,
        line,
        in_child: dice.chance(0.5),
    }
}

/// The agent's proposal for a pipeline, and its effect.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) contended: Contended,
    pub(crate) now_ms: f64,
    /// The best number of calls, and the step with it in milliseconds.
    pub(crate) best: (u32, f64),
    pub(crate) proposed: Option<Proposed>,
}

/// A proposed number of calls.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) calls: u32,
    /// `None` if the gain is unknown.
    pub(crate) predicted_ms: Option<f64>,
    pub(crate) really_ms: f64,
}

impl Outcome {
    /// With `gated`, a what-if has measured the step with fewer calls.
    pub(crate) fn of(seed: u64, length: Length, gated: bool) -> Self {
        let Case {
            contended,
            line,
            in_child,
        } = draw(seed);
        let steps = length.steps(&line);
        let step_ms = |line: &Line| run(line, 2 * steps, seed * 3 + 2).step_ms();
        let mut known = facts(
            &line,
            &run(&line, steps, seed * 3 + 1),
            false,
            Blind::default(),
        );
        known.stages[1].in_child_processes = in_child;
        if gated {
            let case = draw::Case {
                class: Class::Plain,
                line: line.clone(),
                probed: false,
                blind: Blind::default(),
            };
            known.what_if = ask(&case, plan(&line), seed * 3 + 4).answers;
        }
        let found = attribute(&known);
        let is_fewer = |remedy: &&Remedy| {
            remedy.action.code() == RemedyCode::FewerWorkers
                && remedy.stage.as_deref() == Some(MANY)
        };
        let proposed = found.remedies.iter().find(is_fewer).and_then(|remedy| {
            let after = apply(&line, remedy)?;
            Some(Proposed {
                calls: after.stages[1].threads,
                predicted_ms: (!remedy.at_least).then_some(remedy.predicted_step_ms),
                really_ms: step_ms(&after),
            })
        });
        let with_calls = |calls: u32| {
            let mut line = line.clone();
            line.stages[1].threads = calls;
            (calls, step_ms(&line))
        };
        let shorter = |a: (u32, f64), b: (u32, f64)| if b.1 < a.1 { b } else { a };
        let best = (2..=line.stages[1].threads)
            .map(with_calls)
            .fold(with_calls(1), shorter);
        Self {
            seed,
            contended,
            now_ms: step_ms(&line),
            best,
            proposed,
        }
    }

    /// The gain of the best number of calls.
    fn gain(&self) -> f64 {
        1.0 - self.best.1 / self.now_ms
    }

    fn predicted(&self) -> Option<(f64, f64)> {
        let proposed = self.proposed.as_ref()?;
        Some((proposed.predicted_ms?, proposed.really_ms))
    }

    fn is_right(&self) -> Option<bool> {
        self.predicted()
            .map(|(predicted, really)| (predicted / really - 1.0).abs() <= RIGHT)
    }
}

/// The proposals for many pipelines.
pub(crate) struct ContentionTable(pub(crate) Vec<Outcome>);

impl ContentionTable {
    pub(crate) fn of(seeds: Range<u64>, length: Length, gated: bool) -> Self {
        Self(for_each_seed(&seeds, |seed| {
            Outcome::of(seed, length, gated)
        }))
    }

    fn right_pct_of(&self, which: impl Fn(&Outcome) -> bool) -> f64 {
        let right = self.0.iter().filter(|one| which(one));
        let right: Vec<bool> = right.filter_map(Outcome::is_right).collect();
        100.0 * right.iter().filter(|right| **right).count() as f64 / right.len() as f64
    }

    /// Share of the predicted steps within a tenth of the true ones.
    pub(crate) fn right_pct(&self) -> f64 {
        self.right_pct_of(|_| true)
    }
}

impl fmt::Display for ContentionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:8} {:>5} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}",
            "", "n", "gain>10%", "predicted", "right %", "unknown", "none", "over best"
        )?;
        let kinds = KINDS.map(Some).into_iter().chain([None]);
        for kind in kinds {
            let is_kind = |one: &&Outcome| kind.is_none_or(|kind| one.contended == kind);
            let all = || self.0.iter().filter(is_kind);
            let count = |of: &dyn Fn(&Outcome) -> bool| all().filter(|one| of(one)).count();
            let gains = |one: &Outcome| one.gain() >= LARGE_GAIN;
            let proposed = |one: &Outcome| one.proposed.is_some();
            let over: Vec<f64> = all()
                .filter_map(|one| Some(one.proposed.as_ref()?.really_ms / one.best.1 - 1.0))
                .collect();
            writeln!(
                f,
                "{:8} {:5} {:9} {:9} {:9.1} {:8} {:9} {:8.1}%",
                kind.map_or("all".to_owned(), |kind| format!("{kind:?}").to_lowercase()),
                all().count(),
                count(&gains),
                count(&|one| one.predicted().is_some()),
                self.right_pct_of(|one| kind.is_none_or(|kind| one.contended == kind)),
                count(&|one| proposed(one) && one.predicted().is_none()),
                count(&|one| gains(one) && !proposed(one)),
                100.0 * over.iter().sum::<f64>() / over.len() as f64,
            )?;
        }
        let wrong = self.0.iter().filter(|one| one.is_right() == Some(false));
        for one in wrong.take(12) {
            writeln!(f, "wrong: {one:?}")?;
        }
        Ok(())
    }
}
