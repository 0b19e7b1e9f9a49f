//! Checks that `examples/grafana/dashboards/headspace.json` matches the declarations of the metrics: their
//! Prometheus names, their units and their help texts.
//!
//! To generate the file: `HEADSPACE_BLESS=1 cargo test -p headspace-tests --test grafana_dashboard`.
//! `tests/python/test_grafana.py` sends each query of the dashboard to a real Prometheus, and compares the
//! dashboard with Grafana's own types.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod generated;
#[path = "grafana_dashboard/panel.rs"]
mod panel;
#[path = "grafana_dashboard/query.rs"]
mod query;
#[path = "grafana_dashboard/rows.rs"]
mod rows;

use headspace_agent::model::metric::LOOP_STEPS;
use headspace_exporters::encode::prometheus::names;
use serde_json::{Value, json};

const BLESS: &str = "HEADSPACE_BLESS=1 cargo test -p headspace-tests --test grafana_dashboard";

/// Grafana's numbers for the sort order of a variable's values.
const RISING: u32 = 1;
const FALLING: u32 = 2;
const RISING_NUMBERS: u32 = 3;

fn dashboard() -> Value {
    json!({
        "uid": "headspace",
        "title": "headspace",
        "description": "How much faster training would run if data loading were free, what limits it, and what each remedy would gain.",
        "tags": ["headspace", "training"],
        "editable": true,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "timezone": "browser",
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": panel::placed(rows::rows()),
    })
}

/// The variables that select the data source and its series. Their values come from the step metric, because
/// every run has steps.
fn variables() -> Vec<Value> {
    let steps = names::name(&LOOP_STEPS);
    let label = |name: &str, chosen: &str, sort: u32| {
        json!({
            "name": name,
            "label": name,
            "type": "query",
            "datasource": panel::source(),
            "query": {
                "qryType": 1,
                "query": format!("label_values({steps}{{{chosen}}}, {name})"),
                "refId": name,
            },
            // Refreshes when the time range changes, because the runs depend on it.
            "refresh": 2,
            "sort": sort,
            "hide": 0,
        })
    };
    let several = |mut variable: Value| {
        variable["multi"] = json!(true);
        variable["includeAll"] = json!(true);
        variable["allValue"] = json!(".*");
        variable["current"] = json!({"text": ["All"], "value": ["$__all"]});
        variable
    };
    vec![
        json!({
            "name": "datasource", "label": "data source", "type": "datasource",
            "query": "prometheus", "hide": 0,
        }),
        several(label("job", "", RISING)),
        // A run's name begins with its start time, so the default is the newest run.
        label("run", r#"job=~"$job""#, FALLING),
        several(label("rank", r#"job=~"$job", run=~"$run""#, RISING_NUMBERS)),
    ]
}

#[test]
fn the_committed_dashboard_matches_the_metrics() {
    let mut expected = serde_json::to_string_pretty(&dashboard()).unwrap();
    expected.push('\n');
    generated::assert_is(
        "examples/grafana/dashboards/headspace.json",
        &expected,
        BLESS,
    );
}

#[test]
fn panels_neither_overlap_nor_leave_the_grid() {
    let notice_log = dashboard();
    let mut taken = std::collections::HashSet::new();
    let mut ids = std::collections::HashSet::new();
    for panel in notice_log["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{panel}");
            }
        }
    }
}
