//! Finds the settings that differ between two sides, from the `run` records. All fields are compared, so a
//! new field needs no change here.

use std::collections::{BTreeMap, BTreeSet};

use headspace_agent::model::comparison::SettingChange;
use headspace_agent::model::record::RunRecord;
use serde_json::Value;

/// Fields that differ between any two runs and are not part of their configuration.
const NOT_SETTINGS: [&str; 3] = [
    "process_started_unix_nano",
    "settings.dir",
    "settings.headspace_dir",
];

/// The fields whose values differ between the sides, by name.
pub(super) fn changed(a: &[RunRecord], b: &[RunRecord]) -> Vec<SettingChange> {
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    let (of_a, of_b) = (values(a), values(b));
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let mut changes: Vec<SettingChange> = names
        .into_iter()
        .filter(|name| of_a.get(*name) != of_b.get(*name))
        .map(|name| SettingChange {
            name: name.clone(),
            a: of_a.get(name).cloned(),
            b: of_b.get(name).cloned(),
        })
        .collect();
    changes.extend(command_line(a, b));
    changes
}

/// Each field and its values in the runs of a side; different values are separated by commas.
fn values(runs: &[RunRecord]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in runs {
        for (name, value) in fields(run) {
            let values = all.entry(name).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    all.into_iter()
        .map(|(name, values)| (name, values.join(", ")))
        .collect()
}

fn fields(run: &RunRecord) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for source in &run.sources {
        let state = format!("{:?}", source.state).to_lowercase();
        out.insert(format!("sources.{}", source.name), state);
    }
    if let Ok(Value::Object(mut all)) = serde_json::to_value(run) {
        all.remove("sources");
        all.remove("argv");
        for (name, value) in &all {
            flatten(name, value, &mut out);
        }
    }
    out.retain(|name, _| !NOT_SETTINGS.contains(&name.as_str()));
    out
}

/// Flattens nested fields: `{"host": {"cores": 2}}` becomes `host.cores`: `2`.
fn flatten(name: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                flatten(&format!("{name}.{field}"), value, out);
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter().enumerate() {
                flatten(&format!("{name}.{i}"), value, out);
            }
        }
        Value::String(text) => {
            out.insert(name.to_owned(), text.clone());
        }
        other => {
            out.insert(name.to_owned(), other.to_string());
        }
    }
}

/// The part of the command lines that differs, with the preceding option for context.
fn command_line(a: &[RunRecord], b: &[RunRecord]) -> Option<SettingChange> {
    let (a, b) = (&a.first()?.argv, &b.first()?.argv);
    if a == b {
        return None;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let ends = a[same..].iter().rev().zip(b[same..].iter().rev());
    let behind = ends.take_while(|(a, b)| a == b).count();
    // A value alone is not informative, but `--lr 0.1` is.
    let option = same > 0 && a.get(same - 1).is_some_and(|word| word.starts_with('-'));
    let from = same - usize::from(option);
    let part = |words: &[String]| {
        let words = words.get(from..words.len() - behind).unwrap_or_default();
        (!words.is_empty()).then(|| words.join(" "))
    };
    Some(SettingChange {
        name: "argv".to_owned(),
        a: part(a),
        b: part(b),
    })
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::record::{HostRecord, LoaderRecord, SourceRecord, SourceState};

    use super::*;

    fn run(argv: &[&str], batch_size: u64) -> RunRecord {
        RunRecord {
            versions: [("torch".to_owned(), "2.3".to_owned())].into(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            loader: Some(LoaderRecord {
                batch_size: Some(batch_size),
                ..LoaderRecord::default()
            }),
            settings: [("dir".to_owned(), format!("/tmp/{batch_size}"))].into(),
            process_started_unix_nano: Some(batch_size),
            ..RunRecord::default()
        }
    }

    fn change(name: &str, a: Option<&str>, b: Option<&str>) -> SettingChange {
        SettingChange {
            name: name.to_owned(),
            a: a.map(ToOwned::to_owned),
            b: b.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn equal_settings_and_the_location_of_the_records_are_not_changes() {
        let a = run(&["train.py", "--lr", "0.1", "--epochs", "3"], 32);
        let mut b = run(&["train.py", "--lr", "0.2", "--epochs", "3"], 64);
        b.versions.insert("spdl".to_owned(), "0.8".to_owned());

        assert_eq!(
            changed(std::slice::from_ref(&a), &[b]),
            [
                change("loader.batch_size", Some("32"), Some("64")),
                change("versions.spdl", None, Some("0.8")),
                change("argv", Some("--lr 0.1"), Some("--lr 0.2")),
            ]
        );
        assert_eq!(
            changed(std::slice::from_ref(&a), std::slice::from_ref(&a)),
            []
        );
    }

    #[test]
    fn a_setting_that_varies_within_a_side_has_all_its_values() {
        let host = |name: &str| RunRecord {
            host: HostRecord {
                name: Some(name.to_owned()),
                ..HostRecord::default()
            },
            ..RunRecord::default()
        };

        assert_eq!(
            changed(&[host("n1"), host("n2"), host("n1")], &[host("n1")]),
            [change("host.name", Some("n1, n2"), Some("n1"))]
        );
    }

    #[test]
    fn only_the_words_added_to_the_command_line_are_shown() {
        let argv = |words: &[&str]| changed(&[run(&["t.py", "-v"], 1)], &[run(words, 1)]);

        assert_eq!(
            argv(&["t.py", "--amp", "-v"]),
            [change("argv", None, Some("--amp"))]
        );
        assert_eq!(argv(&[]), [change("argv", Some("t.py -v"), None)]);
    }

    #[test]
    fn a_source_that_is_off_on_one_side_is_a_change() {
        let with = |state| RunRecord {
            sources: vec![SourceRecord {
                name: "gpu".to_owned(),
                state,
                reads: String::new(),
                reason: None,
                remedy: None,
            }],
            ..RunRecord::default()
        };

        assert_eq!(
            changed(&[with(SourceState::On)], &[with(SourceState::Off)]),
            [change("sources.gpu", Some("on"), Some("off"))]
        );
    }
}
