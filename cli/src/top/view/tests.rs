//! Compares drawn screens with those in `golden/`. `HEADSPACE_BLESS=1` writes new ones.

use std::path::Path;

use headspace_agent::model::Distribution;
use headspace_agent::model::record::{
    BottleneckRecord, GpuRecord, LineRecord, LoopTick, NoticeRecord, Phase, QueueTick, RecordBody,
    RemedyRecord, RunRecord, Severity, StageTick, SummaryRecord, TickRecord,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::top::testing::{record, times};

const RUN: &str = "2026-11-21T09-30-00-4711";

/// A rank after `seconds`, whose loader is slower by `wait_ms` per step.
fn rank(state: &mut State, number: u32, world_size: u32, seconds: u64, wait_ms: f64) {
    let mut add = |second, body| state.add_record(number, record(RUN, second, body));
    add(
        0,
        RecordBody::Run(RunRecord {
            mode: headspace_agent::model::Mode::Probe,
            world_size,
            gpus: vec![GpuRecord {
                ordinal: 0,
                name: Some("NVIDIA H100 80GB HBM3".into()),
                ..GpuRecord::default()
            }],
            ..RunRecord::default()
        }),
    );
    for second in 0..seconds {
        add(second + 1, RecordBody::Tick(tick(second, wait_ms)));
    }
    let notice = NoticeRecord {
        code: "source_off".into(),
        severity: Severity::Warning,
        text: "`perf_hardware` is off for this run: the kernel counts no cycles here. The other \
               sources continue."
            .into(),
    };
    add(2, RecordBody::Notice(notice));
    add(seconds, RecordBody::Summary(Box::new(summary(wait_ms))));
}

#[expect(clippy::too_many_lines, reason = "one record, field by field")]
fn tick(second: u64, wait_ms: f64) -> TickRecord {
    // A wave, and a replay in the middle.
    let wait = wait_ms * (1.0 + 0.2 * ((second % 10) as f64 / 10.0));
    let replayed = (30..36).contains(&second);
    let wait = if replayed { 0.01 } else { wait };
    let step = 10.0 + wait;
    let stage = |name: &str, worker: Option<&str>, calls, ms, places| StageTick {
        name: name.into(),
        worker: worker.map(Into::into),
        concurrency: Some(places),
        peak: places,
        time: times(&[(calls, ms), (calls / 10, ms * 2.0)]),
        ..StageTick::default()
    };
    let queue = |name: &str, depth: f64, capacity, empty_ms, full_ms| QueueTick {
        name: name.into(),
        capacity: Some(capacity),
        last: name == "decoded",
        samples: 10,
        sampled_ms: 1000.0,
        empty_ms,
        full_ms,
        depth,
        ..QueueTick::default()
    };
    let gpu = [
        ("headspace.gpu.sm.utilization{source=gpm}", 0.31),
        ("hw.gpu.utilization{hw.gpu.task=general}", 0.55),
        ("headspace.gpu.engine.utilization{engine=nvdec0}", 0.9),
        ("headspace.gpu.engine.utilization{engine=nvdec1}", 0.0),
        ("hw.gpu.memory.usage", 12.0 * f64::from(1 << 30)),
        ("hw.gpu.memory.limit", 80.0 * f64::from(1 << 30)),
        ("hw.power", 312.0),
        ("hw.temperature", 54.0),
    ];
    let host = [
        ("headspace.host.cpu.utilization", 0.5),
        ("headspace.host.cpu.usable", 8.0),
    ];
    let named = |values: &[(&str, f64)]| {
        let named = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), *value));
        named.collect()
    };
    TickRecord {
        tick: second,
        at_s: second as f64 + 1.0,
        interval_s: 1.0,
        merged: 1,
        loops: vec![LoopTick {
            name: "train".into(),
            phase: if replayed { Phase::Replay } else { Phase::Live },
            epoch: second / 20,
            first_step: second * 33,
            steps: 33,
            samples: Some(33 * 16),
            wait: times(&[(33, wait)]),
            compute: times(&[(33, 10.0)]),
            step: times(&[(33, step)]),
            ..LoopTick::default()
        }],
        stages: vec![
            stage("read", None, 100, 1.2, 1),
            stage("decode", Some("worker 0"), 50, 18.0, 1),
            stage("decode", Some("worker 1"), 40, 23.0, 1),
            stage("collate a batch of clips", Some("worker 1"), 33, 0.4, 1),
        ],
        queues: vec![
            queue("encoded", 15.0, 16, 0.0, 900.0),
            queue("decoded", (second % 3) as f64, 8, 600.0, 0.0),
        ],
        readings: [
            ("gpu:0".to_owned(), named(&gpu)),
            ("host".to_owned(), named(&host)),
            (
                "tree".to_owned(),
                named(&[
                    ("process.memory.usage", 3e9),
                    ("headspace.process.count", 3.0),
                ]),
            ),
        ]
        .into(),
        ..TickRecord::default()
    }
}

