//! `docs/metrics.md` says what `agent::model::metric` declares.
//!
//! To write it anew: `HEADSPACE_BLESS=1 cargo test -p headspace-tests --test metrics_table`.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

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
         Generated from `agent/src/model/metric.rs` by `{BLESS}`; a test compares.\n\n\
         Names follow OpenTelemetry's semantic conventions where those have one. Units are UCUM: `1` \
         is a ratio, `{{thing}}` counts things. A value that could not be read is absent; zero means \
         a measured zero.\n\n\
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
fn the_committed_table_says_what_the_metrics_declare() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let expected = table();
    if std::env::var_os("HEADSPACE_BLESS").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &expected).unwrap();
    }

    let committed = fs::read_to_string(&path).unwrap_or_default();

    assert!(
        committed == expected,
        "docs/metrics.md is out of date; run `{BLESS}`"
    );
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
