//! Checks the dependency rules of ARCHITECTURE.md, "Layers".
//!
//! There are three checks. The first compares the output of `cargo metadata` with the allowed dependencies
//! of each crate. The second compares the paths in the source with the allowed imports of each module. The
//! third finds files that import each other in a cycle. Each check is a function from text to violations,
//! so the tests in `refusals` can give it text with a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[path = "dependency_rule/cycles.rs"]
mod cycles;
#[path = "dependency_rule/paths.rs"]
mod paths;
#[cfg(test)]
#[path = "dependency_rule/refusals.rs"]
mod refusals;

use cycles::cycles;
use paths::{module_of, paths};

/// The crates of the workspace, each with the members that it may depend on. Dev-dependencies count too.
const CRATES: &[(&str, &[&str])] = &[
    ("headspace-agent", &[]),
    ("headspace-collectors", &["headspace-agent"]),
    ("headspace-exporters", &["headspace-agent"]),
    (
        "headspace",
        &[
            "headspace-agent",
            "headspace-collectors",
            "headspace-exporters",
        ],
    ),
    (
        "headspace-py",
        &[
            "headspace",
            "headspace-agent",
            "headspace-collectors",
            "headspace-exporters",
        ],
    ),
    (
        "headspace-examples",
        &[
            "headspace",
            "headspace-agent",
            "headspace-collectors",
            "headspace-exporters",
        ],
    ),
    ("headspace-fake-nvml", &[]),
    ("headspace-fake-nvml-old", &[]),
    (
        "headspace-tests",
        &[
            "headspace",
            "headspace-agent",
            "headspace-collectors",
            "headspace-exporters",
        ],
    ),
];

/// External crates that the agent may depend on. Every crate that depends on the agent gets all of them.
const AGENT_LIBRARIES: &[&str] = &[
    "hdrhistogram",
    "libc",
    "quanta",
    "rustix",
    "schemars",
    "serde",
    "thiserror",
    "tracing",
];

/// The only crate that may depend on `pyo3`.
const PYTHON_CRATE: &str = "headspace-py";

/// The agent's modules, lowest first, each with the other modules that it may name.
const AGENT_MODULES: &[(&str, &[&str])] = &[
    ("lock", &[]),
    ("sync", &["lock"]),
    ("model", &[]),
    ("notice", &["lock", "model"]),
    ("port", &["sync", "model", "notice"]),
    ("recording", &["lock", "sync", "model", "notice", "port"]),
    ("statistics", &["model"]),
    ("batch_source", &["model", "notice", "port", "statistics"]),
    ("analysis", &["model", "notice", "port", "statistics"]),
    ("wording", &["model", "statistics", "analysis"]),
    ("delivery", &["lock", "sync", "model", "notice", "port"]),
    (
        "sampling",
        &[
            "lock",
            "sync",
            "model",
            "notice",
            "port",
            "recording",
            "batch_source",
            "analysis",
            "wording",
            "delivery",
        ],
    ),
    (
        "runtime",
        &[
            "lock",
            "model",
            "notice",
            "port",
            "recording",
            "batch_source",
            "analysis",
            "wording",
            "delivery",
            "sampling",
        ],
    ),
    (
        "testing",
        &[
            "lock",
            "model",
            "notice",
            "port",
            "recording",
            "batch_source",
            "analysis",
            "wording",
            "delivery",
            "sampling",
        ],
    ),
];

/// The collectors' modules. A source may not name another source. All sources read `/proc` through `procfs`.
const COLLECTOR_MODULES: &[(&str, &[&str])] = &[
    ("procfs", &[]),
    ("log_target", &[]),
    ("process", &["procfs"]),
    ("host", &["procfs"]),
    ("data_set", &[]),
    ("tree", &["procfs"]),
    ("io", &["procfs"]),
    ("perf", &["procfs"]),
    ("gpu", &["procfs", "log_target"]),
    ("workers", &["procfs", "log_target"]),
    ("shared_memory", &[]),
    ("stacks", &["procfs", "log_target"]),
    ("numbered_slot", &[]),
    ("tracing", &["numbered_slot"]),
    ("opentelemetry", &["numbered_slot", "tracing"]),
    (
        "catalog",
        &["process", "host", "tree", "io", "perf", "gpu", "log_target"],
    ),
    (
        "fuzzing",
        &[
            "procfs", "process", "host", "tree", "io", "perf", "gpu", "stacks", "workers",
        ],
    ),
];

/// The exporters' modules. Encoders do not know the destination of their bytes. Transports and the catalog may
/// call encoders.
const EXPORTER_MODULES: &[(&str, &[&str])] = &[
    ("log_target", &[]),
    ("encode", &[]),
    ("run_folder", &["encode"]),
    ("transport", &["encode", "run_folder", "log_target"]),
    ("catalog", &["encode", "run_folder", "transport"]),
];

/// Paths that a crate or folder may not name, each with the reason.
const FORBIDDEN_PATHS: &[(&str, &str, &str)] = &[
    (
        "agent",
        "std::fs",
        "files belong to collectors and exporters",
    ),
    ("agent", "std::net", "sockets belong to exporters"),
    ("agent", "std::os::unix::net", "sockets belong to exporters"),
    (
        "agent",
        "std::env",
        "the environment is read at the edge and handed in",
    ),
    ("collectors", "std::net", "sockets belong to exporters"),
    (
        "collectors",
        "std::os::unix::net",
        "sockets belong to exporters",
    ),
    (
        "exporters/src/encode",
        "std::fs",
        "encoding is pure: bytes in, bytes out",
    ),
    (
        "exporters/src/encode",
        "std::net",
        "encoding is pure: bytes in, bytes out",
    ),
    ("agent", "pyo3", "only py_bindings knows Python"),
    ("collectors", "pyo3", "only py_bindings knows Python"),
    ("exporters", "pyo3", "only py_bindings knows Python"),
    ("cli", "pyo3", "only py_bindings knows Python"),
];

