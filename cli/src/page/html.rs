//! HTML in pieces: text is escaped where it enters, so that no name of a stage, path or notice is
//! ever markup.

use std::fmt::Write as _;

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            // Also those that would turn the text's direction around.
            c if c.is_control()
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                out.push(' ');
            }
            c => out.push(c),
        }
    }
    out
}

/// A sentence as HTML: what stands between backticks is code.
pub(crate) fn prose(words: &str) -> String {
    let mut out = String::new();
    let pieces: Vec<&str> = words.split('`').collect();
    let last = pieces.len() - 1;
    for (place, piece) in pieces.iter().enumerate() {
        let text = escape(piece);
        match (place % 2 == 1, place == last) {
            (true, false) => {
                let _ = write!(out, "<code>{text}</code>");
            }
            // A backtick without its pair is one.
            (true, true) => {
                let _ = write!(out, "`{text}");
            }
            (false, _) => out.push_str(&text),
        }
    }
    out
}

/// JSON as it may stand in a `<script>` element: nothing in it ends the element.
pub(crate) fn inline_json(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A column's head: what it is called, and what that means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

/// One row of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    /// Why it stands out, if it does: a word behind its first cell.
    pub(crate) mark: Option<&'static str>,
}

/// A table: the first column names the row, numbers stand to the right. Columns without any value
/// are left out. Wide ones scroll by themselves.
pub(crate) fn table(label: &str, heads: &[Head], rows: &[Row]) -> String {
    let cell = |row: &Row, column: usize| row.cells.get(column).cloned().unwrap_or_default();
    let shown: Vec<usize> = (0..heads.len())
        .filter(|column| *column == 0 || rows.iter().any(|row| !cell(row, *column).is_empty()))
        .collect();
    let label = escape(label);
    let mut out = format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"{label}\" tabindex=\"0\"><table><thead><tr>"
    );
    for head in shown.iter().filter_map(|column| heads.get(*column)) {
        let _ = write!(
            out,
            "<th scope=\"col\" title=\"{}\">{}</th>",
            escape(head.about),
            escape(head.name)
        );
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str(if row.mark.is_some() {
            "<tr class=\"marked\">"
        } else {
            "<tr>"
        });
        for column in &shown {
            let text = escape(&cell(row, *column));
            match (column, row.mark) {
                (0, Some(mark)) => {
                    let mark = escape(mark);
                    let _ = write!(
                        out,
                        "<th scope=\"row\">{text} <span class=\"mark\">{mark}</span></th>"
                    );
                }
                (0, None) => {
                    let _ = write!(out, "<th scope=\"row\">{text}</th>");
                }
                _ => {
                    let _ = write!(out, "<td>{text}</td>");
                }
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// Terms and what is said of them.
pub(crate) fn terms(pairs: &[(String, String)]) -> String {
    let mut out = String::from("<dl class=\"terms\">");
    for (term, words) in pairs {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(term), escape(words));
    }
    out.push_str("</dl>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_never_markup() {
        let bad = "</script><img src=x onerror='alert(1)'>\u{202e}&\u{7}";
        let good = escape(bad);
        assert!(
            !good.contains(['<', '>', '\'', '\u{202e}', '\u{7}']),
            "{good}"
        );
        assert_eq!(escape("4 < 5 & \"x\""), "4 &lt; 5 &amp; &quot;x&quot;");
    }

    #[test]
    fn words_between_backticks_are_code_and_a_single_backtick_stays() {
        assert_eq!(prose("run `a<b` and `c"), "run <code>a&lt;b</code> and `c");
        assert_eq!(prose(""), "");
    }

    #[test]
    fn json_in_a_script_cannot_end_it_and_says_the_same() {
        let text = "</script><!--<script>&\u{2028}";
        let json = serde_json::to_string(text).unwrap();
        let inline = inline_json(&json);
        assert!(!inline.contains(['<', '>', '&', '\u{2028}']), "{inline}");
        assert_eq!(serde_json::from_str::<String>(&inline).unwrap(), text);
    }

    #[test]
    fn a_column_without_a_value_is_left_out() {
        let head = |name| Head { name, about: "" };
        let rows = [Row {
            cells: vec!["a".into(), String::new(), "1".into()],
            mark: None,
        }];
        let table = table("t", &[head("name"), head("none"), head("one")], &rows);
        assert!(!table.contains("none"), "{table}");
        assert!(table.contains("<td>1</td>"));
    }
}
