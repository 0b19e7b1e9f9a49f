//! Which loop the numbers are of, and which were kept apart.

use super::render::Row;
use super::units::duration_s;
use crate::model::record::{OtherLoop, Role, SummaryRecord};

/// Loops that are named; the others are counted.
const NAMED: usize = 3;

/// Nothing where one loop is watched, and nothing is known of it beyond that.
pub(super) fn row(s: &SummaryRecord) -> Option<Row> {
    let name = s.loop_name.as_deref()?;
    let only = s.other_loops.is_empty();
    let why = match s.loop_role {
        _ if s.loop_chosen => "as you named it",
        Some(Role::Training) => "model in training mode",
        Some(Role::Evaluation) if only => "an evaluation: no training loop was seen",
        Some(Role::Evaluation) => "an evaluation: no training loop took steps",
        Some(Role::Background) => {
            "on a background thread, so its waiting is that thread's, not the training loop's"
        }
        None if only => return None,
        None => "most time was spent in it",
    };
    let mut text = format!("{name} ({why})");
    if !only {
        let (named, rest) = s.other_loops.split_at(NAMED.min(s.other_loops.len()));
        let mut apart: Vec<String> = named.iter().map(apart).collect();
        if !rest.is_empty() {
            apart.push(format!("{} more", rest.len()));
        }
        text = format!("{text}. Kept apart: {}", apart.join(", "));
    }
    Some(Row::sentence("loop", text))
}

fn apart(other: &OtherLoop) -> String {
    let why = match other.role {
        Some(Role::Evaluation) if !other.name.contains("evaluation") => "evaluation, ",
        Some(Role::Background) => "background thread, ",
        _ => "",
    };
    format!("{} ({why}{})", other.name, duration_s(other.seconds))
}
