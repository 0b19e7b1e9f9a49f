//! The section with the answers of a what-if.

use super::super::section::{Block, Entry, Section, SectionId};
use super::super::units::{duration_ms, percent, steps};
use super::Detail;
use crate::model::InterventionKind;
use crate::model::record::{SummaryRecord, WhatIfRecord};

/// Maximum number of answers, in brief and in full. The records hold all of them.
const MOST_ANSWERS: (usize, usize) = (4, 48);

/// The answers, the shortest step first, and how many inputs were not trained on.
pub(super) fn section(summary: &SummaryRecord, detail: Detail) -> Option<Section> {
    let shown = summary.what_if.iter().take(detail.choose(MOST_ANSWERS));
    let entries: Vec<Entry> = shown.map(|answer| entry(answer, detail)).collect();
    let skipped = summary.inputs_not_trained_on.filter(|count| *count > 0);
    let skipped = skipped.map(|count| {
        Block::Sentence(format!(
            "{count} calls of stages returned a copy of an earlier result, so their inputs were not trained on."
        ))
    });
    let entries = (!entries.is_empty()).then_some(Block::Entries(entries));
    let blocks: Vec<Block> = entries.into_iter().chain(skipped).collect();
    (!blocks.is_empty()).then_some(Section {
        id: SectionId::WhatIf,
        blocks,
    })
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
    let stage = &answer.stage;
    match answer.intervention {
        InterventionKind::Free => format!("If `{stage}` took no time"),
        InterventionKind::Half => format!("If `{stage}` did half the work"),
        InterventionKind::Cut => format!("If all stages up to `{stage}` took no time"),
        InterventionKind::Gate => {
            let calls = format!("{:.0}", answer.amount);
            let noun = if answer.amount > 1.0 { "calls" } else { "call" };
            format!("With at most {calls} {noun} of `{stage}` at once")
        }
        InterventionKind::Delay => format!(
            "If each call of `{stage}` took {} longer",
            duration_ms(answer.amount)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(intervention: InterventionKind, amount: f64, gain_pct: f64) -> WhatIfRecord {
        WhatIfRecord {
            stage: "decode".to_owned(),
            intervention,
            amount,
            step_ms: 54.0,
            step_ci_ms: (52.0, 56.0),
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
    }

    #[test]
    fn inputs_that_were_not_trained_on_are_counted_aloud() {
        let summary = SummaryRecord {
            what_if: vec![answer(InterventionKind::Free, 1.0, 46.0)],
            inputs_not_trained_on: Some(450),
            ..SummaryRecord::default()
        };
        let section = section(&summary, Detail::Brief).unwrap();
        let [_, Block::Sentence(text)] = &section.blocks[..] else {
            panic!("{section:?}");
        };
        assert!(text.starts_with("450 calls of stages returned a copy"));
        assert_eq!(
            super::section(&SummaryRecord::default(), Detail::Full),
            None
        );
    }
}
