//! The section with the answers of a what-if.

use super::super::section::{Block, Entry, Section, SectionId};
use super::super::units::{duration_ms, grouped, percent, steps};
use super::super::what_if::{changed_requests, changed_stage};
use super::Detail;
use crate::model::InterventionKind;
use crate::model::options::LoopOption;
use crate::model::record::{RunState, SummaryRecord, WhatIfRecord, WhatIfStatusRecord};

/// Maximum number of answers, in brief and in full. The records hold all of them.
const MOST_ANSWERS: (usize, usize) = (4, 48);

/// Maximum number of steps that a text proposes for a what-if. Chosen: more take hours.
const MOST_STEPS_PROPOSED: u32 = 50_000;

/// The answers, the shortest step first, and how many inputs were not trained on. The floor has its own section.
pub(super) fn section(summary: &SummaryRecord, detail: Detail) -> Option<Section> {
    let is_shown = |answer: &&WhatIfRecord| !answer.is_floor() || summary.floor_step_ms.is_none();
    let shown = summary.what_if.iter().filter(is_shown);
    let shown = shown.take(detail.choose(MOST_ANSWERS));
    let entries: Vec<Entry> = shown.map(|answer| entry(answer, detail)).collect();
    let entries = (!entries.is_empty()).then_some(Block::Entries(entries));
    let limits = (summary.what_if_status.iter()).flat_map(|status| limits(status, summary));
    let blocks: Vec<Block> = entries
        .into_iter()
        .chain(limits.map(Block::Sentence))
        .collect();
    (!blocks.is_empty()).then_some(Section {
        id: SectionId::WhatIf,
        blocks,
    })
}

/// What the answers do not say, and what they cost.
fn limits(
    status: &WhatIfStatusRecord,
    summary: &SummaryRecord,
) -> impl Iterator<Item = String> + use<> {
    let more = if summary.what_if.is_empty() {
        ""
    } else {
        " more"
    };
    let imprecise = match status.imprecise {
        0 => None,
        1 => Some(format!(
            "1{more} change was measured, but too imprecisely to report"
        )),
        count => Some(format!(
            "{count}{more} changes were measured, but too imprecisely to report"
        )),
    };
    let is_cut = !status.finished && summary.state == RunState::Finished;
    let is_cut = is_cut.then(|| incomplete(status, summary));
    let enough = match status.steps_for_precision {
        None => String::new(),
        Some(steps) if steps > MOST_STEPS_PROPOSED => {
            " Repeat the what-if while no other program uses the cores.".to_owned()
        }
        Some(steps) => {
            let from = summary.options_from.unwrap_or_default();
            let option = from.with(LoopOption::WhatIfSteps, &steps.to_string());
            format!(
                " About {} steps would be enough: `{option}`.",
                grouped(steps.into())
            )
        }
    };
    let imprecise = imprecise
        .map(|text| format!("{text}: the steps vary too much for this number of steps.{enough}"));
    let too_few = status.steps_to_settle.map(|steps| {
        format!("Buffers may hide part of each change: the what-if needs at least {steps} steps.")
    });
    let names = status
        .not_replaceable
        .iter()
        .map(|name| format!("`{name}`"));
    let names = names.collect::<Vec<_>>().join(", ");
    let not_replaceable = (!names.is_empty()).then(|| {
        format!("Not measured without their work, because their calls cannot return an earlier result: {names}.")
    });
    let not_repeatable = status
        .batches_not_repeatable
        .then(|| "The floor is not measured, because the batches cannot be copied.".to_owned());
    let skipped = (status.inputs_not_trained_on > 0).then(|| {
        let count = status.inputs_not_trained_on;
        format!("{count} calls returned a copy of an earlier result, so their inputs were not trained on.")
    });
    imprecise
        .into_iter()
        .chain(is_cut)
        .chain(too_few)
        .chain(not_replaceable)
        .chain(not_repeatable)
        .chain(skipped)
}

/// The run ended before the what-if did.
fn incomplete(status: &WhatIfStatusRecord, summary: &SummaryRecord) -> String {
    let most = u64::from(status.steps);
    if summary.steps >= most {
        return "The what-if is incomplete, because the run ended first. Train for more steps."
            .to_owned();
    }
    format!(
        "The what-if is incomplete: the run ended after {} steps, and the what-if takes up to {}. Train for more steps.",
        grouped(summary.steps),
        grouped(most)
    )
}

fn entry(answer: &WhatIfRecord, detail: Detail) -> Entry {
    let sign = if answer.gain_pct < 0.0 { '+' } else { '−' };
    let outcome = format!(
        "{} ({sign}{} %)",
        duration_ms(answer.step_ms),
        percent(answer.gain_pct.abs(), 0)
    );
    let (low, high) = answer.step_ci_ms;
    let interval = format!("{} to {}", duration_ms(low), duration_ms(high));
    let change = change(answer);
    match detail {
        Detail::Brief => Entry::new(outcome, format!("{change} (measured: {interval}).")),
        Detail::Full => Entry {
            detail: format!(
                "95 % interval {interval} · {} · {} inputs not trained on",
                steps(answer.steps),
                answer.inputs_not_trained_on
            ),
            ..Entry::new(outcome, format!("{change}."))
        },
    }
}

