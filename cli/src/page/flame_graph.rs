//! Draws sampled stacks as flame graphs: one for each stage, and one for compute.
//!
//! The outermost call is at the top. The width of a call is its share of the samples, and its colour is the gain
//! in the step if its line took half its time. The outermost calls, if they are in libraries, are one call.

use headspace_agent::model::record::{FrameRecord, LineRecord, StacksRecord, SummaryRecord};
use headspace_agent::wording::page::{call_rows, flame_graph_legend, library_calls};
use headspace_agent::wording::units::duration_s;
use headspace_agent::wording::verdict::{line_gain_pct, place_in_file};
use headspace_exporters::encode::stacks::call_tree::{Call, CallTree, call_trees};
use maud::{Markup, html};

use super::html::Text;

/// Maximum number of graphs: those with the longest time.
const MOST_PLACES: usize = 4;

/// Calls with a smaller share of their graph are not drawn.
const LEAST_SHARE: f64 = 0.005;

/// Maximum depth of a graph.
const MOST_ROWS: usize = 32;

/// Number of colours of gains. The largest gain has the last.
const TONES: f64 = 5.0;

/// Height of a row, in pixels.
const ROW: usize = 23;

/// Calls with a smaller share of their graph have no text.
const LEAST_TEXT: f64 = 0.06;

/// The graphs of a rank. Empty without stacks.
pub(super) fn flame_graphs(stacks: Option<&StacksRecord>, summary: &SummaryRecord) -> Markup {
    let Some(stacks) = stacks else {
        return html! {};
    };
    let mut trees = call_trees(stacks);
    trees.truncate(MOST_PLACES);
    let gains = summary
        .lines
        .iter()
        .filter_map(|line| line_gain_pct(summary, line));
    let best = gains.fold(0.0, f64::max);
    html! {
        @if !trees.is_empty() {
            p.legend { (flame_graph_legend(best)) }
        }
        @for tree in trees {
            h3 {
                (Text(tree.place()))
                small { " " (duration_s(tree.seconds)) " of samples" }
            }
            (Graph { stacks, summary, tree: &tree, best }.draw())
        }
    }
}

/// A flame graph.
struct Graph<'a> {
    stacks: &'a StacksRecord,
    summary: &'a SummaryRecord,
    tree: &'a CallTree<'a>,
    /// The largest gain of all lines, which has the strongest colour.
    best: f64,
}

/// A rectangle of a graph.
struct Bar<'a> {
    call: &'a Call,
    row: usize,
    /// Left edge and width, as shares of the graph.
    left: f64,
    width: f64,
    /// The line whose gain colours it: its own, or that of a call around it.
    line: Option<&'a LineRecord>,
}

impl Graph<'_> {
    fn draw(&self) -> Markup {
        let (outer, calls) = fold(self.tree.calls.clone(), &self.stacks.frames);
        let mut bars = Vec::new();
        self.place_calls(&calls, 0, 0.0, None, &mut bars);
        let top = usize::from(outer > 0);
        let rows = top + depth(&calls).min(MOST_ROWS);
        let label = format!("Flame graph of {}", self.tree.place());
        html! {
            svg.flame role="img" aria-label=(Text(&label)) width="100%" height=(rows * ROW) {
                @if outer > 0 {
                    rect.outer width="100%" height=(ROW - 1) rx="3" {}
                    text x="6" y="16" { (library_calls(outer)) }
                }
                @for bar in &bars { (self.bar(bar, top)) }
            }
        }
    }

    fn place_calls<'b>(
        &'b self,
        calls: &'b [Call],
        row: usize,
        mut left: f64,
        around: Option<&'b LineRecord>,
        bars: &mut Vec<Bar<'b>>,
    ) {
        for call in calls {
            let width = call.seconds / self.tree.seconds;
            if width >= LEAST_SHARE && row < MOST_ROWS {
                let line = self.line(call.frame).or(around);
                bars.push(Bar {
                    call,
                    row,
                    left,
                    width,
                    line,
                });
                self.place_calls(&call.calls, row + 1, left, line, bars);
            }
            left += width;
        }
    }

    /// The line of this frame, if it has a gain.
    fn line(&self, frame: u32) -> Option<&LineRecord> {
        let frame = self.stacks.frames.get(frame as usize)?;
        self.tree.line(frame, &self.summary.lines)
    }

    fn bar(&self, bar: &Bar<'_>, top: usize) -> Markup {
        let unknown = FrameRecord::default();
        let frame = (self.stacks.frames.get(bar.call.frame as usize)).unwrap_or(&unknown);
        let gain = bar.line.and_then(|line| line_gain_pct(self.summary, line));
        let tone = gain.map(|gain| (TONES * gain / self.best).ceil().clamp(1.0, TONES));
        let class = match tone {
            Some(tone) => format!("gain-{tone}"),
            None if frame.own => "own".to_owned(),
            None => "library".to_owned(),
        };
        let name = place_in_file(&frame.file, frame.line);
        let title = call_rows(
            frame,
            (bar.width, bar.call.seconds),
            bar.call.does,
            bar.line.map(|line| (self.summary, line)),
        );
        let share = |share: f64| format!("{:.2}%", 100.0 * share);
        let y = (bar.row + top) * ROW;
        html! {
            svg x=(share(bar.left)) y=(y) width=(share(bar.width)) height=(ROW - 1) {
                title { (Text(&title.join("\n"))) }
                rect.(class) width="100%" height="100%" rx="3" {}
                @if bar.width >= LEAST_TEXT {
                    text x="6" y="16" { (Text(&frame.function)) " " tspan { (Text(&name)) } }
                }
            }
        }
    }
}

