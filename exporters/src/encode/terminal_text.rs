//! Wraps, truncates and aligns text in columns of a terminal.
//!
//! Width is counted in columns: a Chinese character or an emoji takes two, a combining mark none.
//! Names, paths and reasons are untrusted, so [`plain`] removes unsafe characters. All functions here except
//! [`width`] apply it.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthStr;

use super::untrusted_text::is_unsafe;

/// Returns `text` with each unsafe character replaced by a space.
pub fn plain(text: &str) -> String {
    text.replace(is_unsafe, " ")
}

/// Number of columns that `text` occupies.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Wraps `words` into lines of at most `columns` columns. The first line begins with `head`, the others
/// are indented by its width. Lines break at spaces. A word that is too long has a line of its own.
/// No-break spaces are kept.
pub fn wrap(head: &str, words: &str, columns: usize) -> Vec<String> {
    let head = plain(head);
    let indent = " ".repeat(width(&head));
    let words = plain(words);
    let words = words.split(' ').filter(|word| !word.is_empty());
    let words = words.collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        return vec![head.trim_end().to_owned()];
    }
    let options = Options::new(columns)
        .initial_indent(&head)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(&words, options).into_iter();
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// The beginning of `text` in at most `columns` columns, with `…` if it is truncated.
pub fn keep_beginning(text: &str, columns: usize) -> String {
    let text = plain(text);
    if width(&text) <= columns {
        return text;
    }
    let fits = |end: &usize| width(&text[..*end]) < columns;
    let ends = text.char_indices().map(|(end, _)| end);
    match ends.take_while(fits).last() {
        Some(end) => format!("{}…", &text[..end]),
        None => String::new(),
    }
}

/// The end of `text` in at most `columns` columns, with `…` if it is truncated. For a path, the end is
/// the distinctive part.
pub fn keep_end(text: &str, columns: usize) -> String {
    let text = plain(text);
    if width(&text) <= columns {
        return text;
    }
    // A mark that combines with a removed character is removed too.
    let fits = |rest: &&str| {
        let first = rest.chars().next().map(String::from).unwrap_or_default();
        width(rest) < columns && (rest.is_empty() || width(&first) > 0)
    };
    let mut ends = text.char_indices().map(|(start, _)| &text[start..]);
    match ends.find(fits) {
        Some(rest) => format!("…{rest}"),
        None => "…".repeat(columns.min(1)),
    }
}

/// Left-aligns `text` in `columns` columns. Wider text is not truncated.
pub fn left(text: &str, columns: usize) -> String {
    let text = plain(text);
    let room = columns.saturating_sub(width(&text));
    text + &" ".repeat(room)
}

/// Right-aligns `text` in `columns` columns. Wider text is not truncated.
pub fn right(text: &str, columns: usize) -> String {
    let text = plain(text);
    let room = columns.saturating_sub(width(&text));
    " ".repeat(room) + &text
}

/// The lines of [`wrap`], joined into one text.
pub fn paragraph(head: &str, words: &str, columns: usize) -> String {
    wrap(head, words, columns).join("\n") + "\n"
}

/// Formats rows as a table with two spaces between columns. The first `left_columns` columns are
/// left-aligned, the others right-aligned.
pub fn table(rows: &[Vec<String>], left_columns: usize) -> String {
    let lines = aligned(rows, left_columns, "  ").into_iter();
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Aligns the columns of rows. Returns a line for each row, with `gap` between columns. The first
/// `left_columns` columns are left-aligned, the others right-aligned.
pub(super) fn aligned(rows: &[Vec<String>], left_columns: usize, gap: &str) -> Vec<String> {
    let mut widths = vec![0; rows.iter().map(Vec::len).max().unwrap_or(0)];
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(&plain(cell)).max(*widest);
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, columns))| {
            if column < left_columns {
                left(cell, *columns)
            } else {
                right(cell, *columns)
            }
        });
        cells.collect::<Vec<_>>().join(gap)
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{9b}d"), "a [2Jb c d");
        assert_eq!(wrap("", "a\x1b[2Jb\nc", 80), ["a [2Jb c"]);
    }

    #[test]
    fn width_is_the_number_of_terminal_columns() {
        for (text, columns) in [("解码", 4), ("e\u{301}", 1), ("👩‍🔬", 2), ("≤ 67", 4)] {
            assert_eq!(width(text), columns, "{text}");
        }
    }

    #[test]
    fn words_are_wrapped_and_aligned_within_the_width() {
        assert_eq!(
            wrap("slowest  ", "rank 3, because\nof its data", 22),
            [
                "slowest  rank 3,",
                "         because of",
                "         its data"
            ]
        );
        assert_eq!(
            wrap("解码  ", "a 解码 b", 11),
            ["解码  a", "      解码", "      b"]
        );
    }

    #[test]
    fn a_word_wider_than_the_line_gets_its_own_line_unbroken() {
        let path = "/".repeat(100);
        let lines = wrap("gpu  ", &format!("no {path} there"), 20);

        assert_eq!(lines[1], format!("     {path}"));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn without_words_the_result_is_the_head() {
        assert_eq!(wrap("gpu  on  ", "", 80), ["gpu  on"]);
        assert_eq!(wrap("", "", 80), [""]);
    }

    #[test]
    fn words_that_a_no_break_space_joins_stay_together() {
        assert_eq!(
            wrap("", "run make\u{a0}test now", 10),
            ["run", "make\u{a0}test", "now"]
        );
    }

    #[test]
    fn text_that_is_too_wide_is_truncated_to_its_columns() {
        assert_eq!(keep_beginning("解码解码", 6), "解码…");
        assert_eq!(keep_beginning("解码解码", 5), "解码…");
        assert_eq!(keep_end("解码解码", 6), "…解码");
        assert_eq!(keep_beginning("abc", 3), "abc");
        assert_eq!(keep_end("/very/long/path", 6), "…/path");
        assert_eq!(keep_end("xe\u{301}y", 2), "…y");
        for text in ["abc", "解码", "👩‍🔬👩‍🔬", "e\u{301}e\u{301}e\u{301}"] {
            for columns in 0..8 {
                assert!(
                    width(&keep_beginning(text, columns)) <= columns,
                    "{text} {columns}"
                );
                assert!(
                    width(&keep_end(text, columns)) <= columns,
                    "{text} {columns}"
                );
            }
        }
    }

    #[test]
    fn columns_are_aligned_by_display_width() {
        let rows = [["run", "headspace"], ["解码", "≤ 67.0 %"], ["longer", "-"]]
            .map(|row| row.map(ToOwned::to_owned).to_vec());

        assert_eq!(
            table(&rows, 1),
            "run     headspace\n解码     ≤ 67.0 %\nlonger          -\n"
        );
    }
}
