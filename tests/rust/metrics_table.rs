//! Checks that `docs/metrics.md` matches the declarations in `agent::model::metric`.
//!
//! To generate the page: `HEADSPACE_BLESS=1 cargo test -p headspace-tests --test metrics_table`.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod generated;

use std::fmt::Write as _;

use headspace_agent::model::metric::{ALL, Metric, MetricKind};

const BLESS: &str = "HEADSPACE_BLESS=1 cargo test -p headspace-tests --test metrics_table";

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::UpDownCounter => "up-down counter",
        MetricKind::Maximum => "maximum",
        MetricKind::Histogram => "histogram",
    }
}

fn table() -> String {
    let mut page = format!(
        "# Metrics\n\n\
         This page is generated from `agent/src/model/metric.rs` by `{BLESS}`. A test checks that page \
         and code agree.\n\n\
         If OpenTelemetry's semantic conventions define a name, headspace uses it. Units are UCUM: `1` is \
         a ratio, `{{thing}}` is a count of things. A value that could not be read is absent. Zero is a \
         measured zero. The *steady state* is the part of the run after warm-up, without replayed steps \
         and without the live steps directly after them.\n\n\
         | name | unit | kind | scope | attributes | meaning |\n\
         |---|---|---|---|---|---|\n"
    );
    for metric in ALL {
        let attributes: Vec<_> = metric
            .attributes
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        writeln!(
            page,
            "| `{}` | `{}` | {} | {} | {} | {} |",
            metric.name,
            metric.unit,
            kind(metric),
            metric.scopes.join(", "),
            attributes.join(", "),
            metric.help.replace('|', "\\|"),
        )
        .unwrap();
    }
    page
}

#[test]
fn the_committed_table_matches_the_declared_metrics() {
    generated::assert_is("docs/metrics.md", &table(), BLESS);
}

#[test]
fn help_names_every_attribute_of_its_metric() {
    for metric in ALL {
        for attribute in metric.attributes {
            assert!(
                metric.help.contains(&format!("`{attribute}`")),
                "{}",
                metric.name
            );
        }
    }
}