/// The only file of the agent that may read a clock.
const CLOCK_FILE: &str = "agent/src/port/clock.rs";
const CLOCKS: &[&str] = &["quanta", "std::time::Instant", "std::time::SystemTime"];

// --- Crates ----------------------------------------------------------------------------------

/// The violations in the output of `cargo metadata --no-deps`, one sentence each.
fn crate_violations(metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let empty = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&empty);
    let members: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    for (name, _) in CRATES {
        if !members.contains(name) {
            found.push(format!(
                "`{name}` is in the table, but not in the workspace"
            ));
        }
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
            found.push(format!(
                "`{name}` has no row in the table: say what it may depend on"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap_or(&empty) {
            let on = dependency["name"].as_str().unwrap_or_default();
            if members.contains(on) && !allowed.contains(&on) {
                found.push(format!("`{name}` depends on `{on}`"));
            }
            if on.starts_with("pyo3") && name != PYTHON_CRATE {
                found.push(format!(
                    "`{name}` depends on `{on}`: only `{PYTHON_CRATE}` knows Python"
                ));
            }
            let for_tests = dependency["kind"] == "dev";
            if name == "headspace-agent" && !for_tests && !AGENT_LIBRARIES.contains(&on) {
                found.push(format!(
                    "`{name}` depends on `{on}`: not in its list of libraries"
                ));
            }
        }
    }
    found
}

// --- Modules ---------------------------------------------------------------------------------

/// The violations in one file. `file` is relative to the workspace, such as `agent/src/batch_source/probe.rs`.
fn module_violations(file: &str, source: &str) -> Vec<String> {
    let Some((member, inner)) = file.split_once("/src/") else {
        return vec![format!("`{file}` is not under a `src/`")];
    };
    let table = match member {
        "agent" => AGENT_MODULES,
        "collectors" => COLLECTOR_MODULES,
        "exporters" => EXPORTER_MODULES,
        _ => &[],
    };
    let module = module_of(Path::new(inner));
    let named = match paths(source, &module) {
        Ok(named) => named,
        Err(problem) => return vec![format!("`{file}` is not Rust: {problem}")],
    };
    let mut found = BTreeSet::new();
    let own = module.get(1).map(String::as_str);
    let row = table.iter().find(|(name, _)| Some(*name) == own);
    if let (Some(own), None, false) = (own, row, table.is_empty()) {
        found.insert(format!(
            "`{file}`: `{own}` has no row in the table: say what it may import"
        ));
    }
    for path in &named {
        let text = path.segments.join("::");
        for (place, banned, reason) in FORBIDDEN_PATHS {
            if file.starts_with(&format!("{place}/")) && begins(&text, banned) {
                found.insert(format!("`{file}` names `{text}`: {reason}"));
            }
        }
        if member == "agent" && file != CLOCK_FILE && CLOCKS.iter().any(|c| begins(&text, c)) {
            found.insert(format!(
                "`{file}` names `{text}`: `{CLOCK_FILE}` is the one clock"
            ));
        }
        let (Some((own, allowed)), [root, target, ..]) = (row, path.segments.as_slice()) else {
            continue;
        };
        let is_module = table.iter().any(|(name, _)| name == target);
        let may = target == own
            || allowed.contains(&target.as_str())
            || (path.in_tests && target == "testing");
        if root == "crate" && is_module && !may {
            found.insert(format!("`{file}`: `{own}` imports `{target}` (`{text}`)"));
        }
    }
    found.into_iter().collect()
}

fn begins(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

// --- The workspace as it is ------------------------------------------------------------------

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, out)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    Ok(())
}

#[test]
fn no_crate_has_a_forbidden_dependency() {
    let answer = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );

    let metadata = serde_json::from_slice(&answer.stdout).unwrap();

    assert_eq!(crate_violations(&metadata), Vec::<String>::new());
}

#[test]
fn no_module_has_a_forbidden_import() {
    let mut found = Vec::new();
    let mut checked = 0;
    for member in ["agent", "collectors", "exporters", "cli"] {
        let mut files = Vec::new();
        rust_files(&root().join(member).join("src"), &mut files).unwrap();
        checked += files.len();
        for file in files {
            let name = file
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .into_owned();
            found.extend(module_violations(
                &name,
                &std::fs::read_to_string(&file).unwrap(),
            ));
        }
    }

    assert_eq!(found, Vec::<String>::new());
    assert!(checked > 20, "only {checked} files were checked");
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_cycle() {
    for member in ["agent", "collectors", "exporters", "cli", "py_bindings"] {
        let folder = root().join(member).join("src");
        let mut files = Vec::new();
        rust_files(&folder, &mut files).unwrap();
        let sources: BTreeMap<_, _> = (files.iter())
            .map(|file| {
                let inner = file.strip_prefix(&folder).unwrap();
                (module_of(inner), std::fs::read_to_string(file).unwrap())
            })
            .collect();
        assert_eq!(cycles(&sources), Vec::<String>::new(), "in `{member}`");
    }
}
