//! The accuracy of what-ifs over many pipelines, by intervention and by class.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use headspace_agent::batch_source::WhatIfPlan;
use headspace_agent::model::record::WhatIfRecord;
use headspace_agent::model::{Intervention, InterventionKind};

use super::super::answers::{Answers, TOLERANCE};
use super::super::for_each_seed;
use super::Line;
use super::draw::{CLASSES, Case, Class, draw};
use super::judge::Length;
use super::what_if::{Found, Truth, ask, switched};

/// An answer, compared with the truth.
pub(crate) struct Checked {
    kind: InterventionKind,
    /// `None` for the requests.
    stage: Option<String>,
    /// The measured gain minus the true gain, in percentage points.
    error: f64,
    true_gain: f64,
    is_covered: bool,
    half_width: f64,
    /// For `half`: the true gain if calls take half the time, minus the true gain if every second call is free.
    less_work: Option<f64>,
}

/// The results of the what-if of one pipeline.
pub(crate) struct Asked {
    seed: u64,
    class: Class,
    steps: u32,
    answers: Vec<Checked>,
    /// True gain of the best stage minus true gain of the stage with the largest measured gain, in percentage points.
    /// `None` without an answer.
    regret: Option<f64>,
}

/// The results for many pipelines.
pub(crate) struct WhatIfTable {
    asked: Vec<Asked>,
}

/// Counts over pipelines.
#[derive(Default)]
pub(crate) struct PipelineRow {
    count: u32,
    answered: u32,
    right: u32,
    steps: u32,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:6} {:8.1} {:8.1} {:8.2} {:8.2}",
            self.count(),
            self.within_pct(),
            self.covered_pct(),
            self.mean_error(),
            self.mean_half_width(),
        )
    }
}

impl PipelineRow {
    fn add(&mut self, asked: &Asked) {
        self.count += 1;
        self.answered += u32::from(asked.regret.is_some());
        self.right += u32::from(asked.regret.is_some_and(|regret| regret <= TOLERANCE));
        self.steps += asked.steps;
    }

    /// Share of the answered pipelines whose best stage is right.
    pub(crate) fn right_pct(&self) -> f64 {
        100.0 * f64::from(self.right) / f64::from(self.answered.max(1))
    }
}

impl fmt::Display for PipelineRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = f64::from(self.count.max(1));
        write!(
            f,
            "{:9} {:8.1} {:8.1} {:8.0}",
            self.count,
            self.right_pct(),
            100.0 * f64::from(self.count - self.answered) / count,
            f64::from(self.steps) / count,
        )
    }
}

/// Runs a what-if on a pipeline, and then runs the whole pipeline with each change.
fn check(seed: u64, length: Length, plan: impl Fn(&Line) -> WhatIfPlan) -> Asked {
    let case = draw(seed);
    let Found { mut answers, steps } = ask(&case, plan(&case.line), 2 * seed);
    answers.retain(WhatIfRecord::is_precise);
    let truth = Truth::new(&case, length.steps(&case.line), 2 * seed + 1);
    let free_gains = free_gains(&case, &truth);
    let best = free_gains.values().copied().fold(f64::MIN, f64::max);
    // Answers are sorted: the first one has the largest gain.
    let of_free = |answer: &WhatIfRecord| {
        let is_free = answer.intervention == InterventionKind::Free;
        Some(free_gains[answer.stage.as_ref().filter(|_| is_free)?])
    };
    let said = answers.iter().find_map(of_free);
    let checked = |answer: &WhatIfRecord| {
        let free = answer
            .stage
            .as_ref()
            .and_then(|stage| free_gains.get(stage));
        let is_free = answer.intervention == InterventionKind::Free;
        let true_gain = match free.filter(|_| is_free) {
            Some(gain) => *gain,
            None => truth.gain_pct(&Intervention {
                stage: answer.stage.clone(),
                kind: answer.intervention,
                amount: answer.amount,
            }),
        };
        let less_work = (answer.intervention == InterventionKind::Half)
            .then(|| truth.gain_of_half_the_work_pct(answer.stage.as_deref()) - true_gain);
        let (low, high) = answer.gain_ci_pct;
        Checked {
            kind: answer.intervention,
            stage: answer.stage.clone(),
            error: answer.gain_pct - true_gain,
            true_gain,
            is_covered: low <= true_gain && true_gain <= high,
            half_width: (high - low) / 2.0,
            less_work,
        }
    };
    Asked {
        seed,
        class: case.class,
        steps,
        answers: answers.iter().map(checked).collect(),
        regret: said.map(|gain| best - gain),
    }
}

/// For each stage that has a switch: the true gain if the stage is free.
fn free_gains(case: &Case, truth: &Truth<'_>) -> BTreeMap<String, f64> {
    let free = |s: usize| {
        let stage = case.line.stages[s].name.clone();
        let intervention = Intervention {
            stage: Some(stage.clone()),
            kind: InterventionKind::Free,
            amount: 1.0,
        };
        (stage, truth.gain_pct(&intervention))
    };
    switched(case).map(free).collect()
}

