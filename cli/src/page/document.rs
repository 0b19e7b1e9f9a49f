//! The page as a document: its parts in place, its style, and the script with what it draws.
//!
//! One document, two carriers. A file holds everything itself and asks nobody for anything; a server
//! gives style and script by paths of their own, so that its policy can forbid all others.

use std::fmt::Write as _;

use super::data::{Page, Part};
use super::html::{escape, inline_json};

/// Files of the page, as a server gives them.
pub(crate) const ASSETS: &[(&str, &str, &str)] = &[
    ("/assets/page.css", "text/css; charset=utf-8", PAGE_CSS),
    ("/assets/uplot.css", "text/css; charset=utf-8", PLOT_CSS),
    ("/assets/page.js", "text/javascript; charset=utf-8", PAGE_JS),
    (
        "/assets/charts.js",
        "text/javascript; charset=utf-8",
        CHARTS_JS,
    ),
    (
        "/assets/uplot.js",
        "text/javascript; charset=utf-8",
        PLOT_JS,
    ),
    (
        "/assets/uplot.license.txt",
        "text/plain; charset=utf-8",
        PLOT_LICENSE,
    ),
];

const PAGE_CSS: &str = include_str!("assets/page.css");
const PAGE_JS: &str = include_str!("assets/page.js");
const CHARTS_JS: &str = include_str!("assets/charts.js");
const PLOT_JS: &str = include_str!("assets/uPlot.iife.min.js");
const PLOT_CSS: &str = include_str!("assets/uPlot.min.css");
const PLOT_LICENSE: &str = include_str!("assets/uPlot.LICENSE");
const NOTEBOOK_CSS: &str = include_str!("assets/notebook.css");

/// What a file may do: show itself.
const FILE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
                           script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Which charts stand below which part.
const PLACES: &[(&str, &[&str])] = &[
    ("way", &["step"]),
    ("queues", &["queues"]),
    ("gpus", &["gpu"]),
    ("cpu", &["cores", "causes"]),
    ("ranks", &["ranks"]),
];

impl Page {
    /// One file that holds all of it.
    #[must_use]
    pub fn file(&self) -> String {
        let head = format!(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"{FILE_POLICY}\">\
             <style>{PLOT_CSS}</style><style>{PAGE_CSS}</style>"
        );
        // Of the parts the script needs nothing: they stand in the document.
        let charts = Self {
            parts: Vec::new(),
            ..self.clone()
        };
        let data = serde_json::to_string(&charts).unwrap_or_else(|_| "null".to_owned());
        let license = PLOT_LICENSE.replace("*/", "* /");
        let tail = format!(
            "<script type=\"application/json\" id=\"page-data\">{}</script>\
             <script>/*\n{license}*/\n{PLOT_JS}</script>\
             <script>{CHARTS_JS}</script><script>{PAGE_JS}</script>",
            inline_json(&data)
        );
        self.document(&head, &tail, "")
    }

    /// The document of a server, which gives the rest by other paths and tells what is new.
    pub(crate) fn served(&self) -> String {
        let head = "<link rel=\"stylesheet\" href=\"/assets/uplot.css\">\
                    <link rel=\"stylesheet\" href=\"/assets/page.css\">";
        let tail = "<script src=\"/assets/uplot.js\"></script>\
                    <script src=\"/assets/charts.js\"></script>\
                    <script src=\"/assets/page.js\"></script>";
        let live = "<p class=\"live\" id=\"live\" role=\"status\">connecting…</p>";
        self.document(head, tail, live)
    }

    fn document(&self, head: &str, tail: &str, live: &str) -> String {
        let mut body = String::new();
        for part in &self.parts {
            place(&mut body, part, live);
        }
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <link rel=\"icon\" href=\"data:,\">\
             <title>{}</title>{head}</head><body>{body}</main>{tail}</body></html>\n",
            escape(&self.title)
        )
    }
}

/// A part in its section, with the charts that stand below it.
fn place(body: &mut String, part: &Part, live: &str) {
    let id = part.id;
    let content = format!("<div class=\"part\" id=\"part-{id}\">{}</div>", part.html);
    if id == "head" {
        let picker = "<label class=\"picker\" id=\"picker\" hidden>charts of rank \
                      <select></select></label>";
        let _ = write!(body, "<header>{content}{picker}{live}</header><main>");
        return;
    }
    let _ = write!(body, "<section class=\"{id}\">{content}");
    let charts = PLACES.iter().find(|(below, _)| *below == id);
    for chart in charts.map_or(&[][..], |(_, charts)| charts) {
        let _ = write!(body, "<div class=\"charts\" data-chart=\"{chart}\"></div>");
    }
    if id == "way" {
        body.push_str("<noscript><p>The charts need scripts; the numbers do not.</p></noscript>");
    }
    body.push_str("</section>");
}

/// The facts of a notebook's cell, in a style of their own.
pub(crate) fn cell(content: &str) -> String {
    format!("<div class=\"headspace-report\"><style>{NOTEBOOK_CSS}</style>{content}</div>")
}
