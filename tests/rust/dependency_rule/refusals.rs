//! Tests that the checks report each violation, and accept what is allowed.

use serde_json::json;

use super::*;

/// Metadata of the crates in the table. `edit` contains their only dependencies.
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
fn allowed_dependencies_are_accepted() {
    let good = workspace(&[
        ("headspace-collectors", "headspace-agent", Value::Null),
        ("headspace-agent", "libc", Value::Null),
        ("headspace-agent", "proptest", json!("dev")),
        ("headspace-py", "pyo3", Value::Null),
    ]);

    assert_eq!(crate_violations(&good), Vec::<String>::new());
}

#[test]
fn every_forbidden_dependency_is_refused() {
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
fn every_forbidden_import_is_refused() {
    for (file, source) in [
        ("agent/src/model/record.rs", "use crate::port::Clock;"),
        (
            "agent/src/port/clock.rs",
            "fn f(_: &crate::runtime::Agent) {}",
        ),
        (
            "agent/src/analysis/floor.rs",
            "use super::super::batch_source::probe::Window;",
        ),
        (
            "agent/src/batch_source/probe.rs",
            "use crate::{model::Record, analysis::floor};",
        ),
        (
            "agent/src/sampling/sources.rs",
            "use crate::runtime::Agent as A;",
        ),
        (
            "agent/src/recording/ring.rs",
            "mod inner { use super::super::super::batch_source::Mode; }",
        ),
        (
            "agent/src/runtime/mod.rs",
            "use crate::testing::ManualClock;",
        ),
        (
            "agent/src/batch_source/mod.rs",
            "fn f() { vec![std::fs::read(\"x\")]; }",
        ),
        ("agent/src/batch_source/mod.rs", "use std::{net, sync};"),
        (
            "agent/src/batch_source/mod.rs",
            "use std::time::{Duration, Instant};",
        ),
        ("agent/src/extra/mod.rs", "fn f() {}"),
        ("collectors/src/host/mod.rs", "use crate::process::parse;"),
        ("collectors/src/process/mod.rs", "use super::host::cores;"),
        ("collectors/src/host/mod.rs", "use std::net::TcpStream;"),
        (
            "exporters/src/encode/split_lines.rs",
            "use crate::transport::File;",
        ),
        ("exporters/src/encode/split_lines.rs", "use std::fs::File;"),
        ("cli/src/lib.rs", "use pyo3::prelude::*;"),
        ("agent/src/model/record.rs", "fn f( {"),
    ] {
        let found = module_violations(file, source);

        assert_eq!(found.len(), 1, "{file}: `{source}` gave {found:?}");
    }
}

#[test]
fn allowed_imports_comments_and_strings_are_accepted() {
    for (file, source) in [
        (
            "agent/src/batch_source/probe.rs",
            "use crate::{model::Record, port::Clock, notice};",
        ),
        (
            "agent/src/batch_source/probe.rs",
            "//! See [`crate::runtime`].\nuse super::replay::Replay;",
        ),
        (
            "agent/src/batch_source/probe.rs",
            "const X: &str = \"crate::runtime::Agent\";",
        ),
        (
            "agent/src/batch_source/probe.rs",
            "mod tests { use super::super::Mode; use crate::testing::F; }",
        ),
        (
            "agent/src/port/clock.rs",
            "use std::time::{Duration, SystemTime};",
        ),
        (
            "agent/src/sampling/sampler.rs",
            "use std::time::Duration; use crate::recording::Ring;",
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
