//! Who may import whom (ARCHITECTURE.md, "Layers"), kept by machine.
//!
//! Two checks: crates, on what `cargo metadata` says, and modules, on the paths that the source
//! names. Both are functions from text to violations, so that the tests at the end can show each
//! of them a fault and see it refused. Paths are read from tokens: comments and strings don't
//! count, `super::` is resolved, and `{..}` groups are spread out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde_json::Value;

/// The crates of the workspace, each with the members it may depend on, in tests too.
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

/// What the agent may depend on outside the workspace. Whoever depends on the agent has all of it.
const AGENT_LIBRARIES: &[&str] = &[
    "hdrhistogram",
    "libc",
    "quanta",
    "schemars",
    "serde",
    "thiserror",
];

/// The one crate that knows Python.
const PYTHON_CRATE: &str = "headspace-py";

/// The agent's modules, lowest first, each with the modules it may name besides itself.
const AGENT_MODULES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("notice", &["model"]),
    ("port", &["model", "notice"]),
    ("record", &["model", "notice", "port"]),
    ("loader", &["model", "notice", "port"]),
    ("analysis", &["model", "notice", "port"]),
    (
        "pipeline",
        &["model", "notice", "port", "record", "loader", "analysis"],
    ),
    (
        "runtime",
        &[
            "model", "notice", "port", "record", "loader", "analysis", "pipeline",
        ],
    ),
    (
        "testing",
        &[
            "model", "notice", "port", "record", "loader", "analysis", "pipeline",
        ],
    ),
];

/// The sources: no one may name another. `procfs` is how all of them read `/proc`.
const COLLECTOR_MODULES: &[(&str, &[&str])] = &[
    ("procfs", &[]),
    ("process", &["procfs"]),
    ("host", &["procfs"]),
];

/// Bytes are made without knowing where they go; whoever carries them may ask for them.
const EXPORTER_MODULES: &[(&str, &[&str])] = &[("encode", &[]), ("transport", &["encode"])];

/// Standard-library modules that a crate never names, and why.
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

/// The one file of the agent that may read a clock.
const CLOCK_FILE: &str = "agent/src/port/clock.rs";
const CLOCKS: &[&str] = &["quanta", "std::time::Instant", "std::time::SystemTime"];

// --- Crates ----------------------------------------------------------------------------------

/// What is wrong in the answer of `cargo metadata --no-deps`, one sentence each.
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

/// A path as the source names it, resolved, and whether it stands inside `mod tests`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    segments: Vec<String>,
    in_tests: bool,
}

/// Every path of two segments or more that `source` names. `module` is where the file stands,
/// `["crate", "loader", "replay"]`.
fn paths(source: &str, module: &[String]) -> Result<Vec<Named>, String> {
    let tokens = TokenStream::from_str(source).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    walk(tokens, module, false, &mut found);
    Ok(found)
}

fn walk(tokens: TokenStream, module: &[String], in_tests: bool, found: &mut Vec<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                {
                    let inner = [module, &[name.to_string()]].concat();
                    walk(body.stream(), &inner, in_tests || name == "tests", found);
                    at += 3;
                } else {
                    at += 1;
                }
            }
            TokenTree::Ident(_) => at = path(&tokens, at, &[], module, in_tests, found),
            TokenTree::Group(group) => {
                walk(group.stream(), module, in_tests, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Reads the path that begins at `at`, after `prefix`, and returns where it ends.
fn path(
    tokens: &[TokenTree],
    mut at: usize,
    prefix: &[String],
    module: &[String],
    in_tests: bool,
    found: &mut Vec<Named>,
) -> usize {
    let mut segments = prefix.to_vec();
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        segments.push(word.to_string());
        at += 1;
        if !(is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1))) {
            break;
        }
        at += 2;
        match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut next = 0;
                while next < inner.len() {
                    next = match inner[next] {
                        TokenTree::Ident(_) => {
                            path(&inner, next, &segments, module, in_tests, found)
                        }
                        _ => next + 1,
                    };
                }
                return at + 1;
            }
            Some(TokenTree::Ident(_)) => {}
            _ => break,
        }
    }
    if segments.len() > 1 {
        found.push(Named {
            segments: resolve(&segments, module),
            in_tests,
        });
    }
    at
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
}

/// `self::` and `super::` as seen from `module`.
fn resolve(segments: &[String], module: &[String]) -> Vec<String> {
    let ups = segments.iter().take_while(|s| *s == "super").count();
    let rest = match segments.first().map(String::as_str) {
        Some("self") => &segments[1..],
        Some("super") => &segments[ups..],
        _ => return segments.to_vec(),
    };
    [&module[..module.len().saturating_sub(ups).max(1)], rest].concat()
}