/// The change, as a condition.
fn change(answer: &WhatIfRecord) -> String {
    let Some(stage) = &answer.stage else {
        return changed_requests(answer.intervention, answer.amount);
    };
    match answer.intervention {
        InterventionKind::Gate => {
            let calls = format!("{:.0}", answer.amount);
            let noun = if answer.amount > 1.0 { "calls" } else { "call" };
            format!("With at most {calls} {noun} of `{stage}` at once")
        }
        InterventionKind::Delay => format!(
            "If each call of `{stage}` took {} longer",
            duration_ms(answer.amount)
        ),
        other => changed_stage(stage, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(intervention: InterventionKind, amount: f64, gain_pct: f64) -> WhatIfRecord {
        WhatIfRecord {
            stage: Some("decode".to_owned()),
            intervention,
            amount,
            step_ms: 54.0,
            step_ci_ms: (52.0, 56.0),
            modelled_step_ms: None,
            gain_pct,
            gain_ci_pct: (gain_pct - 2.0, gain_pct + 2.0),
            steps: 100,
            inputs_not_trained_on: 300,
        }
    }

    #[test]
    fn each_answer_says_the_change_the_step_and_the_interval() {
        let text = |answer: &WhatIfRecord| {
            let entry = entry(answer, Detail::Brief);
            format!("{}: {}", entry.head, entry.body)
        };
        assert_eq!(
            text(&answer(InterventionKind::Free, 1.0, 46.0)),
            "54.0 ms (−46 %): If `decode` took no time (measured: 52.0 ms to 56.0 ms)."
        );
        assert_eq!(
            text(&answer(InterventionKind::Gate, 3.0, -8.0)),
            "54.0 ms (+8 %): With at most 3 calls of `decode` at once (measured: 52.0 ms to 56.0 ms)."
        );
        let of_loop = |intervention, amount| WhatIfRecord {
            stage: None,
            ..answer(intervention, amount, 46.0)
        };
        assert_eq!(
            text(&of_loop(InterventionKind::Free, 1.0)),
            "54.0 ms (−46 %): If the loop never waited for a batch (measured: 52.0 ms to 56.0 ms)."
        );
        assert!(
            text(&of_loop(InterventionKind::Delay, 1.5))
                .contains("If the loop requested each batch 1.5 ms later")
        );
    }

    #[test]
    fn the_section_says_what_the_answers_leave_out_and_what_they_cost() {
        let summary = SummaryRecord {
            what_if: vec![answer(InterventionKind::Free, 1.0, 46.0)],
            what_if_status: Some(WhatIfStatusRecord {
                finished: true,
                steps: 4000,
                imprecise: 2,
                steps_for_precision: Some(9000),
                steps_to_settle: Some(600),
                not_replaceable: vec!["write".to_owned(), "log".to_owned()],
                batches_not_repeatable: true,
                inputs_not_trained_on: 450,
            }),
            ..SummaryRecord::default()
        };
        let section = section(&summary, Detail::Brief).unwrap();
        let sentences = section.blocks[1..].iter().map(|block| match block {
            Block::Sentence(text) => text.as_str(),
            _ => panic!("{section:?}"),
        });
        assert_eq!(
            sentences.collect::<Vec<_>>(),
            [
                "2 more changes were measured, but too imprecisely to report: the steps vary too much for this number \
                 of steps. About 9,000 steps would be enough: `HEADSPACE_WHAT_IF_STEPS=9000`.",
                "Buffers may hide part of each change: the what-if needs at least 600 steps.",
                "Not measured without their work, because their calls cannot return an earlier result: `write`, `log`.",
                "The floor is not measured, because the batches cannot be copied.",
                "450 calls returned a copy of an earlier result, so their inputs were not trained on.",
            ]
        );
        assert_eq!(
            super::section(&SummaryRecord::default(), Detail::Full),
            None
        );
    }

    #[test]
    fn the_section_says_that_the_run_was_too_short_for_the_what_if() {
        let last_sentence = |steps| {
            let summary = SummaryRecord {
                state: RunState::Finished,
                steps,
                what_if_status: Some(WhatIfStatusRecord {
                    steps: 2000,
                    ..WhatIfStatusRecord::default()
                }),
                ..SummaryRecord::default()
            };
            match section(&summary, Detail::Brief).unwrap().blocks.pop() {
                Some(Block::Sentence(text)) => text,
                other => panic!("{other:?}"),
            }
        };

        assert_eq!(
            last_sentence(700),
            "The what-if is incomplete: the run ended after 700 steps, and the what-if takes up to 2,000. Train for more \
             steps."
        );
        assert_eq!(
            last_sentence(2100),
            "The what-if is incomplete, because the run ended first. Train for more steps."
        );
    }
}
