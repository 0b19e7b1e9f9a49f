//! Renders text and sections as HTML. `maud` builds the markup and escapes every text, so no name of a stage,
//! path or notice can inject markup.

use headspace_agent::wording::section::{
    Block, Entry, Fact, Quantity, Row, SectionId, Table, capitalized, more_in_records,
};
use headspace_exporters::encode::untrusted_text::is_unsafe;
use maud::{Markup, Render, html};

/// Untrusted text, without unsafe characters except the end of a line.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl Render for Text<'_> {
    fn render_to(&self, buffer: &mut String) {
        let is_replaced = |c: char| c != '\n' && is_unsafe(c);
        self.0.replace(is_replaced, " ").render_to(buffer);
    }
}

/// A sentence in which text between backticks is code.
pub(crate) fn prose(words: &str) -> Markup {
    let pieces: Vec<&str> = words.split('`').collect();
    let last = pieces.len() - 1;
    html! {
        @for (at, piece) in pieces.iter().enumerate() {
            @if at % 2 == 0 { (Text(piece)) }
            // An unpaired backtick is printed as a backtick.
            @else if at == last { "`" (Text(piece)) }
            @else { code { (Text(piece)) } }
        }
    }
}

/// JSON that is safe inside a `<script>` element: nothing in it can end the element.
pub(crate) fn inline_json(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A block of a section.
pub(super) fn block(id: SectionId, block: &Block) -> Markup {
    match block {
        Block::Heading { .. } => html! {},
        Block::Facts(facts) => html! { dl.cards { (cards(facts)) } },
        Block::Sentence(words) => html! { p { (prose(&capitalized(words))) } },
        Block::Entries(entries) => self::entries(entries),
        Block::Terms(pairs) => terms(pairs),
        Block::Table(table) => self::table(id.title(), table),
    }
}

/// Facts as cards. A fact without a label is added to the previous card.
pub(super) fn cards(facts: &[Fact]) -> Markup {
    let labelled = facts
        .iter()
        .enumerate()
        .filter(|(_, fact)| !fact.label.is_empty());
    html! {
        @for (at, fact) in labelled {
            @let more = facts[at + 1..].iter().take_while(|fact| fact.label.is_empty());
            div class={ "card " (tone(fact)) } {
                dt { (capitalized(fact.label)) }
                dd {
                    span.value { (Text(&fact.value)) }
                    small {
                        @if fact.detail.is_empty() { (Text(&fact.note)) }
                        @else { (Text(&fact.detail)) }
                        @for fact in more { " " (Text(&fact.value)) }
                    }
                }
            }
        }
    }
}

/// The colour of a card, by its name in the style sheet.
fn tone(fact: &Fact) -> &'static str {
    match fact.quantity {
        Some(Quantity::Step) => "step",
        Some(Quantity::Wait) => "wait",
        Some(Quantity::Compute) => "compute",
        Some(Quantity::Floor) => "floor",
        Some(Quantity::Headspace) | None => "headspace",
    }
}

/// Entries and their descriptions, as a list.
pub(super) fn entries(entries: &[Entry]) -> Markup {
    html! {
        ol.remedies {
            @for entry in entries {
                li {
                    span.outcome { (Text(&entry.head)) }
                    span.what {
                        (prose(&entry.body))
                        @if !entry.detail.is_empty() { small { (prose(&entry.detail)) } }
                    }
                }
            }
        }
    }
}

/// Terms and their definitions.
pub(super) fn terms(pairs: &[(String, String)]) -> Markup {
    html! {
        dl.terms {
            @for (term, words) in pairs { dt { (Text(term)) } dd { (Text(words)) } }
        }
    }
}

/// A table. The first column names the row; numbers are right-aligned. Columns without any value are
/// omitted. Wide tables scroll horizontally.
pub(super) fn table(label: &str, table: &Table) -> Markup {
    let cell = |row: &Row, at: usize| row.cells.get(at).cloned().unwrap_or_default();
    let has_values = |at: &usize| table.rows.iter().any(|row| !cell(row, *at).is_empty());
    let shown: Vec<usize> = (0..table.columns.len())
        .filter(|at| *at == 0 || has_values(at))
        .collect();
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table {
                thead { tr {
                    @for column in shown.iter().filter_map(|at| table.columns.get(*at)) {
                        th scope="col" title=(column.about) { (column.name) }
                    }
                } }
                tbody {
                    @for row in &table.rows {
                        tr.marked[row.mark.is_some()] {
                            @for at in &shown {
                                @if *at > 0 { td { (Text(&cell(row, *at))) } }
                                @else {
                                    th scope="row" {
                                        (Text(&cell(row, 0)))
                                        @if let Some(mark) = row.mark { " " span.mark { (mark) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if table.more > 0 { p { (more_in_records(table.more)) } }
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::wording::section::Column;

    use super::*;

    #[test]
    fn text_from_outside_is_never_markup() {
        let bad = "</script><img src=x onerror=\"alert(1)\">\u{202e}&\u{7}";
        let good = html! { a title=(Text(bad)) { (Text(bad)) } }.into_string();
        let inside = good
            .trim_start_matches("<a title=\"")
            .trim_end_matches("</a>");
        assert!(!inside.contains("<img"), "{good}");
        assert!(!good.contains(['\u{202e}', '\u{7}']), "{good}");
        assert_eq!(good.matches('"').count(), 2, "{good}");
    }

    #[test]
    fn words_between_backticks_are_code_and_a_single_backtick_stays() {
        assert_eq!(
            prose("run `a<b` and `c").into_string(),
            "run <code>a&lt;b</code> and `c"
        );
        assert_eq!(prose("").into_string(), "");
    }

    #[test]
    fn json_cannot_end_its_script_element_and_keeps_its_value() {
        let text = "</script><!--<script>&\u{2028}";
        let json = serde_json::to_string(text).unwrap();
        let inline = inline_json(&json);
        assert!(!inline.contains(['<', '>', '&', '\u{2028}']), "{inline}");
        assert_eq!(serde_json::from_str::<String>(&inline).unwrap(), text);
    }

    #[test]
    fn a_column_without_a_value_is_left_out() {
        let column = |name| Column { name, about: "" };
        let table = Table {
            columns: ["name", "none", "one"].map(column).to_vec(),
            rows: vec![Row::new(vec!["a".into(), String::new(), "1".into()])],
            more: 0,
        };
        let html = super::table("t", &table).into_string();
        assert!(!html.contains("none"), "{html}");
        assert!(html.contains("<td>1</td>"));
    }
}
