//! Chooses the line of the program that a stack counts for.
//!
//! It is the innermost line of the user's code, or the innermost line if none is the user's. Which code is the
//! user's is known when the stack is read ([`Frame::is_own`]).

use std::collections::HashMap;

use crate::model::stack::Frame;

/// The line that a stack counts for.
pub(super) fn own_line(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|frame| frame.is_own).or(frames.first())
}

/// The line with the longest time. Of equal ones, the first in the order of files and lines.
pub(super) fn longest_line<'a>(seconds: &HashMap<&'a Frame, f64>) -> Option<&'a Frame> {
    let by_time =
        |a: &(&&Frame, &f64), b: &(&&Frame, &f64)| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0));
    seconds.iter().max_by(by_time).map(|(line, _)| *line)
}
