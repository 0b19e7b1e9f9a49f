//! How much a what-if improves the model's predictions for a stage. The remedies are applied to find the true step.

use std::fmt;
use std::ops::Range;

use headspace_agent::analysis::attribution::facts::PipelineFacts;
use headspace_agent::analysis::attribution::{Attribution, ModelledStep, attribute};
use headspace_agent::analysis::what_if::contradiction_ms;
use headspace_agent::model::InterventionKind;
use headspace_agent::model::record::{RemedyCode, WhatIfRecord};

use super::super::for_each_seed;
use super::draw::{CLASSES, Class, draw};
use super::engine::run;
use super::facts::facts;
use super::judge::{Length, apply};
use super::what_if::{ask, plan};

/// Relative errors of the predicted step of a remedy, for a stage that the what-if has asked about.
struct Predicted {
    class: Class,
    code: RemedyCode,
    alone: f64,
    fitted: f64,
}

/// An answer, and whether the model contradicts it by more than the errors of both.
struct Compared {
    class: Class,
    contradicts: bool,
}

/// The predictions and the answers of many pipelines.
pub(crate) struct FitTable {
    predicted: Vec<Predicted>,
    compared: Vec<Compared>,
}

/// Errors of predictions.
#[derive(Default)]
pub(crate) struct Errors(Vec<f64>);

impl Errors {
    /// A quantile in percent.
    pub(crate) fn quantile_pct(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1) as f64;
        100.0 * sorted.get((q * last).round() as usize).unwrap_or(&f64::NAN)
    }
}

impl FitTable {
    pub(crate) fn of(seeds: Range<u64>, length: Length) -> Self {
        let found = for_each_seed(&seeds, |seed| check(seed, length));
        let (predicted, compared): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Self {
            predicted: predicted.into_iter().flatten().collect(),
            compared: compared.into_iter().flatten().collect(),
        }
    }

    /// Errors of the model without the answers, and of the model that is fitted to the answers.
    pub(crate) fn errors(&self, of: impl Fn(Class, RemedyCode) -> bool) -> (Errors, Errors) {
        let chosen = || self.predicted.iter().filter(|one| of(one.class, one.code));
        (
            Errors(chosen().map(|one| one.alone).collect()),
            Errors(chosen().map(|one| one.fitted).collect()),
        )
    }

    /// Share of the answers that the model contradicts, in percent, and the number of answers.
    fn contradicted(&self, class: Option<Class>) -> (f64, usize) {
        let of_class = |one: &&Compared| class.is_none_or(|class| class == one.class);
        let count = self.compared.iter().filter(of_class).count();
        let contradicted = (self.compared.iter().filter(of_class)).filter(|one| one.contradicts);
        (
            100.0 * contradicted.count() as f64 / count.max(1) as f64,
            count,
        )
    }
}

/// Runs a what-if on a pipeline, predicts with and without the answers, and applies the remedies.
fn check(seed: u64, length: Length) -> (Vec<Predicted>, Vec<Compared>) {
    let case = draw(seed);
    let steps = length.steps(&case.line);
    let totals = run(&case.line, steps, seed * 3 + 1);
    let now = facts(&case.line, &totals, false, case.blind);
    let asked = ask(&case, plan(&case.line), 2 * seed).answers;
    let with_answers = PipelineFacts {
        what_if: asked.clone(),
        ..now.clone()
    };
    let (alone, fitted) = (attribute(&now), attribute(&with_answers));
    let was_asked = |stage: &str| {
        let replaced = asked
            .iter()
            .filter(|one| one.intervention.replaces_results() && one.is_precise());
        replaced.clone().any(|one| {
            one.stage.as_deref() == Some(stage) && one.intervention != InterventionKind::Cut
        })
    };
    let mut predicted = Vec::new();
    for remedy in fitted.remedies.iter().filter(|remedy| !remedy.at_least) {
        let code = remedy.action.code();
        let other = alone
            .remedies
            .iter()
            .find(|other| other.action == remedy.action);
        let is_for_stage = remedy.stage.as_deref().is_some_and(was_asked)
            && matches!(code, RemedyCode::MoreWorkers | RemedyCode::CheaperCalls);
        let (Some(other), true) = (other, is_for_stage) else {
            continue;
        };
        let Some(after) = apply(&case.line, remedy) else {
            continue;
        };
        let really_ms = run(&after, 2 * steps, seed * 3 + 2).step_ms();
        let error = |predicted_ms: f64| (predicted_ms / really_ms - 1.0).abs();
        predicted.push(Predicted {
            class: case.class,
            code,
            alone: error(other.predicted_step_ms),
            fitted: error(remedy.predicted_step_ms),
        });
    }
    let compared = (asked.iter())
        .filter(|answer| answer.is_precise())
        .filter_map(|answer| compare(answer, &fitted, case.class));
    (predicted, compared.collect())
}

fn compare(answer: &WhatIfRecord, found: &Attribution, class: Class) -> Option<Compared> {
    let is_same = |one: &&ModelledStep| {
        Some(&one.stage) == answer.stage.as_ref() && one.intervention == answer.intervention
    };
    let modelled = found.modelled_steps.iter().find(is_same)?;
    Some(Compared {
        class,
        contradicts: contradiction_ms(answer, modelled.step_ms) > 0.0,
    })
}

impl fmt::Display for FitTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:16} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>13}",
            "", "applied", "median", "fitted", "90th", "fitted", "answers", "contradicted"
        )?;
        let mut row =
            |name: &str, (alone, fitted): (Errors, Errors), compared: Option<(f64, usize)>| {
                write!(
                    f,
                    "{name:16} {:7} {:8.1} {:8.1} {:8.1} {:8.1}",
                    alone.0.len(),
                    alone.quantile_pct(0.5),
                    fitted.quantile_pct(0.5),
                    alone.quantile_pct(0.9),
                    fitted.quantile_pct(0.9),
                )?;
                match compared {
                    Some((pct, count)) => writeln!(f, " {count:8} {pct:11.1} %"),
                    None => writeln!(f),
                }
            };
        row(
            "all",
            self.errors(|_, _| true),
            Some(self.contradicted(None)),
        )?;
        for code in [RemedyCode::MoreWorkers, RemedyCode::CheaperCalls] {
            row(code.as_str(), self.errors(|_, other| other == code), None)?;
        }
        for class in CLASSES {
            let name = format!("{class:?}").to_lowercase();
            let errors = self.errors(|other, _| other == class);
            row(&name, errors, Some(self.contradicted(Some(class))))?;
        }
        Ok(())
    }
}