impl WhatIfTable {
    /// Runs a what-if on a pipeline for every seed, with the plan that `plan` returns for it.
    pub(crate) fn of(
        seeds: Range<u64>,
        length: Length,
        plan: impl Fn(&Line) -> WhatIfPlan + Sync,
    ) -> Self {
        let asked = for_each_seed(&seeds, |seed| check(seed, length, &plan));
        Self { asked }
    }

    /// Counts over all pipelines, or over those of a class.
    pub(crate) fn pipelines(&self, class: Option<Class>) -> PipelineRow {
        let mut row = PipelineRow::default();
        for asked in self.of_class(class) {
            row.add(asked);
        }
        row
    }

    /// Counts over the answers to a kind of question, for all pipelines or for those of a class.
    pub(crate) fn answers(&self, class: Option<Class>, question: Option<Question>) -> Answers {
        let mut row = Answers::default();
        let answers = self.of_class(class).flat_map(|asked| &asked.answers);
        let is_of = |one: &&Checked| {
            question.is_none_or(|of| of.kind == one.kind && of.requests == one.stage.is_none())
        };
        for checked in answers.filter(is_of) {
            row.add(checked.error, checked.is_covered, checked.half_width);
        }
        row
    }

    fn of_class(&self, class: Option<Class>) -> impl Iterator<Item = &Asked> {
        (self.asked.iter()).filter(move |asked| class.is_none_or(|class| class == asked.class))
    }

    fn write_largest_errors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<(&Asked, &Checked)> = (self.asked.iter())
            .flat_map(|asked| asked.answers.iter().map(move |one| (asked, one)))
            .collect();
        all.sort_by(|a, b| b.1.error.abs().total_cmp(&a.1.error.abs()));
        for (asked, one) in all.iter().take(LARGEST) {
            writeln!(
                f,
                "error {:+.1}: seed {} ({:?}), {} {:?}, true gain {:.1}, half width {:.1}",
                one.error,
                asked.seed,
                asked.class,
                one.stage.as_deref().unwrap_or("requests"),
                one.kind,
                one.true_gain,
                one.half_width
            )?;
        }
        let wrong = |asked: &&Asked| asked.regret.is_some_and(|regret| regret > TOLERANCE);
        for asked in self.asked.iter().filter(wrong).take(LARGEST) {
            let regret = asked.regret.unwrap_or_default();
            let (seed, class) = (asked.seed, asked.class);
            writeln!(f, "wrong stage: seed {seed} ({class:?}), {regret:.1} less")?;
        }
        Ok(())
    }
}

/// Number of largest errors that are printed.
const LARGEST: usize = 12;

/// Ranges of half the width of an interval, in percentage points.
const WIDTHS: [(f64, f64); 5] = [
    (f64::NEG_INFINITY, 2.0),
    (2.0, 4.0),
    (4.0, 6.0),
    (6.0, 10.0),
    (10.0, f64::INFINITY),
];

/// A kind of question, about stages or about the requests.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    kind: InterventionKind,
    requests: bool,
}

const QUESTIONS: [(&str, Question); 6] = [
    ("free", about_stages(InterventionKind::Free)),
    ("half", about_stages(InterventionKind::Half)),
    ("cut", about_stages(InterventionKind::Cut)),
    ("gate", about_stages(InterventionKind::Gate)),
    ("requests free", about_requests(InterventionKind::Free)),
    ("requests half", about_requests(InterventionKind::Half)),
];

const fn about_stages(kind: InterventionKind) -> Question {
    Question {
        kind,
        requests: false,
    }
}

const fn about_requests(kind: InterventionKind) -> Question {
    Question {
        kind,
        requests: true,
    }
}

impl fmt::Display for WhatIfTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 10;
        let classes = || {
            let of_class = |class: Class| (format!("{class:?}").to_lowercase(), Some(class));
            [("all".to_owned(), None)]
                .into_iter()
                .chain(CLASSES.map(of_class))
        };
        let head = "answers within % covers %     bias     half";
        writeln!(
            f,
            "{:width$} {head} pipelines  right %   none %    steps",
            ""
        )?;
        for (name, class) in classes() {
            let answers = self.answers(class, None);
            writeln!(f, "{name:width$}  {answers} {}", self.pipelines(class))?;
        }
        for (question, about) in QUESTIONS {
            writeln!(f, "{question:width$} {head}")?;
            for (name, class) in classes() {
                let row = self.answers(class, Some(about));
                if row.count() > 0 {
                    writeln!(f, "  {name:9} {row}")?;
                }
            }
        }
        writeln!(f, "{:width$} {head}", "half width")?;
        for (low, high) in WIDTHS {
            let mut row = Answers::default();
            let answers = self.asked.iter().flat_map(|asked| &asked.answers);
            for one in answers.filter(|one| low < one.half_width && one.half_width <= high) {
                row.add(one.error, one.is_covered, one.half_width);
            }
            writeln!(f, "  {:9} {row}", format!("to {high}"))?;
        }
        let of_half = self.asked.iter().flat_map(|asked| &asked.answers);
        let differences: Vec<f64> = of_half.filter_map(|one| one.less_work).collect();
        let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
        let far = differences.iter().filter(|d| d.abs() > TOLERANCE).count();
        writeln!(
            f,
            "calls of half the time gain {mean:+.2} points more than every second call, {far} of {} by more than {TOLERANCE}",
            differences.len()
        )?;
        self.write_largest_errors(f)
    }
}
