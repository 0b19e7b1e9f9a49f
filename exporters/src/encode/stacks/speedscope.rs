//! Stacks as a file for [speedscope](https://www.speedscope.app), in its own JSON format.
//!
//! Each stage, and compute, is a profile of type `sampled`: stacks with their seconds, in no order of
//! time. The format is described by `file-format-schema.json` of speedscope.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{RankStacks, wait};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize, Clone, Default, PartialEq, Eq, Hash)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize, Default)]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: f64,
    #[serde(rename = "endValue")]
    end: f64,
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

/// The frames of the file, each once.
#[derive(Default)]
struct Frames {
    all: Vec<Frame>,
    numbers: HashMap<Frame, usize>,
}

impl Frames {
    fn number(&mut self, frame: Frame) -> usize {
        let next = self.all.len();
        *self.numbers.entry(frame.clone()).or_insert_with(|| {
            self.all.push(frame);
            next
        })
    }
}

/// The stacks of a run of this name as JSON.
///
/// # Errors
///
/// Those of the JSON encoder.
pub fn speedscope(name: &str, ranks: &[RankStacks<'_>]) -> serde_json::Result<String> {
    let mut frames = Frames::default();
    let mut profiles: BTreeMap<(Option<u32>, String), Profile> = BTreeMap::new();
    for rank in ranks {
        for stack in &rank.stacks.stacks {
            let place = rank.place(stack);
            let calls = rank.frames(stack).map(|frame| Frame {
                name: frame.function.clone(),
                file: Some(frame.file.clone()),
                line: Some(frame.line).filter(|line| *line > 0),
            });
            let waits = wait(stack).map(|name| Frame {
                name,
                ..Frame::default()
            });
            let sample = calls
                .chain(waits)
                .map(|frame| frames.number(frame))
                .collect();
            let key = (rank.rank, place.clone());
            let profile = profiles.entry(key).or_insert_with(|| Profile {
                kind: "sampled",
                name: place,
                unit: "seconds",
                ..Profile::default()
            });
            profile.samples.push(sample);
            profile.weights.push(stack.seconds);
            profile.end += stack.seconds;
        }
    }
    let mut profiles: Vec<Profile> = profiles.into_values().collect();
    profiles.sort_by(|a, b| b.end.total_cmp(&a.end));
    serde_json::to_string(&File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("headspace ", env!("CARGO_PKG_VERSION")),
        name,
        shared: Shared { frames: frames.all },
        profiles,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::example;
    use super::*;

    #[test]
    fn each_place_is_a_profile_and_each_frame_is_shared() {
        let stacks = example();
        let text = speedscope(
            "a run",
            &[RankStacks {
                rank: None,
                stacks: &stacks,
            }],
        );
        let file: Value = serde_json::from_str(&text.unwrap()).unwrap();

        let frames = file["shared"]["frames"].as_array().unwrap();
        assert_eq!(frames.len(), 4, "three lines and a wait");
        assert_eq!(
            frames[0],
            json!({"name": "load", "file": "/home/me/data.py", "line": 5})
        );
        assert_eq!(frames[2], json!({"name": "(waits for a file)"}));
        let profiles = file["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), 2);
        assert_eq!(profiles[0]["name"], "fetch");
        assert_eq!(profiles[0]["samples"], json!([[0, 1, 2], [0]]));
        assert_eq!(profiles[0]["weights"], json!([1.5, 0.5]));
        assert_eq!(profiles[0]["endValue"], 2.0);
        assert_eq!(
            (&profiles[1]["name"], &profiles[1]["unit"]),
            (&json!("compute"), &json!("seconds"))
        );
    }
}
