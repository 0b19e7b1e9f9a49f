//! The section about the main loop and the other loops.

use super::super::section::{Block, Column, Row, Section, SectionId, Table};
use super::super::units::{duration_s, steps};
use super::Detail;
use crate::model::record::{OtherLoop, Role, SummaryRecord};

/// Maximum number of loops that are named. The others are counted.
const NAMED: usize = 3;

/// Maximum number of rows of the table. The records hold all loops.
const MOST_ROWS: usize = 64;

const COLUMNS: [Column; 5] = [
    Column::new("loop", "What the loop is called"),
    Column::new("role", "Training, evaluation or background"),
    Column::new("epochs", "How often its loader was iterated"),
    Column::new("steps", "Batches that it received"),
    Column::new("in steps", "Time that its steps took"),
];

/// Number of steps on repeated batches. `None` if there are none.
pub(super) fn repeated(s: &SummaryRecord) -> Option<Section> {
    (s.replayed_steps > 0).then(|| {
        let text = format!(
            "{} of {} trained on batches that were repeated",
            s.replayed_steps,
            steps(s.steps)
        );
        Section::sentence(SectionId::Repeated, text)
    })
}

/// In brief, the main loop and why it was chosen. In full, a table of all loops. `None` if there is only
/// one loop and nothing more is known about it.
pub(super) fn section(s: &SummaryRecord, detail: Detail) -> Option<Section> {
    match detail {
        Detail::Brief => sentence(s),
        Detail::Full => table(s),
    }
}

fn sentence(s: &SummaryRecord) -> Option<Section> {
    let name = s.loop_name.as_deref()?;
    let only = s.other_loops.is_empty();
    let why = match s.loop_role {
        _ if s.loop_chosen => "chosen by you",
        Some(Role::Training) => "model in training mode",
        Some(Role::Evaluation) if only => "an evaluation: no training loop was seen",
        Some(Role::Evaluation) => "an evaluation: no training loop took steps",
        Some(Role::Background) => {
            "on a background thread: its wait is not the wait of the training loop"
        }
        None if only => return None,
        None => "the loop with the longest total time among those with enough steps",
    };
    let mut text = format!("{name} ({why})");
    if !only {
        let (named, rest) = s.other_loops.split_at(NAMED.min(s.other_loops.len()));
        let mut others: Vec<String> = named.iter().map(describe_other).collect();
        if !rest.is_empty() {
            others.push(format!("{} more", rest.len()));
        }
        text = format!("{text}. Not included: {}", others.join(", "));
    }
    Some(Section::sentence(SectionId::Loop, text))
}

fn describe_other(other: &OtherLoop) -> String {
    let name = without_role(other);
    let mut about = Vec::new();
    match other.role {
        Some(Role::Evaluation) => {
            about.push("evaluation".to_owned());
            if other.epochs > 1 {
                about.push(format!("{} times", other.epochs));
            }
        }
        Some(Role::Background) => about.push("background thread".to_owned()),
        Some(Role::Training) if name != other.name => about.push("training".to_owned()),
        Some(Role::Training) | None => {}
    }
    about.push(duration_s(other.seconds));
    format!("{name} ({})", about.join(", "))
}

/// The name of a loop without its role: a loader's second loop is named after its role.
fn without_role(other: &OtherLoop) -> &str {
    let plain = || {
        let name = other.name.strip_suffix(')')?;
        name.strip_suffix(other.role?.as_str())?.strip_suffix(" (")
    };
    plain().unwrap_or(&other.name)
}

/// The main loop and the others. `None` if there is only one loop.
fn table(s: &SummaryRecord) -> Option<Section> {
    let name = s.loop_name.as_ref().filter(|_| !s.other_loops.is_empty())?;
    let row = |name: &str, role: Option<Role>, epochs: u64, steps: u64, took: String| {
        Row::new(vec![
            name.to_owned(),
            role.map_or("", Role::as_str).to_owned(),
            epochs.to_string(),
            steps.to_string(),
            took,
        ])
    };
    let main = row(name, s.loop_role, s.epochs, s.steps, String::new());
    let others = s.other_loops.iter().take(MOST_ROWS).map(|other| {
        let took = duration_s(other.seconds);
        row(&other.name, other.role, other.epochs, other.steps, took)
    });
    let mark = match s.loop_role {
        Some(Role::Training) | None => "training loop",
        Some(Role::Evaluation | Role::Background) => "main loop",
    };
    let rows = std::iter::once(main.marked_if(true, mark));
    Some(Section::new(
        SectionId::Loop,
        Block::Table(Table {
            columns: COLUMNS.to_vec(),
            rows: rows.chain(others).collect(),
            more: s.other_loops.len().saturating_sub(MOST_ROWS),
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(name: &str, role: Option<Role>, seconds: f64) -> OtherLoop {
        OtherLoop {
            name: name.to_owned(),
            role,
            epochs: 1,
            steps: 10,
            seconds,
        }
    }

    fn brief_line(role: Option<Role>, chosen: bool, others: &[OtherLoop]) -> String {
        let summary = SummaryRecord {
            loop_name: Some("DataLoader".to_owned()),
            loop_role: role,
            loop_chosen: chosen,
            other_loops: others.to_vec(),
            steps: 100,
            ..SummaryRecord::default()
        };
        match section(&summary, Detail::Brief).map(|section| section.blocks) {
            Some(blocks) => match &blocks[..] {
                [Block::Sentence(text)] => text.clone(),
                other => panic!("{other:?}"),
            },
            None => String::new(),
        }
    }

    #[test]
    fn an_only_loop_of_unknown_role_has_no_line() {
        assert_eq!(brief_line(None, false, &[]), "");
    }

    #[test]
    fn the_line_names_the_main_loop_with_the_reason_and_the_other_loops() {
        let others = [
            other("DataLoader (evaluation)", Some(Role::Evaluation), 1.24),
            other("feeder", Some(Role::Background), 0.5),
            other("DataLoader-2", None, 0.25),
            other("Dataset", None, 0.1),
        ];
        assert_eq!(
            brief_line(Some(Role::Training), false, &others),
            "DataLoader (model in training mode). Not included: DataLoader (evaluation, 1.24 s), feeder \
             (background thread, 500 ms), DataLoader-2 (250 ms), 1 more"
        );
    }

    #[test]
    fn the_line_counts_the_epochs_of_an_evaluation() {
        let often = |name| OtherLoop {
            epochs: 60,
            ..other(name, Some(Role::Evaluation), 4.0)
        };
        let others = [often("DataLoader (evaluation)"), often("val")];
        let line = brief_line(Some(Role::Training), false, &others);
        assert!(
            line.ends_with(
                "Not included: DataLoader (evaluation, 60 times, 4.00 s), val (evaluation, 60 times, \
                 4.00 s)"
            ),
            "{line}"
        );
    }

    #[test]
    fn the_line_states_why_the_loop_was_chosen() {
        let others = [other("val", Some(Role::Evaluation), 2.0)];
        for (role, chosen, why) in [
            (Some(Role::Training), true, "chosen by you"),
            (
                None,
                false,
                "the loop with the longest total time among those with enough steps",
            ),
            (Some(Role::Evaluation), false, "no training loop took steps"),
            (Some(Role::Background), false, "on a background thread"),
        ] {
            let line = brief_line(role, chosen, &others);
            assert!(line.contains(why), "{line}");
            assert!(line.contains("val (evaluation, 2.00 s)"), "{line}");
        }
    }
}
