//! Chooses the line of the program that a stack counts for.
//!
//! It is the innermost line of the user's code. If no line is the user's, it is the innermost line of an installed
//! package, or else the innermost line. Which code is the user's is known when the stack is read ([`Origin`]).

use std::collections::HashMap;

use crate::model::stack::{Frame, Origin};

/// The line that a stack counts for.
pub(super) fn own_line(frames: &[Frame]) -> Option<&Frame> {
    let innermost = |origin| frames.iter().find(|frame| frame.origin == origin);
    innermost(Origin::Own)
        .or_else(|| innermost(Origin::Package))
        .or(frames.first())
}

/// The line with the longest time. Of equal ones, the first in the order of files and lines.
pub(super) fn longest_line<'a>(seconds: &HashMap<&'a Frame, f64>) -> Option<&'a Frame> {
    let by_time =
        |a: &(&&Frame, &f64), b: &(&&Frame, &f64)| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0));
    seconds.iter().max_by(by_time).map(|(line, _)| *line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_own_code_the_line_of_a_package_counts_before_the_standard_library() {
        let frame = |file: &str, origin| Frame {
            file: file.into(),
            line: 1,
            function: "f".into(),
            origin,
        };
        let waits = frame("/usr/lib/python3.11/threading.py", Origin::Other);
        let loads = frame("/venv/site-packages/litdata/reader.py", Origin::Package);
        let own = frame("/home/me/train.py", Origin::Own);

        let stack = [waits.clone(), loads.clone(), own.clone()];
        assert_eq!(own_line(&stack), Some(&own));
        assert_eq!(own_line(&stack[..2]), Some(&loads));
        assert_eq!(own_line(&stack[..1]), Some(&waits));
    }
}