fn summary(wait_ms: f64) -> SummaryRecord {
    let step = 10.0 + wait_ms;
    SummaryRecord {
        mode: Some(headspace_agent::model::Mode::Probe),
        loop_name: Some("train".into()),
        steps: 2000,
        steady_steps: 1900,
        steady_s: 57.0,
        steady_step_mean_ms: Some(step),
        wait_ms: Some(wait_ms),
        compute_ms: Some(10.0),
        wait_pct: Some(100.0 * wait_ms / step),
        floor_step_ms: Some(10.0),
        headspace_pct: Some(100.0 * wait_ms / step),
        headspace_ci_pct: Some((100.0 * wait_ms / step - 1.0, 100.0 * wait_ms / step + 1.0)),
        max_speedup: Some(step / 10.0),
        exposed_wait_ms: Some(wait_ms),
        contention_ms: Some(0.0),
        bottleneck_stage: Some("decode".into()),
        bottleneck: Some(BottleneckRecord {
            kind: headspace_agent::model::record::BottleneckKind::Stage,
            name: Some("decode".into()),
            limit_ms: Some(step),
            evidence: "busy 99 % of the time, the queue after it empty 60 % of the time".into(),
            confidence: 0.9,
        }),
        remedies: vec![RemedyRecord {
            code: "more_workers".into(),
            what: "Run `decode` 4 at a time instead of 2.".into(),
            stage: Some("decode".into()),
            predicted_step_ms: 15.5,
            predicted_gain_pct: 48.0,
            confidence: 0.8,
            ..RemedyRecord::default()
        }],
        lines: vec![LineRecord {
            stage: Some("decode".into()),
            file: "/home/me/clips.py".into(),
            line: 83,
            function: "decode".into(),
            share_pct: 71.0,
            predicted_step_ms: 18.2,
            ..LineRecord::default()
        }],
        overhead_pct: Some(0.02),
        ..SummaryRecord::default()
    }
}

fn two_ranks() -> State {
    let mut state = State::default();
    rank(&mut state, 0, 2, 60, 20.0);
    rank(&mut state, 1, 2, 60, 30.0);
    state
}

fn scene(state: &State, choice: Choice) -> Scene<'_> {
    Scene {
        state,
        choice,
        palette: Palette::new(true),
        place: "headspace-runs",
        trouble: None,
        now_unix_nano: (1_795_253_400 + 61) * 1_000_000_000,
    }
}

fn drawn(scene: &Scene<'_>, columns: u16, lines: u16) -> (Terminal<TestBackend>, usize) {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    let mut scrolls = 0;
    terminal.draw(|frame| scrolls = draw(frame, scene)).unwrap();
    (terminal, scrolls)
}

fn text(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width)
            .map(|x| buffer.cell((x, y)).unwrap().symbol())
            .collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn check(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/top/view/golden")
        .join(name);
    if std::env::var_os("HEADSPACE_BLESS").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == shown, "{} differs. Now:\n{shown}", path.display());
}

#[test]
fn a_small_screen_shows_the_steps_the_verdict_and_the_pipeline() {
    let state = two_ranks();
    let (terminal, scrolls) = drawn(&scene(&state, Choice::default()), 80, 24);
    check("80x24.txt", &text(&terminal));
    assert!(scrolls > 0);
}

