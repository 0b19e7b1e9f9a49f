//! Lays out text in a column next to a name and a state, for a narrow terminal.

use headspace_exporters::encode::terminal_text::{left, paragraph, width};

/// Widest line of text, in columns.
const COLUMNS: usize = 80;

/// Width of the states `on` and `off`.
const STATE: usize = 5;

/// The column of the text.
pub(super) struct Column {
    /// Width of the name and of the gap after it.
    name: usize,
}

/// A no-break space: keeps words on one line until the text is laid out.
pub(super) const NEVER: &str = "\u{a0}";

impl Column {
    /// A column next to names of at most `longest` columns.
    pub(super) fn beside(longest: usize) -> Self {
        Self { name: longest + 2 }
    }

    /// Appends lines of `words`. The first is next to the name and the state.
    pub(super) fn write(&self, text: &mut String, name: &str, state: &str, words: &str) {
        Self::lines(text, &(left(name, self.name) + &left(state, STATE)), words);
    }

    /// Appends lines of `words` with a hanging indent: the first follows `mark`, the others are aligned
    /// with its text.
    pub(super) fn write_hanging(&self, text: &mut String, mark: &str, words: &str) {
        Self::lines(text, &(" ".repeat(self.name + STATE) + mark), words);
    }

    fn lines(text: &mut String, head: &str, words: &str) {
        let words = whole(words, COLUMNS.saturating_sub(width(head)));
        *text += &paragraph(head, &words, COLUMNS).replace(NEVER, " ");
    }
}

/// Keeps text between backticks on one line if it fits, so that it can be copied.
fn whole(words: &str, room: usize) -> String {
    let mut quoted = false;
    let mut pieces = words.split('`').map(|piece| {
        let copied = quoted && width(piece) + 2 <= room;
        quoted = !quoted;
        if copied {
            piece.replace(' ', NEVER)
        } else {
            piece.to_owned()
        }
    });
    let first = pieces.next().unwrap_or_default();
    pieces.fold(first, |text, piece| text + "`" + &piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_never_fits_stands_alone_and_whole() {
        let mut text = String::new();
        let path = "/".repeat(100);
        Column::beside(3).write(&mut text, "gpu", "off", &format!("no {path} there"));

        assert_eq!(
            text,
            format!("gpu  off  no\n          {path}\n          there\n")
        );
    }

    #[test]
    fn a_command_is_kept_on_one_line() {
        let mut text = String::new();
        let words = format!("{} `sysctl -w kernel.yes=1`, or `no way`", "x".repeat(60));
        Column::beside(3).write_hanging(&mut text, "→ ", &words);

        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[1], "`sysctl -w kernel.yes=1`, or `no way`");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut text = String::new();
        Column::beside(3).write(&mut text, "gpu", "off", "a\x1b[2Jb\nc");

        assert_eq!(text, "gpu  off  a [2Jb c\n");
    }
}