/// The module path of a file under `src/`.
fn module_of(file: &Path) -> Vec<String> {
    let mut module = vec!["crate".to_owned()];
    module.extend(
        file.with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into_owned()),
    );
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// What is wrong in one file. `file` is relative to the workspace: `agent/src/loader/probe.rs`.
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
fn no_crate_depends_on_one_it_may_not() {
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
fn no_module_imports_one_it_may_not() {
    let mut found = Vec::new();
    let mut seen = 0;
    for member in ["agent", "collectors", "exporters", "cli"] {
        let mut files = Vec::new();
        rust_files(&root().join(member).join("src"), &mut files).unwrap();
        seen += files.len();
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
    assert!(seen > 20, "only {seen} files were looked at");
}

// --- The checker itself, shown faults ----------------------------------------------------------

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table as metadata without any dependency, with `edit` on top.
    fn workspace(edit: &[(&str, &str, Value)]) -> Value {
        let packages: Vec<Value> = CRATES
            .iter()
            .map(|(name, _)| {
                let dependencies: Vec<Value> = edit
                    .iter()
                    .filter(|(of, ..)| of == name)
                    .map(|(_, on, kind)| json!({"name": on, "kind": kind}))
                    .collect();
                json!({"name": name, "dependencies": dependencies})
            })
            .collect();
        json!({ "packages": packages })
    }

    #[test]
    fn allowed_dependencies_are_let_through() {
        let good = workspace(&[
            ("headspace-collectors", "headspace-agent", Value::Null),
            ("headspace-agent", "libc", Value::Null),
            ("headspace-agent", "proptest", json!("dev")),
            ("headspace-py", "pyo3", Value::Null),
        ]);

        assert_eq!(crate_violations(&good), Vec::<String>::new());
    }

    #[test]
    fn forbidden_dependencies_are_each_refused() {
        for (of, on, kind) in [
            ("headspace-agent", "headspace-exporters", json!("dev")),
            ("headspace-collectors", "headspace-exporters", Value::Null),
            (
                "headspace-exporters",
                "headspace-collectors",
                json!("build"),
            ),
            ("headspace", "headspace-py", Value::Null),
            ("headspace", "pyo3", Value::Null),
            ("headspace-tests", "pyo3-ffi", json!("dev")),
            ("headspace-agent", "tokio", Value::Null),
        ] {
            let found = crate_violations(&workspace(&[(of, on, kind)]));

            assert_eq!(found.len(), 1, "{of} on {on}: {found:?}");
            assert!(found[0].contains(of) && found[0].contains(on), "{found:?}");
        }
    }

    #[test]
    fn a_member_without_a_row_and_a_row_without_a_member_are_refused() {
        let stranger = json!({"packages": [{"name": "headspace-extra", "dependencies": []}]});

        let found = crate_violations(&stranger);

        assert_eq!(found.len(), CRATES.len() + 1);
        assert!(found.iter().any(|f| f.contains("headspace-extra")));
    }

    #[test]
    fn forbidden_imports_are_each_refused() {
        for (file, source) in [
            ("agent/src/model/record.rs", "use crate::port::Clock;"),
            (
                "agent/src/port/clock.rs",
                "fn f(_: &crate::runtime::Agent) {}",
            ),
            (
                "agent/src/analysis/floor.rs",
                "use super::super::loader::probe::Window;",
            ),
            (
                "agent/src/loader/probe.rs",
                "use crate::{model::Record, analysis::floor};",
            ),
            (
                "agent/src/pipeline/queue.rs",
                "use crate::runtime::Agent as A;",
            ),
            (
                "agent/src/record/ring.rs",
                "mod inner { use super::super::super::loader::Mode; }",
            ),
            (
                "agent/src/runtime/mod.rs",
                "use crate::testing::ManualClock;",
            ),
            (
                "agent/src/loader/mod.rs",
                "fn f() { vec![std::fs::read(\"x\")]; }",
            ),
            ("agent/src/loader/mod.rs", "use std::{net, sync};"),
            (
                "agent/src/loader/mod.rs",
                "use std::time::{Duration, Instant};",
            ),
            ("agent/src/extra/mod.rs", "fn f() {}"),
            ("collectors/src/host/mod.rs", "use crate::process::parse;"),
            ("collectors/src/process/mod.rs", "use super::host::cores;"),
            ("collectors/src/host/mod.rs", "use std::net::TcpStream;"),
            (
                "exporters/src/encode/lines.rs",
                "use crate::transport::File;",
            ),
            ("exporters/src/encode/lines.rs", "use std::fs::File;"),
            ("cli/src/lib.rs", "use pyo3::prelude::*;"),
            ("agent/src/model/record.rs", "fn f( {"),
        ] {
            let found = module_violations(file, source);

            assert_eq!(found.len(), 1, "{file}: `{source}` gave {found:?}");
        }
    }

    #[test]
    fn allowed_imports_comments_and_strings_are_let_through() {
        for (file, source) in [
            (
                "agent/src/loader/probe.rs",
                "use crate::{model::Record, port::Clock, notice};",
            ),
            (
                "agent/src/loader/probe.rs",
                "//! See [`crate::runtime`].\nuse super::replay::Replay;",
            ),
            (
                "agent/src/loader/probe.rs",
                "const X: &str = \"crate::runtime::Agent\";",
            ),
            (
                "agent/src/loader/probe.rs",
                "mod tests { use super::super::Mode; use crate::testing::F; }",
            ),
            (
                "agent/src/port/clock.rs",
                "use std::time::{Duration, SystemTime};",
            ),
            (
                "agent/src/pipeline/sampler.rs",
                "use std::time::Duration; use crate::record::Ring;",
            ),
            (
                "agent/src/lib.rs",
                "pub mod runtime; pub use crate::runtime::Agent;",
            ),
            (
                "collectors/src/host/mod.rs",
                "use crate::procfs; use std::fs;",
            ),
            (
                "collectors/src/lib.rs",
                "pub use host::Host; pub use crate::process::Process;",
            ),
            (
                "exporters/src/transport/file.rs",
                "use crate::encode::lines; use std::fs::File;",
            ),
        ] {
            assert_eq!(
                module_violations(file, source),
                Vec::<String>::new(),
                "{file}: {source}"
            );
        }
    }
}
