//! Formats sections as text for a terminal.

use headspace_agent::wording::section::{Block, Entry, Fact, Section, Table, more_in_records};
use headspace_agent::wording::verdict::{Detail, Verdict};

use super::terminal_text::{self, aligned, keep_beginning, keep_end, left, width};

/// Widest line of text, in columns.
const COLUMNS: usize = 100;

/// Widest line of entries, whose names have a separate column on the left.
const NARROW: usize = 80;

/// Width of a section's label, in columns. The text begins after it.
pub const LABEL: usize = 11;

/// Longest name that a first column shows in full.
const LONGEST_NAME: usize = 24;

/// A verdict as text of at most 100 columns.
pub fn verdict_text(verdict: &Verdict<'_>) -> String {
    text(&verdict.sections(Detail::Brief))
}

/// Sections as text of at most 100 columns. Tables are not wrapped.
pub fn text(sections: &[Section]) -> String {
    let mut out = String::new();
    for section in sections {
        let mut label = section.id.label();
        for line in section_lines(section, COLUMNS) {
            out.push_str(format!("{label:LABEL$}{line}").trim_end());
            out.push('\n');
            label = "";
        }
    }
    out
}

/// The lines of a section next to its label, for a terminal of `columns` columns (at most 100 are
/// used). Tables are not wrapped.
pub fn section_lines(section: &Section, columns: usize) -> Vec<String> {
    let room = columns.min(COLUMNS).saturating_sub(LABEL).max(LABEL);
    let label = section.id.label();
    let blocks = section.blocks.iter();
    blocks
        .flat_map(|block| layout(block, label, room))
        .collect()
}

/// Formats a block as lines that fit next to the label.
fn layout(block: &Block, label: &str, room: usize) -> Vec<String> {
    match block {
        Block::Heading { what, location } => pack([what.clone(), location.clone()], "      ", room),
        Block::Facts(facts) => pack(facts.iter().map(|fact| phrase(fact, label)), "   ", room),
        Block::Sentence(words) => wrap(words, room),
        Block::Entries(entries) => layout_entries(entries, room),
        Block::Terms(terms) => {
            let entries = terms
                .iter()
                .map(|(term, words)| Entry::new(&**term, &**words));
            layout_entries(&entries.collect::<Vec<_>>(), room)
        }
        Block::Table(table) => layout_table(table),
    }
}

/// A fact in a few words. A label equal to the section's label is omitted.
fn phrase(fact: &Fact, section: &str) -> String {
    let label = Some(fact.label).filter(|label| *label != section);
    let parts = [label.unwrap_or_default(), &fact.value, &fact.note].into_iter();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

fn layout_entries(entries: &[Entry], room: usize) -> Vec<String> {
    let heads: Vec<String> = entries
        .iter()
        .map(|entry| keep_beginning(&entry.head, LONGEST_NAME))
        .collect();
    let widest = heads.iter().map(|head| width(head)).max().unwrap_or(0);
    let room = (NARROW - LABEL)
        .min(room)
        .saturating_sub(widest + 3)
        .max(20);
    let mut lines = Vec::new();
    for (head, entry) in heads.iter().zip(entries) {
        let mut head = head.as_str();
        for line in wrap(&entry.body, room) {
            lines.push(format!("{}   {line}", left(head, widest)));
            head = "";
        }
    }
    lines
}

/// Formats a table. The first column is left-aligned and has no heading; numbers are right-aligned.
fn layout_table(table: &Table) -> Vec<String> {
    let names = table.columns.iter().skip(1);
    let names = names.map(|column| column.name.to_owned());
    let mut rows: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(names).collect()];
    for row in &table.rows {
        let mut cells = row.cells.clone();
        if let Some(first) = cells.first_mut() {
            *first = keep_beginning(first, LONGEST_NAME);
        }
        rows.push(cells);
    }
    let mut lines = aligned(&rows, 1, "   ");
    if table.more > 0 {
        lines.push(more_in_records(table.more));
    }
    lines
}

/// Wraps words into lines of at most `room` columns. Of a word that is too long for any line, its end is
/// kept: for a path, the end is the distinctive part.
fn wrap(words: &str, room: usize) -> Vec<String> {
    let words: Vec<String> = words.split(' ').map(|word| keep_end(word, room)).collect();
    terminal_text::wrap("", &words.join(" "), room)
}

/// Joins pieces, which stay whole, into lines as long as they fit. A piece that is too long for any line is
/// cut like a word.
fn pack(pieces: impl IntoIterator<Item = String>, gap: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        let piece = keep_end(&piece, room);
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

#[cfg(test)]
mod tests;
