//! Panels in the format of Grafana's dashboard JSON, and their positions.

use headspace_agent::model::metric::{Metric, MetricKind};
use serde_json::{Value, json};

/// Columns of Grafana's grid.
const WIDTH: u32 = 24;

/// How a panel shows its queries.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum PanelStyle {
    /// Lines over time.
    Lines,
    /// The same, from 0 to 1.
    Share,
    /// Lines over time, stacked on top of each other.
    Stacked,
    /// The last values, in large type.
    Number,
    /// The last values as rows; labels are columns.
    Table,
    /// The last values as bars side by side.
    Bars,
}

/// One panel without a position.
pub(crate) struct Panel {
    style: PanelStyle,
    title: &'static str,
    help: String,
    unit: String,
    width: u32,
    height: u32,
    /// The queries, each with its legend.
    targets: Vec<(String, &'static str)>,
    overrides: Vec<Value>,
    transformations: Vec<Value>,
}

impl Panel {
    /// A panel of this type, with the unit and the help text of a metric.
    pub(crate) fn of(style: PanelStyle, title: &'static str, metric: &Metric) -> Self {
        let (width, height) = match style {
            PanelStyle::Number => (4, 5),
            PanelStyle::Table => (12, 7),
            _ => (8, 8),
        };
        Self {
            style,
            title,
            help: metric.help.to_owned(),
            unit: unit(metric).to_owned(),
            width,
            height,
            targets: Vec::new(),
            overrides: Vec::new(),
            transformations: Vec::new(),
        }
    }

    /// Adds a query. `{{label}}` in the legend is the label's value.
    pub(crate) fn query(mut self, expr: String, legend: &'static str) -> Self {
        self.targets.push((expr, legend));
        self
    }

    /// Sets the description of the panel.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Sets another unit, by Grafana's name.
    pub(crate) fn unit(mut self, unit: &str) -> Self {
        unit.clone_into(&mut self.unit);
        self
    }

    /// Sets another width, in columns of 24.
    pub(crate) fn wide(mut self, width: u32) -> Self {
        self.width = width;
        self
    }

