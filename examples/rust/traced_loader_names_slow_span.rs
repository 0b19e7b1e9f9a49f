//! Tests the example `traced_loader`: its verdict names the slow span.

use headspace_agent::model::record::BottleneckKind;

#[path = "traced_loader/main.rs"]
#[expect(dead_code, reason = "`main` is for the example itself")]
mod traced_loader;

#[test]
fn the_verdict_of_a_traced_loader_names_the_slow_span() {
    let runs = tempfile::tempdir().unwrap();

    let summary = traced_loader::train(runs.path()).unwrap();

    let mut stages: Vec<_> = summary.stages.iter().map(|stage| &*stage.name).collect();
    stages.sort_unstable();
    assert_eq!(stages, ["collate", "decode", "read"]);
    let bottleneck = summary.bottleneck.expect("one is named");
    assert_eq!(
        (bottleneck.kind, bottleneck.name.as_deref()),
        (BottleneckKind::Stage, Some("decode")),
        "{bottleneck:?}"
    );
}
