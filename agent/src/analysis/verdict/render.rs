//! Rows as text that fits a terminal, and as HTML.

/// Widest line of text, in columns.
pub(super) const COLUMNS: usize = 100;

/// Widest line of entries, which have a column of their own to the left.
const NARROW: usize = 80;

/// Where the text begins, after its label.
const INDENT: usize = 11;

/// What stands after a label.
enum Line {
    /// Facts side by side, each kept in one piece.
    Parts(Vec<String>),
    /// Words, broken where the line ends.
    Sentence(String),
    /// The first line: what was watched, and where the records are.
    Heading(String, String),
    /// Pairs of a short text and words beside it, aligned.
    Entries(Vec<(String, String)>),
    /// Cells by line and column, the first line for the heads, aligned.
    Table(Vec<Vec<String>>),
}

/// One label and what it says.
pub(super) struct Row {
    label: &'static str,
    lines: Vec<Line>,
}

impl Row {
    pub(super) fn parts(label: &'static str, parts: Vec<String>) -> Self {
        Self {
            label,
            lines: vec![Line::Parts(parts)],
        }
    }

    pub(super) fn sentence(label: &'static str, words: impl Into<String>) -> Self {
        Self {
            label,
            lines: vec![Line::Sentence(words.into())],
        }
    }

    pub(super) fn entries(label: &'static str, entries: Vec<(String, String)>) -> Self {
        Self {
            label,
            lines: vec![Line::Entries(entries)],
        }
    }

    pub(super) fn table(label: &'static str, cells: Vec<Vec<String>>) -> Self {
        Self {
            label,
            lines: vec![Line::Table(cells)],
        }
    }

    pub(super) fn heading(label: &'static str, what: String, location: Option<&str>) -> Self {
        Self {
            label,
            lines: vec![Line::Heading(what, location.unwrap_or_default().to_owned())],
        }
    }

    pub(super) fn and_parts(mut self, parts: Vec<String>) -> Self {
        self.lines.push(Line::Parts(parts));
        self
    }

    pub(super) fn and_sentence(mut self, words: impl Into<String>) -> Self {
        self.lines.push(Line::Sentence(words.into()));
        self
    }
}

/// The rows as lines of at most 100 columns, or fewer; tables stay as wide as they are.
pub(super) fn text(rows: &[Row], columns: usize) -> Vec<String> {
    let room = columns.min(COLUMNS).saturating_sub(INDENT).max(INDENT);
    let mut out = Vec::new();
    for row in rows {
        let mut label = row.label;
        for line in row.lines.iter().flat_map(|line| layout(line, room)) {
            out.push(format!("{label:INDENT$}{line}").trim_end().to_owned());
            label = "";
        }
    }
    out
}

/// A line in pieces that fit beside the label.
fn layout(line: &Line, room: usize) -> Vec<String> {
    match line {
        Line::Parts(parts) => pack(parts.iter().map(|p| plain(p)), "   ", room),
        Line::Sentence(words) => wrap(words, room),
        Line::Heading(what, location) => pack([plain(what), plain(location)], "      ", room),
        Line::Entries(entries) => layout_entries(entries, room),
        Line::Table(cells) => layout_table(cells),
    }
}

fn layout_entries(entries: &[(String, String)], room: usize) -> Vec<String> {
    let heads: Vec<String> = entries.iter().map(|(head, _)| plain(head)).collect();
    let widest = heads.iter().map(|head| width(head)).max().unwrap_or(0);
    let room = (NARROW - INDENT)
        .min(room)
        .saturating_sub(widest + 3)
        .max(20);
    let mut lines = Vec::new();
    for (head, (_, words)) in heads.iter().zip(entries) {
        let mut head = head.as_str();
        for line in wrap(words, room) {
            lines.push(format!("{head:widest$}   {line}"));
            head = "";
        }
    }
    lines
}

/// The first column to the left, numbers to the right.
fn layout_table(cells: &[Vec<String>]) -> Vec<String> {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = cells.iter().filter_map(|row| row.get(column));
            cells.map(|cell| width(&plain(cell))).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let aligned = cells.map(|(column, (cell, &width))| match column {
            0 => format!("{:width$}", plain(cell)),
            _ => format!("{:>width$}", plain(cell)),
        });
        aligned.collect::<Vec<_>>().join("   ")
    };
    cells.iter().map(line).collect()
}

/// Words in lines of at most that width.
fn wrap(words: &str, room: usize) -> Vec<String> {
    pack(
        plain(words).split_whitespace().map(ToOwned::to_owned),
        " ",
        room,
    )
}

/// Joins pieces as long as they fit. A piece that never fits keeps its end, which in a path is
/// what tells it from others.
fn pack(pieces: impl IntoIterator<Item = String>, gap: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        let piece = shorten(piece, room);
        match lines.last_mut() {
            Some(last) if width(last) + gap.len() + width(&piece) <= room => {
                last.push_str(gap);
                last.push_str(&piece);
            }
            _ => lines.push(piece),
        }
    }
    lines
}

fn shorten(piece: String, room: usize) -> String {
    let excess = width(&piece).saturating_sub(room);
    if excess == 0 {
        return piece;
    }
    format!("…{}", piece.chars().skip(excess + 1).collect::<String>())
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Without what would move a terminal's cursor: reasons and paths come from outside.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