/// Removes the outermost calls if all stacks have them and none is the user's. Returns their number.
fn fold(mut calls: Vec<Call>, frames: &[FrameRecord]) -> (usize, Vec<Call>) {
    let mut outer = 0;
    loop {
        let is_library = |call: &Call| {
            let frame = frames.get(call.frame as usize);
            frame.is_some_and(|frame| !frame.own) && !call.calls.is_empty()
        };
        match &mut calls[..] {
            [only] if is_library(only) => {
                calls = std::mem::take(&mut only.calls);
                outer += 1;
            }
            _ => return (outer, calls),
        }
    }
}

fn depth(calls: &[Call]) -> usize {
    let below = |call: &Call| 1 + depth(&call.calls);
    calls.iter().map(below).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headspace_agent::model::record::StackRecord;

    fn frame(function: &str, line: u32, own: bool) -> FrameRecord {
        FrameRecord {
            file: "/home/me/data.py".to_owned(),
            line,
            function: function.to_owned(),
            own,
        }
    }

    fn stack(stage: Option<&str>, seconds: f64, frames: &[u32]) -> StackRecord {
        StackRecord {
            stage: stage.map(ToOwned::to_owned),
            seconds,
            frames: frames.to_vec(),
            ..StackRecord::default()
        }
    }

    fn stacks() -> StacksRecord {
        StacksRecord {
            frames: vec![
                frame("bootstrap", 1, false),
                frame("load", 2, true),
                frame("resize", 41, true),
                frame("<script>alert(1)</script>", 9, true),
            ],
            stacks: vec![
                stack(Some("fetch"), 3.0, &[0, 1, 2]),
                stack(Some("fetch"), 1.0, &[0, 1, 3]),
                stack(None, 2.0, &[1]),
            ],
            left_out_s: 0.0,
        }
    }

    fn summary() -> SummaryRecord {
        SummaryRecord {
            steady_step_mean_ms: Some(100.0),
            lines: vec![LineRecord {
                stage: Some("fetch".to_owned()),
                file: "/home/me/data.py".to_owned(),
                line: 41,
                predicted_step_ms: 70.0,
                ..LineRecord::default()
            }],
            ..SummaryRecord::default()
        }
    }

    #[test]
    fn outer_calls_of_libraries_are_folded() {
        let stacks = stacks();
        let (outer, calls) = fold(call_trees(&stacks)[0].calls.clone(), &stacks.frames);

        assert_eq!((outer, calls.len()), (1, 1));
        assert_eq!((calls[0].frame, depth(&calls)), (1, 2));
    }

    #[test]
    fn a_graph_shows_widths_gains_and_no_markup_of_a_hostile_name() {
        let html = flame_graphs(Some(&stacks()), &summary()).into_string();
        assert!(html.contains("up to 30 %"), "{html}");
        assert!(
            html.contains(r#"<svg x="0.00%" y="46" width="75.00%" height="22">"#),
            "{html}"
        );
        assert!(
            html.contains("data.py:41 twice as fast gives 70.0 ms (−30 %)"),
            "{html}"
        );
        assert!(html.contains("1 outer call in libraries"), "{html}");
        assert!(html.contains(r#"class="gain-5""#), "{html}");
        assert!(!html.contains("<script>"), "{html}");
        assert!(html.contains("<h3>compute"), "{html}");
    }

    #[test]
    fn without_stacks_there_is_nothing() {
        assert_eq!(flame_graphs(None, &summary()).into_string(), "");
    }
}
