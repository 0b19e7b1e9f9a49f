//! Draws the sampled stacks of a rank: a flame graph for each stage, and one for compute.
//!
//! A record of stacks has totals, and no times of single samples. So each graph begins where the run begins, and
//! the length of a slice is the total time of its call. The name and the description of the track say so.

use headspace_agent::model::record::{FrameRecord, LineRecord, StacksRecord};
use headspace_agent::wording::verdict::place_in_file;

use super::clock::nanos;
use super::schema::Value;
use super::tracks::{Notes, Track, Writer};
use crate::encode::stacks::call_tree::{Call, CallTree, call_trees};

/// Text that the viewer shows for a track of stacks.
const HELP: &str = "Sampled stacks of the whole run. The length of a slice is the total time of its call in \
                    the samples. Its position is not a time.";

/// Draws the graphs from the beginning of the run.
pub(super) fn draw(
    stacks: &StacksRecord,
    lines: &[LineRecord],
    process: Track,
    began: u64,
    to: &mut Writer,
) {
    for tree in call_trees(stacks) {
        let name = format!("stacks of {} (totals)", tree.place());
        let track = to.described(process, &name, HELP);
        let graph = Graph {
            frames: &stacks.frames,
            lines,
            tree: &tree,
            track,
        };
        graph.draw(&tree.calls, began, to);
    }
}

struct Graph<'a> {
    frames: &'a [FrameRecord],
    /// The lines of all stages and of the loop that have a gain.
    lines: &'a [LineRecord],
    tree: &'a CallTree<'a>,
    track: Track,
}

impl Graph<'_> {
    /// Draws calls side by side. Returns the end of the last one.
    fn draw(&self, calls: &[Call], from: u64, to: &mut Writer) -> u64 {
        let mut at = from;
        for call in calls {
            let unknown = FrameRecord::default();
            let frame = self.frames.get(call.frame as usize).unwrap_or(&unknown);
            let place = place_in_file(&frame.file, frame.line);
            let name = format!("{} {place}", frame.function);
            to.begin(self.track, at, &name, self.notes(call, frame));
            let inner = self.draw(&call.calls, at, to);
            // Rounding must not let a call end before those that it makes.
            at = inner.max(at.saturating_add(nanos(call.seconds)));
            to.end(self.track, at);
        }
        at
    }

    fn notes(&self, call: &Call, frame: &FrameRecord) -> Notes {
        let mut notes = vec![
            ("file", Value::Text(frame.file.clone())),
            ("line", Value::Count(frame.line.into())),
            ("total s", Value::Number(call.seconds)),
        ];
        notes.extend(call.does.map(|does| ("does", Value::Text(does.to_owned()))));
        if let Some(line) = self.tree.line(frame, self.lines) {
            notes.push(("step at half, ms", Value::Number(line.predicted_step_ms)));
        }
        notes
    }
}
