//! Plain text in columns, and words in lines.

/// Columns two spaces apart, the first `left` of them to the left and the others to the right.
pub(crate) fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width.saturating_sub(cell.chars().count()));
            if i > 0 {
                line.push_str("  ");
            }
            let (before, after) = if i < left {
                ("", room.as_str())
            } else {
                (room.as_str(), "")
            };
            line.push_str(before);
            line.push_str(cell);
            line.push_str(after);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Lines of `words`, at most `columns` wide, the first behind `head` and the others below its words.
pub(crate) fn wrapped(head: &str, words: &str, columns: usize) -> String {
    let indent = head.chars().count();
    let (mut text, mut line, mut empty) = (String::new(), head.to_owned(), true);
    for word in plain(words).split_whitespace() {
        let length = line.chars().count() + word.chars().count();
        if !empty && length + 1 > columns {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
    text
}

/// The end of `text` where it is longer than `room` characters: of a path, it is what tells it from
/// others.
pub(crate) fn shorten(text: &str, room: usize) -> String {
    let text = plain(text);
    let length = text.chars().count();
    if length <= room {
        return text;
    }
    format!(
        "…{}",
        text.chars().skip(length + 1 - room).collect::<String>()
    )
}

/// Without what would move a terminal's cursor: names and paths come from outside.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_also_where_characters_are_more_than_one_byte() {
        let rows = [["run", "headspace"], ["a", "≤ 67.0 %"], ["longer", "-"]]
            .map(|row| row.map(ToOwned::to_owned).to_vec());

        assert_eq!(
            aligned(&rows, 1),
            "run     headspace\na        ≤ 67.0 %\nlonger          -\n"
        );
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = shorten(&format!("{}end", "x".repeat(100)), 32);

        assert_eq!(name.chars().count(), 32);
        assert!(name.starts_with('…') && name.ends_with("xend"));
    }

    #[test]
    fn words_stand_below_each_other_within_the_width() {
        let text = wrapped("slowest  ", "rank 3, because\nof its data", 22);

        assert_eq!(
            text,
            "slowest  rank 3,\n         because of\n         its data\n"
        );
    }
}