#[test]
fn a_larger_screen_shows_more_of_each() {
    let state = two_ranks();
    let shown = text(&drawn(&scene(&state, Choice::default()), 120, 40).0);
    check("120x40.txt", &shown);
    check(
        "160x50.txt",
        &text(&drawn(&scene(&state, Choice::default()), 160, 50).0),
    );
}

#[test]
fn every_line_of_the_list_can_be_scrolled_to() {
    let state = two_ranks();
    let mut choice = Choice::default();
    let (_, scrolls) = drawn(&scene(&state, choice), 80, 24);
    choice.scroll = scrolls;
    let shown = text(&drawn(&scene(&state, choice), 80, 24).0);
    check("80x24-end.txt", &shown);
    assert!(
        shown.contains("NVDEC 0") || shown.contains("sources continue."),
        "{shown}"
    );
}

#[test]
fn ranks_stand_side_by_side() {
    let state = two_ranks();
    let choice = Choice {
        shown: Shown::All,
        ..Choice::default()
    };
    check(
        "ranks.txt",
        &text(&drawn(&scene(&state, choice), 100, 24).0),
    );
}

#[test]
fn the_other_pages_fit_a_small_screen() {
    let state = two_ranks();
    let (help, verdict) = (
        Choice {
            help: true,
            ..Choice::default()
        },
        Choice {
            verdict: true,
            ..Choice::default()
        },
    );
    check("help.txt", &text(&drawn(&scene(&state, help), 80, 24).0));
    check(
        "verdict.txt",
        &text(&drawn(&scene(&state, verdict), 80, 24).0),
    );
    let none = State::default();
    check(
        "waiting.txt",
        &text(&drawn(&scene(&none, Choice::default()), 80, 24).0),
    );
}

#[test]
fn without_colours_the_same_text_is_shown_and_no_cell_is_coloured() {
    let state = two_ranks();
    let mut scene = scene(&state, Choice::default());
    let coloured = drawn(&scene, 120, 40).0;
    scene.palette = Palette::new(false);
    let plain = drawn(&scene, 120, 40).0;

    assert_eq!(text(&coloured), text(&plain));
    let colours = |t: &Terminal<TestBackend>| {
        let cells = t.backend().buffer().content().iter();
        cells
            .filter(|c| c.fg != Color::Reset || c.bg != Color::Reset)
            .count()
    };
    assert!(colours(&coloured) > 100);
    assert_eq!(colours(&plain), 0);
}

#[test]
fn no_size_of_a_screen_and_no_state_of_a_run_breaks_it() {
    let states = [State::default(), two_ranks()];
    for state in &states {
        for columns in [1, 2, 10, 15, 40, 79, 200] {
            for lines in [1, 2, 3, 5, 8, 12, 70] {
                for whole in [false, true] {
                    let choice = Choice {
                        whole,
                        scroll: 7,
                        ..Choice::default()
                    };
                    drawn(&scene(state, choice), columns, lines);
                }
            }
        }
    }
}

#[test]
fn names_from_outside_neither_move_the_cursor_nor_break_the_columns() {
    let mut state = State::default();
    let mut evil = tick(0, 5.0);
    evil.stages[0].name = "a\u{1b}[2Jb".into();
    evil.stages[1].name = "解码解码解码解码解码".into();
    state.add_record(0, record(RUN, 1, RecordBody::Tick(evil)));
    let shown = text(&drawn(&scene(&state, Choice::default()), 80, 30).0);

    assert!(
        !shown.contains('\u{1b}') && shown.contains("a [2Jb"),
        "{shown}"
    );
    assert!(shown.contains('…'), "{shown}");
}

#[test]
fn the_numbers_are_those_of_the_records() {
    let state = two_ranks();
    let now = state.ranks[&0].now.unwrap();
    let wait = Distribution::from(&tick(59, 20.0).loops[0].wait)
        .mean_ms()
        .unwrap();
    assert!((now.wait.mean_ms().unwrap() - wait).abs() < 1e-9);
    let shown = text(&drawn(&scene(&state, Choice::default()), 80, 24).0);
    assert!(shown.contains(&format!("wait {wait:.1} ms")), "{shown}");
}
