//! Makes the HTML document of the page: its parts, its style, and the script with the data of its charts.
//!
//! The document comes in two forms. A file is self-contained and loads nothing. A server delivers style
//! and script under separate paths, so that its content security policy can forbid all other sources.

use headspace_agent::wording::page::CHARTS_NEED_SCRIPTS;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::data::{Page, Part, PartId};
use super::html::{Text, inline_json};

/// The static files of the page, as a server delivers them.
pub(crate) const ASSETS: &[(&str, &str, &str)] = &[
    ("/assets/page.css", CSS, PAGE_CSS),
    ("/assets/uplot.css", CSS, PLOT_CSS),
    ("/assets/page.js", JAVASCRIPT, PAGE_JS),
    ("/assets/charts.js", JAVASCRIPT, CHARTS_JS),
    ("/assets/uplot.js", JAVASCRIPT, PLOT_JS),
    ("/assets/uplot.license.txt", PLAIN_TEXT, PLOT_LICENSE),
];

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

const PAGE_CSS: &str = include_str!("assets/page.css");
const PAGE_JS: &str = include_str!("assets/page.js");
const CHARTS_JS: &str = include_str!("assets/charts.js");
const PLOT_JS: &str = include_str!("assets/uPlot.iife.min.js");
const PLOT_CSS: &str = include_str!("assets/uPlot.min.css");
const PLOT_LICENSE: &str = include_str!("assets/uPlot.LICENSE");

/// The content security policy of a file: only inline style and script.
const FILE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
                           script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Which charts belong to which part.
const CHARTS_OF_PARTS: &[(PartId, &[&str])] = &[
    (PartId::Bottleneck, &["step"]),
    (PartId::Queues, &["queues"]),
    (PartId::Gpus, &["gpu"]),
    (PartId::Cpu, &["cores", "causes"]),
    (PartId::Ranks, &["ranks"]),
];

impl Page {
    /// A self-contained file.
    pub fn file(&self) -> String {
        // The script does not need the parts, because the document already contains them.
        let charts = Self {
            parts: Vec::new(),
            ..self.clone()
        };
        let data = serde_json::to_string(&charts).unwrap_or_else(|_| "null".to_owned());
        let license = PLOT_LICENSE.replace("*/", "* /");
        let plot = format!("/*\n{license}*/\n{PLOT_JS}");
        let head = html! {
            meta http-equiv="Content-Security-Policy" content=(FILE_POLICY);
            style { (PreEscaped(PLOT_CSS)) }
            style { (PreEscaped(PAGE_CSS)) }
        };
        let tail = html! {
            script type="application/json" id="page-data" { (PreEscaped(inline_json(&data))) }
            script { (PreEscaped(plot)) }
            script { (PreEscaped(CHARTS_JS)) }
            script { (PreEscaped(PAGE_JS)) }
        };
        self.document(&head, &tail, &html! {})
    }

    /// The document of a server, which delivers the other files and the updates separately.
    pub(crate) fn served(&self) -> String {
        let head = html! {
            link rel="stylesheet" href="/assets/uplot.css";
            link rel="stylesheet" href="/assets/page.css";
        };
        let tail = html! {
            script src="/assets/uplot.js" {}
            script src="/assets/charts.js" {}
            script src="/assets/page.js" {}
        };
        let live = html! { p.live id="live" role="status" { "connecting…" } };
        self.document(&head, &tail, &live)
    }

    fn document(&self, head: &Markup, tail: &Markup, live: &Markup) -> String {
        let (header, sections): (Vec<&Part>, Vec<&Part>) = self
            .parts
            .iter()
            .partition(|part| part.id == PartId::Header);
        let document = html! {
            (DOCTYPE) "\n"
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    link rel="icon" href="data:,";
                    title { (Text(&self.title)) }
                    (head)
                }
                body {
                    @for part in header {
                        header {
                            (content(part))
                            label.picker id="picker" hidden { "charts of rank " select {} }
                            (live)
                        }
                    }
                    main { @for part in sections { (section(part)) } }
                    (tail)
                }
            }
            "\n"
        };
        document.into_string()
    }
}

/// The content of a part. The script finds and replaces it by its id.
fn content(part: &Part) -> Markup {
    html! { div.part id={ "part-" (part.id.as_str()) } { (PreEscaped(&part.html)) } }
}

/// A part as a section, with its charts below it.
fn section(part: &Part) -> Markup {
    let charts = CHARTS_OF_PARTS.iter().find(|(below, _)| *below == part.id);
    html! {
        section class=(part.id.as_str()) {
            (content(part))
            @for chart in charts.map_or(&[][..], |(_, charts)| charts) {
                div.charts data-chart=(chart) {}
            }
            @if part.id == PartId::Bottleneck {
                noscript { p { (CHARTS_NEED_SCRIPTS) } }
            }
        }
    }
}
