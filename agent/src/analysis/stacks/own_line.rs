//! Chooses the line of the program that a stack counts for.
//!
//! It is the innermost line of the user's code, or the innermost line if none is the user's. Which code is the
//! user's is known when the stack is read ([`Frame::is_own`]).

use crate::model::stack::Frame;

/// The line that a stack counts for.
pub(super) fn own_line(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|frame| frame.is_own).or(frames.first())
}
