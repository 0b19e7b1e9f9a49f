//! Tests `headspace doctor` on this machine, with sources of the catalog and of the caller.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::process::Command;

use headspace::{Context, EXIT_OK, python_sources};
use headspace_agent::port::CollectError;
use headspace_collectors::catalog::{Catalog, Entry, Settings};
use serde_json::Value;

fn doctor(args: &[&str], more: impl Fn() -> Vec<Entry>) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = ["headspace", "doctor"]
        .into_iter()
        .chain(args.iter().copied());
    let code = headspace::run(
        args.map(Into::into),
        &mut Context {
            out: &mut out,
            err: &mut err,
            runs: "nowhere".into(),
            settings: Settings::default(),
            more_sources: &mut || more(),
            inject: None,
        },
    );
    assert_eq!((code, err.as_slice()), (EXIT_OK, &b""[..]));
    String::from_utf8(out).unwrap()
}

/// A source that is off.
fn locked() -> Vec<Entry> {
    let error = CollectError::remediable(
        "`kernel.locked` is 2, which allows no process without CAP_SYS_ADMIN to look at any of it",
        "`sysctl -w kernel.locked=1`, or in Docker `--cap-add SYS_ADMIN`",
    );
    let opened = Err::<headspace_agent::testing::CollectWith<Never>, _>(error);
    vec![Entry::new("locked", "what is behind the lock", opened)]
}

type Never =
    fn(std::time::Duration, &mut Vec<headspace_agent::model::Reading>) -> Result<(), CollectError>;

fn names(json: &Value) -> Vec<&str> {
    let sources = json["sources"].as_array().unwrap();
    sources
        .iter()
        .map(|s| s["name"].as_str().unwrap())
        .collect()
}

#[test]
fn all_sources_of_the_catalog_and_then_of_the_caller_are_listed_in_order() {
    let json: Value = serde_json::from_str(&doctor(&["--json"], locked)).unwrap();
    let catalog = Catalog::open(&Settings::default());
    let mut expected: Vec<_> = catalog.entries.iter().map(|entry| entry.name).collect();
    expected.push("locked");

    assert_eq!(names(&json), expected);
    for source in json["sources"].as_array().unwrap() {
        let keys: Vec<_> = source.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "reads", "reason", "remedy", "state"]);
        assert!(!source["reads"].as_str().unwrap().is_empty());
        match source["state"].as_str().unwrap() {
            "on" => assert!(source["reason"].is_null() && source["remedy"].is_null()),
            "off" => assert!(!source["reason"].as_str().unwrap().ends_with('.')),
            other => unreachable!("{other}"),
        }
    }
}

#[test]
fn the_cost_adds_up_over_the_sources_that_are_on() {
    let json: Value = serde_json::from_str(&doctor(&["--json"], locked)).unwrap();
    let cost = &json["cost"];
    let sum = |name: &str| -> f64 {
        let sources = cost["sources"].as_array().unwrap();
        sources.iter().filter_map(|one| one[name].as_f64()).sum()
    };

    assert!(cost["ns_per_batch"].as_f64().unwrap() > 0.0);
    assert!(cost["us_per_tick"].as_f64().unwrap() > 0.0);
    for name in ["us_per_tick", "own_cpu_us_per_s"] {
        assert!((cost[name].as_f64().unwrap() - sum(name)).abs() < 1e-6);
    }
    let on = json["sources"].as_array().unwrap();
    let on = on.iter().filter(|source| source["state"] == "on").count();
    assert_eq!(cost["sources"].as_array().unwrap().len(), on);
}

#[test]
fn the_text_fits_a_narrow_terminal_and_contains_remedies() {
    let text = doctor(&[], locked);
    let lines: Vec<&str> = text.lines().collect();

    assert!(
        lines.iter().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let at = lines.iter().position(|line| line.starts_with("locked"));
    let of_locked: Vec<&str> = lines[at.unwrap()..]
        .iter()
        .take(5)
        .map(|line| line.trim())
        .collect();
    assert!(of_locked[0].ends_with("what is behind the lock"));
    assert!(of_locked[1].starts_with("`kernel.locked` is 2"));
    assert!(of_locked[3].starts_with("→ `sysctl -w kernel.locked=1`"));
    assert!(lines.iter().any(|line| line.contains("ns a batch")));
}

#[test]
fn the_plain_program_lists_the_sources_that_need_python() {
    let done = Command::new(env!("CARGO_BIN_EXE_headspace"))
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();

    assert_eq!(done.status.code(), Some(EXIT_OK));
    assert!(names(&json).ends_with(&[
        python_sources::GIL,
        python_sources::GC,
        python_sources::STACKS
    ]));
    for source in json["sources"].as_array().unwrap().iter().rev().take(3) {
        assert_eq!(source["state"], "off");
        assert!(
            source["reason"]
                .as_str()
                .unwrap()
                .contains("Python package")
        );
        assert!(source["remedy"].as_str().unwrap().contains("pip install ."));
    }
}

#[test]
fn a_report_opens_no_source() {
    let base = tempfile::tempdir().unwrap();
    let mut opened = false;
    headspace::run(
        ["headspace", "report"].map(Into::into).into_iter(),
        &mut Context {
            out: &mut Vec::new(),
            err: &mut Vec::new(),
            runs: base.path().to_path_buf(),
            settings: Settings::default(),
            more_sources: &mut || {
                opened = true;
                Vec::new()
            },
            inject: None,
        },
    );

    assert!(!opened);
}

#[test]
fn doctor_tries_only_the_gpu_library_that_a_variable_names() {
    let done = Command::new(env!("CARGO_BIN_EXE_headspace"))
        .args(["doctor", "--json"])
        .env("HEADSPACE_NVML_LIB", "/nowhere/libnvidia-ml.so.1")
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    let sources = json["sources"].as_array().unwrap();

    let of_gpu =
        (sources.iter()).filter(|source| source["name"].as_str().unwrap().starts_with("gpu"));
    let reasons: Vec<&str> = of_gpu
        .map(|source| source["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    for reason in reasons {
        assert!(
            reason.contains("`HEADSPACE_NVML_LIB` names") && reason.contains("/nowhere/"),
            "{reason}"
        );
    }
}

#[test]
fn a_data_set_that_fits_into_the_memory_is_read_from_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), [1; 1000]).unwrap();
    let path = folder.path().to_str().unwrap();

    let json: Value = serde_json::from_str(&doctor(&["--json", "--data", path], Vec::new)).unwrap();
    let text = doctor(&["--data", path], Vec::new);

    let data = &json["data"];
    assert_eq!((&data["files"], &data["bytes"]), (&1.into(), &1000.into()));
    assert_eq!(data["later_epochs"]["fits"], true, "{data}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    assert!(text.contains("1 file, 0.98 KiB"), "{text}");
    assert!(text.contains("The data set fits into the memory"), "{text}");
}