    /// Draws series whose legend begins with `legend` as dashed lines, without stacking or fill.
    pub(crate) fn dashed(mut self, legend: &str) -> Self {
        self.overrides.push(json!({
            "matcher": {"id": "byRegexp", "options": format!("/^{legend}/")},
            "properties": [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 6]}},
                {"id": "custom.fillOpacity", "value": 0},
                {"id": "custom.lineWidth", "value": 2},
                {"id": "color", "value": {"mode": "fixed", "fixedColor": "green"}},
                {"id": "custom.stacking", "value": {"mode": "none", "group": "A"}},
            ],
        }));
        self
    }

    /// Sets the columns of a table: for each the field, the title and the unit. Other fields are hidden.
    pub(crate) fn columns(mut self, columns: &[(&str, &str, &str)]) -> Self {
        let index: serde_json::Map<_, _> = columns
            .iter()
            .zip(0..)
            .map(|((field, ..), at)| ((*field).to_owned(), json!(at)))
            .collect();
        let names: serde_json::Map<_, _> = columns
            .iter()
            .map(|(field, title, _)| ((*field).to_owned(), json!(title)))
            .collect();
        let shown: Vec<String> = columns
            .iter()
            .map(|c| format!("^{}$", escape(c.0)))
            .collect();
        self.transformations = vec![
            json!({"id": "merge", "options": {}}),
            json!({"id": "filterFieldsByName", "options": {"include": {"pattern": shown.join("|")}}}),
            json!({"id": "organize", "options": {
                "excludeByName": {}, "indexByName": index, "renameByName": names,
            }}),
        ];
        self.overrides = columns
            .iter()
            .filter(|(_, _, unit)| !unit.is_empty())
            .map(|(_, title, unit)| {
                json!({
                    "matcher": {"id": "byName", "options": title},
                    "properties": [{"id": "unit", "value": unit}],
                })
            })
            .collect();
        self
    }

    fn json(&self, id: u32, x: u32, y: u32) -> Value {
        let instant = matches!(
            self.style,
            PanelStyle::Number | PanelStyle::Table | PanelStyle::Bars
        );
        let format = if self.style == PanelStyle::Table {
            "table"
        } else {
            "time_series"
        };
        let targets: Vec<Value> = self
            .targets
            .iter()
            .zip('A'..='Z')
            .map(|((expr, legend), letter)| {
                json!({
                    "refId": letter.to_string(),
                    "datasource": source(),
                    "editorMode": "code",
                    "expr": expr,
                    "legendFormat": legend,
                    "instant": instant,
                    "range": !instant,
                    "format": format,
                })
            })
            .collect();
        let mut defaults = json!({"unit": self.unit, "custom": self.custom()});
        if self.style == PanelStyle::Share {
            defaults["max"] = json!(1);
        }
        if self.style != PanelStyle::Table {
            defaults["min"] = json!(0);
        }
        json!({
            "id": id,
            "type": self.kind(),
            "title": self.title,
            "description": format!("{}.", self.help),
            "datasource": source(),
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": targets,
            "transformations": self.transformations,
            "fieldConfig": {"defaults": defaults, "overrides": self.overrides},
            "options": self.options(),
        })
    }

    fn kind(&self) -> &'static str {
        match self.style {
            PanelStyle::Lines | PanelStyle::Share | PanelStyle::Stacked => "timeseries",
            PanelStyle::Number => "stat",
            PanelStyle::Table => "table",
            PanelStyle::Bars => "bargauge",
        }
    }

    fn custom(&self) -> Value {
        let lines = |fill, stacking| {
            json!({
                "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1,
                "fillOpacity": fill, "showPoints": "never", "spanNulls": false,
                "stacking": {"mode": stacking, "group": "A"},
            })
        };
        match self.style {
            PanelStyle::Lines | PanelStyle::Share => lines(8, "none"),
            PanelStyle::Stacked => lines(30, "normal"),
            PanelStyle::Number | PanelStyle::Bars => json!({}),
            PanelStyle::Table => json!({"align": "auto", "filterable": false}),
        }
    }

    fn options(&self) -> Value {
        let reduce = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        match self.style {
            PanelStyle::Lines | PanelStyle::Share | PanelStyle::Stacked => json!({
                "legend": {
                    "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            PanelStyle::Number => json!({
                "reduceOptions": reduce, "orientation": "auto", "textMode": "auto",
                "colorMode": "none", "graphMode": "none", "justifyMode": "auto",
                "wideLayout": true,
            }),
            PanelStyle::Table => json!({"showHeader": true, "cellHeight": "sm"}),
            PanelStyle::Bars => json!({
                "reduceOptions": reduce, "orientation": "horizontal", "displayMode": "basic",
                "showUnfilled": true,
            }),
        }
    }
}

/// Places rows of panels one below the other.
pub(crate) fn placed(rows: Vec<(&'static str, Vec<Panel>)>) -> Vec<Value> {
    let (mut out, mut y) = (Vec::new(), 0);
    let mut ids = 1..;
    let mut id = || ids.next().unwrap_or(u32::MAX);
    for (title, panels) in rows {
        out.push(json!({
            "id": id(), "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
        }));
        y += 1;
        let (mut x, mut tallest) = (0, 0);
        for panel in &panels {
            if x + panel.width > WIDTH {
                (x, y, tallest) = (0, y + tallest, 0);
            }
            out.push(panel.json(id(), x, y));
            x += panel.width;
            tallest = tallest.max(panel.height);
        }
        y += tallest;
    }
    out
}

/// The data source that the user has selected.
pub(crate) fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// Grafana's name for a metric's unit. A total is shown as its rate.
fn unit(metric: &Metric) -> &'static str {
    match (metric.unit, metric.kind) {
        ("s" | "J", MetricKind::Counter) => "none",
        ("By", MetricKind::Counter) => "Bps",
        (_, MetricKind::Counter) => "cps",
        ("s", _) => "s",
        ("By", _) => "bytes",
        ("1", _) => "percentunit",
        ("W", _) => "watt",
        ("Cel", _) => "celsius",
        ("Hz", _) => "hertz",
        _ => "short",
    }
}

fn escape(field: &str) -> String {
    field.replace('#', "\\#")
}
