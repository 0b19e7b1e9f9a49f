use headspace_agent::model::record::{
    ChangeRecord, FindingRecord, OtherLoop, RemedyRecord, Role, RunRecord,
};

use super::*;

fn html(summary: &SummaryRecord) -> String {
    notebook(Verdict::new(summary))
}

fn measured() -> SummaryRecord {
    SummaryRecord {
        steps: 640,
        steady_step_mean_ms: Some(30.0),
        wait_ms: Some(20.1),
        wait_pct: Some(67.0),
        compute_ms: Some(9.9),
        headspace_upper_bound_pct: Some(67.0),
        ..SummaryRecord::default()
    }
}

#[test]
fn workers_of_a_remedy_are_those_of_each_rank() {
    let summary = SummaryRecord {
        remedies: vec![RemedyRecord {
            what: "Load in 4 worker processes instead of 2.".to_owned(),
            change: Some(ChangeRecord {
                knob: "num_workers".to_owned(),
                from: "2".to_owned(),
                to: "4".to_owned(),
                ..ChangeRecord::default()
            }),
            ..RemedyRecord::default()
        }],
        ..measured()
    };
    let run = RunRecord {
        world_size: 8,
        ..RunRecord::default()
    };

    let html = notebook(Verdict {
        run: Some(&run),
        ..Verdict::new(&summary)
    });

    assert!(
        html.contains("4 worker processes instead of 2 on each rank."),
        "{html}"
    );
}

#[test]
fn an_upper_bound_is_called_one_and_the_floor_unknown() {
    let html = html(&measured());
    assert!(
        html.contains("at most 67.0 %") && html.contains("upper bound"),
        "{html}"
    );
    assert!(html.contains("unknown") && html.contains("HEADSPACE_MODE=probe"));
}

#[test]
fn without_a_measurable_gain_no_speedup_is_shown() {
    let summary = SummaryRecord {
        floor_step_ms: Some(29.9),
        headspace_pct: Some(0.3),
        headspace_ci_pct: Some((-0.5, 1.1)),
        max_speedup: Some(1.003),
        ..measured()
    };
    let html = html(&summary);
    assert!(
        html.contains("no measurable speed-up") && !html.contains("faster"),
        "{html}"
    );
}

#[test]
fn a_run_too_short_for_a_number_has_none() {
    let summary = SummaryRecord {
        steps: 7,
        ..SummaryRecord::default()
    };
    assert!(html(&summary).contains("7 steps are too few"));
}

#[test]
fn the_bar_is_to_scale_and_its_label_has_the_same_numbers() {
    let html = html(&SummaryRecord {
        floor_step_ms: Some(10.0),
        ..measured()
    });
    assert!(
        html.contains("x=\"33.00%\" y=\"4\" width=\"67.00%\""),
        "{html}"
    );
    assert!(html.contains("Step 30.0 ms: compute 9.9 ms, waiting for data 20.1 ms; floor 10.0 ms"));
}

#[test]
fn findings_are_escaped() {
    let finding = FindingRecord {
        code: "x".into(),
        text: "<b>bold</b>".into(),
    };
    let html = html(&SummaryRecord {
        findings: vec![finding],
        ..measured()
    });
    assert!(html.contains("&lt;b&gt;bold&lt;/b&gt;"));
}

#[test]
fn an_evaluation_is_one_row_however_often_it_was_made() {
    let others = vec![OtherLoop {
        name: "DataLoader (evaluation)".into(),
        role: Some(Role::Evaluation),
        epochs: 60,
        steps: 1200,
        seconds: 4.0,
    }];
    let summary = SummaryRecord {
        loop_name: Some("DataLoader".into()),
        loop_role: Some(Role::Training),
        epochs: 2,
        other_loops: others,
        ..measured()
    };
    let html = html(&summary);
    assert!(html.contains("<h2>Loops</h2>"), "{html}");
    let row = html.split("DataLoader (evaluation)").nth(1).unwrap();
    let row = row.split("</tr>").next().unwrap();
    for cell in [">evaluation<", ">60<", ">1200<", ">4.00 s<"] {
        assert!(row.contains(cell), "{row}");
    }
}

#[test]
fn one_loop_alone_has_no_table() {
    let summary = SummaryRecord {
        loop_name: Some("DataLoader".into()),
        ..measured()
    };
    assert!(!html(&summary).contains("<h2>Loops</h2>"));
}
