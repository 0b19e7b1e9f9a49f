//! Groups threads whose names differ only in the number at the end.

use std::borrow::Cow;

/// The group of the thread that consumes the batches.
pub(super) use headspace_agent::model::attributes::CONSUMER;

/// The group of the agent's own threads.
pub(super) use headspace_agent::model::attributes::AGENT;

/// The combined group of all threads that are not listed individually.
pub(super) const OTHERS: &str = "others";

/// The group of a thread with that name: `pt_autograd_12` and `pt_autograd_3` are `pt_autograd`.
///
/// The kernel keeps 15 bytes of a name, which need not be valid UTF-8.
pub(super) fn group_of(name: &[u8]) -> Cow<'_, str> {
    if name.starts_with(b"headspace-") || name.starts_with(b"hs-") {
        return Cow::Borrowed(AGENT);
    }
    let separator = |byte: &u8| b" -_.:/#@+,".contains(byte);
    let stem = name
        .iter()
        .rposition(|byte| !byte.is_ascii_digit() && !separator(byte))
        .map_or(name, |last| &name[..=last])
        .trim_ascii();
    let text = String::from_utf8_lossy(stem);
    if text.is_empty() {
        return Cow::Borrowed("unnamed");
    }
    if [CONSUMER, AGENT, OTHERS].contains(&&*text) {
        return Cow::Owned(format!("{text} (named)"));
    }
    if text.chars().any(char::is_control) {
        return Cow::Owned(text.replace(char::is_control, "?"));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_and_separators_at_the_end_do_not_separate_threads() {
        for (name, group) in [
            ("python3.11", "python"),
            ("pt_data_pin", "pt_data_pin"),
            ("pt_autograd_12", "pt_autograd"),
            ("cuda-EvtHandlr", "cuda-EvtHandlr"),
            ("ThreadPoolExecu", "ThreadPoolExecu"),
            ("av:h264:df0", "av:h264:df"),
            ("Worker #7", "Worker"),
            ("7", "7"),
            ("", "unnamed"),
            ("  ", "unnamed"),
        ] {
            assert_eq!(group_of(name.as_bytes()), group, "{name}");
        }
    }

    #[test]
    fn threads_of_the_agent_are_one_group_and_reserved_names_are_renamed() {
        assert_eq!(group_of(b"headspace-tick"), AGENT);
        assert_eq!(group_of(b"hs-tree_memory"), AGENT);
        assert_eq!(group_of(b"consumer_3"), "consumer (named)");
        assert_eq!(group_of(b"others"), "others (named)");
        assert_eq!(group_of(b"headspace"), "headspace (named)");
    }

    #[test]
    fn a_name_may_be_any_bytes() {
        assert_eq!(group_of(b"a\nb"), "a?b");
        assert_eq!(group_of(b"\xff7"), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_group_that_can_be_printed(name: Vec<u8>) {
            let group = group_of(&name);
            prop_assert!(!group.is_empty() && !group.chars().any(char::is_control));
        }
    }
}
