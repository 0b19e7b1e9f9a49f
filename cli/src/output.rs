//! Removes from the output what could control the terminal.
//!
//! Another user may have chosen the texts of a record and the names of files and folders. All output of a command
//! passes [`PlainWriter`], so no message can forget to replace an escape sequence.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use headspace_exporters::encode::untrusted_text::is_unsafe;
use serde::Serialize;

/// Passes text on, with each unsafe character except the end of a line replaced by a space.
pub(crate) struct PlainWriter<'a>(pub(crate) &'a mut dyn Write);

impl Write for PlainWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = text.replace(is_unsafe_in_lines, " ");
        self.0.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    /// Writes a message at once, so that it is not mixed with those of other processes.
    fn write_fmt(&mut self, message: fmt::Arguments<'_>) -> io::Result<()> {
        self.write_all(message.to_string().as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The value as JSON with the end of a line. Unsafe characters are escaped, so they reach programs but not the terminal.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    let mut escaped = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        // They occur only inside strings, and four digits are enough for each of them.
        if is_unsafe_in_lines(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped.push('\n');
    Ok(escaped)
}

fn is_unsafe_in_lines(c: char) -> bool {
    c != '\n' && is_unsafe(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_words;

    #[test]
    fn escape_sequences_are_replaced_in_text_and_lines_are_kept() {
        let mut out = Vec::new();
        let (name, mut writer) = ("\u{9b}2J", PlainWriter(&mut out));

        writer.write_all("é\x1b[2J\n".as_bytes()).unwrap();
        write!(writer, "{name}\r\u{202e}").unwrap();

        assert_eq!(String::from_utf8(out).unwrap(), "é [2J\n 2J  ");
    }

    #[test]
    fn json_has_no_unsafe_character_and_the_same_value() {
        let value = "é\x1b[2J\u{7f}\u{9b}\u{202e}\n";

        let text = json(&value).unwrap();

        assert_eq!(text, "\"é\\u001b[2J\\u007f\\u009b\\u202e\\n\"\n");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }

    #[test]
    fn a_message_about_a_hostile_name_is_one_line_without_escape_sequences() {
        let name = "/nowhere/\x1b]0;title\x07\nheadspace: all is well";
        let commands: [&[&str]; 4] = [
            &["report", name],
            &["report", "--html", "page.html", name],
            &["compare", name, name],
            &["serve", name],
        ];
        for command in commands {
            let (_, out, err) = run_words(["headspace"].iter().chain(command).copied());

            assert_eq!(out, "", "{command:?}");
            assert!(!err.contains(is_unsafe_in_lines), "{err:?}");
            let forged = err.lines().any(|line| line == "headspace: all is well");
            assert!(!forged && err.contains("cannot read"), "{err}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_repeated_without_escape_sequences() {
        let (_, _, err) = run_words(["headspace", "report", "--evil\u{9b}2J\u{202e}"]);

        assert!(err.contains("--evil"), "{err}");
        assert!(!err.contains(is_unsafe_in_lines), "{err:?}");
    }
}
