use headspace_agent::model::RecordBody;
use headspace_agent::model::record::{BottleneckRecord, RunRecord, SummaryRecord};

use super::super::test_records;
use super::*;

/// A rank whose first tick was taken.
fn rank(rank: u32) -> Snapshot {
    let run = RunRecord {
        mode: headspace_agent::model::Mode::Probe,
        world_size: 2,
        ..RunRecord::default()
    };
    let summary = SummaryRecord {
        bottleneck: Some(BottleneckRecord {
            kind: headspace_agent::model::record::BottleneckKind::Stage,
            name: Some("de\"code\\\n".into()),
            confidence: 0.5,
            ..BottleneckRecord::default()
        }),
        ..SummaryRecord::default()
    };
    let mut snapshot = Snapshot::default();
    for body in [
        RecordBody::Run(run),
        RecordBody::Tick(test_records::tick(1)),
        RecordBody::Summary(Box::new(summary)),
    ] {
        let mut record = test_records::record(1, body);
        record.rank = rank;
        snapshot.add_record(&record);
    }
    snapshot
}

fn lines<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines()
        .filter(|line| line.starts_with(start))
        .collect()
}

#[test]
fn a_total_is_a_counter_of_each_rank() {
    let ranks = [rank(0), rank(3)];
    let text = encode(&ranks, Form::Text);

    let of = |rank| {
        format!(
            "process_cpu_time_seconds_total{{run=\"2026-11-21T09-30-12-4711\",rank=\"{rank}\",\
             scope=\"process\",cpu_mode=\"user\"}} 3.21"
        )
    };
    let found = lines(&text, "process_cpu_time_seconds_total{");
    assert!(found.contains(&of(0).as_str()), "{found:?}");
    assert!(found.contains(&of(3).as_str()), "{found:?}");
    assert_eq!(
        lines(&text, "# TYPE process_cpu_time_seconds_total"),
        ["# TYPE process_cpu_time_seconds_total counter"]
    );
    assert!(!text.contains("# EOF"));
}

#[test]
fn open_metrics_names_the_family_without_total_and_ends_with_eof() {
    let text = encode([&rank(0)], Form::OpenMetrics);
    assert!(text.contains("# TYPE process_cpu_time_seconds counter\n# UNIT process_cpu_time_seconds seconds\n# HELP process_cpu_time_seconds CPU seconds"));
    assert!(text.contains("\nprocess_cpu_time_seconds_total{"));
    assert!(text.contains("# TYPE target info\n"));
    assert!(text.contains("# UNIT headspace_host_cpu_utilization_ratio ratio\n"));
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn buckets_are_cumulative_and_the_last_has_the_total() {
    let text = encode([&rank(0)], Form::Text);
    let found = lines(&text, "headspace_loop_step_time_seconds_bucket{");
    let live: Vec<u64> = found
        .iter()
        .filter(|line| line.contains("phase=\"live\""))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(live.len(), BOUNDS_S.len() + 1);
    assert!(live.is_sorted());
    assert_eq!(live.last(), Some(&100));
    assert!(found.iter().any(|line| line.contains("le=\"1.0\"")));
    let count = lines(&text, "headspace_loop_step_time_seconds_count{");
    assert!(count[0].ends_with(" 100"), "{count:?}");
}

#[test]
fn names_from_the_user_are_quoted() {
    let text = encode([&rank(0)], Form::Text);
    let found = lines(&text, "headspace_run_bottleneck_ratio{");
    assert!(found[0].contains(r#"name="de\"code\\\n""#), "{found:?}");
}

#[test]
fn a_level_with_a_histogram_suffix_has_no_type() {
    let text = encode([&rank(0)], Form::Text);
    assert!(text.contains("# TYPE process_thread_count untyped\n"));
    let text = encode([&rank(0)], Form::OpenMetrics);
    assert!(text.contains("# TYPE process_thread_count unknown\n"));
}

#[test]
fn a_snapshot_without_records_is_an_empty_text() {
    assert_eq!(encode([&Snapshot::default()], Form::Text), "");
    assert_eq!(encode([], Form::OpenMetrics), "# EOF\n");
}

#[test]
fn only_clients_that_prefer_open_metrics_get_it() {
    let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                      version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
    for accept in [
        "",
        "*/*",
        "text/html",
        "text/plain, application/openmetrics-text;q=0.5",
        "application/openmetrics-text;q=0",
    ] {
        assert_eq!(Form::accepted(accept), Form::Text, "{accept}");
    }
}
