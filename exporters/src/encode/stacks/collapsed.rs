//! Collapsed stacks: one line for each stack, its calls separated by semicolons, and its milliseconds.
//!
//! The format is that of Brendan Gregg's `FlameGraph` scripts, which many viewers read.

use std::collections::BTreeMap;

use super::{RankStacks, wait};
use crate::encode::untrusted_text::is_unsafe;

/// The stacks as text. Stacks of less than half a millisecond are left out.
pub fn collapsed(ranks: &[RankStacks<'_>]) -> String {
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    for rank in ranks {
        for stack in &rank.stacks.stacks {
            let calls = rank.frames(stack);
            let calls =
                calls.map(|frame| format!("{} ({}:{})", frame.function, frame.file, frame.line));
            let names = std::iter::once(rank.place(stack))
                .chain(calls)
                .chain(wait(stack));
            let names: Vec<String> = names
                .map(|name| name.replace(|c| c == ';' || is_unsafe(c), "_"))
                .collect();
            *times.entry(names.join(";")).or_default() += stack.seconds;
        }
    }
    let mut text = String::new();
    for (names, seconds) in times {
        let ms = (1e3 * seconds).round();
        if ms > 0.0 {
            text.extend([&*names, " ", &ms.to_string(), "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn each_stack_is_a_line_with_its_milliseconds() {
        let stacks = example();
        let text = collapsed(&[RankStacks {
            rank: None,
            stacks: &stacks,
        }]);
        assert_eq!(
            text,
            "compute;train (/home/me/data.py:40) 750\n\
             fetch;load (/home/me/data.py:5) 500\n\
             fetch;load (/home/me/data.py:5);read_ all (/home/me/data.py:7);(waits for a file) 1500\n"
        );
    }
}
