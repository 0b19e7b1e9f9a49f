//! Tests `headspace compare`, and `report` of several ranks, on folders of runs.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use headspace::{Context, EXIT_OK, EXIT_SLOWER, EXIT_USAGE};
use headspace_agent::model::record::{
    EndCause, EndRecord, LoopTick, RunRecord, RunState, SCHEMA, StageTick, SummaryRecord,
    TickRecord,
};
use headspace_agent::model::{Distribution, Record, RecordBody};
use headspace_agent::statistics::bootstrap::Rng;
use headspace_collectors::catalog::Settings;
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::rank_path;
use tempfile::TempDir;

/// A run that a test writes.
#[derive(Clone, Copy)]
struct Written {
    wait_ms: f64,
    compute_ms: f64,
    ticks: u32,
    batch_size: u64,
    state: RunState,
    crashed: bool,
    world_size: u32,
    seed: u64,
}

const USUAL: Written = Written {
    wait_ms: 3.0,
    compute_ms: 7.0,
    ticks: 60,
    batch_size: 32,
    state: RunState::Finished,
    crashed: false,
    world_size: 1,
    seed: 1,
};

fn spread(rng: &mut Rng, mean_ms: f64, count: u32) -> Distribution {
    let mut d = Distribution::default();
    for _ in 0..count {
        let ms = mean_ms * (0.9 + 0.2 * rng.unit());
        d.record(format!("{:.0}", ms * 1e6).parse().unwrap());
    }
    d
}

fn records(run: &Written) -> Vec<RecordBody> {
    let mut rng = Rng::new(run.seed);
    let mut out = vec![RecordBody::Run(RunRecord {
        world_size: run.world_size,
        mode: headspace_agent::model::Mode::Measure,
        argv: vec!["train.py".to_owned(), format!("--batch={}", run.batch_size)],
        ..RunRecord::default()
    })];
    for tick in 0..run.ticks {
        out.push(RecordBody::Tick(TickRecord {
            tick: tick.into(),
            loops: vec![LoopTick {
                name: "train".to_owned(),
                steps: 50,
                samples: Some(50 * run.batch_size),
                step: (&spread(&mut rng, run.wait_ms + run.compute_ms, 50)).into(),
                wait: (&spread(&mut rng, run.wait_ms, 50)).into(),
                compute: (&spread(&mut rng, run.compute_ms, 50)).into(),
                ..LoopTick::default()
            }],
            stages: vec![StageTick {
                name: "decode".to_owned(),
                time: (&spread(&mut rng, run.wait_ms, 100)).into(),
                ..StageTick::default()
            }],
            ..TickRecord::default()
        }));
    }
    let steps = u64::from(run.ticks) * 50;
    out.push(RecordBody::Summary(Box::new(SummaryRecord {
        state: run.state,
        ended_by: run.crashed.then(|| EndRecord {
            cause: EndCause::Exception,
            name: "ValueError".to_owned(),
        }),
        mode: Some(headspace_agent::model::Mode::Measure),
        loop_name: Some("train".to_owned()),
        steps,
        steady_steps: steps.saturating_sub(20),
        steady_step_mean_ms: Some(run.wait_ms + run.compute_ms),
        ..SummaryRecord::default()
    })));
    out
}

fn write(folder: &Path, rank: u32, run: &Written) {
    fs::create_dir_all(folder).unwrap();
    let mut bytes = Vec::new();
    for (time, body) in (1..).zip(records(run)) {
        let record = Record {
            schema: SCHEMA.to_owned(),
            time_unix_nano: time,
            run_id: folder.file_name().unwrap().to_str().unwrap().to_owned(),
            rank,
            pid: 1,
            body,
        };
        encode(&record, &mut bytes).unwrap();
    }
    fs::write(rank_path(folder, rank), bytes).unwrap();
}

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn run_into(out: &mut dyn Write, args: &[&str]) -> (i32, String) {
    let mut err = Vec::new();
    let code = headspace::run(
        std::iter::once("headspace")
            .chain(args.iter().copied())
            .map(Into::into),
        &mut Context {
            out,
            err: &mut err,
            runs: PathBuf::new(),
            settings: Settings::default(),
            more_sources: &mut Vec::new,
            inject: None,
        },
    );
    (code, String::from_utf8(err).unwrap())
}

fn headspace(args: &[&str]) -> Said {
    let mut out = Vec::new();
    let (code, err) = run_into(&mut out, args);
    Said {
        code,
        out: String::from_utf8(out).unwrap(),
        err,
    }
}

/// A folder with runs `a` and `b`.
fn two(a: &Written, b: &Written) -> (TempDir, String, String) {
    let base = tempfile::tempdir().unwrap();
    let path = |name: &str| base.path().join(name);
    write(&path("a"), 0, a);
    write(&path("b"), 0, &Written { seed: 2, ..*b });
    let text = |name| path(name).to_str().unwrap().to_owned();
    let (a, b) = (text("a"), text("b"));
    (base, a, b)
}

const SLOWER: Written = Written {
    wait_ms: 4.0,
    ..USUAL
};

#[test]
fn what_is_not_a_regular_file_is_named_and_the_runs_beside_it_are_compared() {
    let (base, a, b) = two(&USUAL, &SLOWER);
    for (side, target) in [(&a, "a-pipe"), (&b, "b-device")] {
        fs::create_dir(base.path().join(target)).unwrap();
        fs::rename(side, base.path().join(target).join("run")).unwrap();
    }
    let (pipe, device) = (
        base.path().join("a-pipe/bad"),
        base.path().join("b-device/bad"),
    );
    for folder in [&pipe, &device] {
        fs::create_dir(folder).unwrap();
    }
    let (pipe, device) = (rank_path(&pipe, 0), rank_path(&device, 0));
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    symlink("/dev/zero", &device).unwrap();
    let text = |name| base.path().join(name).to_str().unwrap().to_owned();

    let said = headspace(&["compare", &text("a-pipe"), &text("b-device")]);

    assert_eq!(said.code, EXIT_OK, "{}", said.err);
    assert!(said.out.contains("slower"), "{}", said.out);
    for path in [&pipe, &device] {
        let refused = format!("cannot read `{}`: it is not a regular file", path.display());
        assert!(said.err.contains(&refused), "{}", said.err);
    }
    assert_eq!(
        headspace(&["compare", &text("a-pipe/bad"), &text("b-device")]).code,
        EXIT_USAGE
    );
}

#[test]
fn a_run_slower_by_a_tenth_is_reported_and_fails_a_limit_of_5_percent() {
    let (_base, a, b) = two(&USUAL, &SLOWER);

    let plain = headspace(&["compare", &a, &b]);
    let judged = headspace(&["compare", &a, &b, "--fail-if-slower", "5%"]);
    let generous = headspace(&["compare", &a, &b, "--fail-if-slower", "20%"]);

    assert_eq!((plain.code, plain.err.as_str()), (EXIT_OK, ""));
    assert!(
        plain.out.contains("\nB is slower than A: its step is"),
        "{}",
        plain.out
    );
    assert_eq!(judged.code, EXIT_SLOWER, "{}", judged.out);
    assert!(
        judged.out.contains("\nFAILED: B is at least"),
        "{}",
        judged.out
    );
    assert_eq!(generous.code, EXIT_OK, "{}", generous.out);
    assert!(
        generous.out.contains("\nPassed: B is at most"),
        "{}",
        generous.out
    );
}

#[test]
fn a_limit_inside_the_interval_is_reported_as_inconclusive() {
    let (_base, a, b) = two(&USUAL, &SLOWER);

    let said = headspace(&["compare", &a, &b, "--fail-if-slower", "10"]);

    assert_eq!(said.code, EXIT_OK);
    assert!(
        said.out
            .contains("\nInconclusive: the limit of 10 % lies inside"),
        "{}",
        said.out
    );
}

#[test]
fn the_same_configuration_shows_no_difference() {
    let (_base, a, b) = two(&USUAL, &USUAL);

    let said = headspace(&["compare", &a, &b, "--fail-if-slower=5%"]);

    assert_eq!(said.code, EXIT_OK);
    assert!(
        said.out.contains("No measurable difference"),
        "{}",
        said.out
    );
    assert!(said.out.contains("\nPassed: "), "{}", said.out);
}

#[test]
fn the_text_fits_80_columns_and_has_a_row_for_each_part_and_stage() {
    let (_base, a, b) = two(&USUAL, &SLOWER);

    let said = headspace(&["compare", &a, &b, "--fail-if-slower", "5%"]);

    let rows: Vec<&str> = said.out.lines().collect();
    assert!(
        rows.iter().all(|row| row.chars().count() <= 80),
        "{}",
        said.out
    );
    for row in [
        "step  ",
        "  waiting for data ",
        "  compute ",
        "  p95 ",
        "  decode ",
    ] {
        assert!(
            rows.iter().any(|line| line.starts_with(row)),
            "{row}\n{}",
            said.out
        );
    }
    assert!(!said.out.contains("changed"), "{}", said.out);
}

#[test]
fn batches_of_another_size_are_compared_by_the_sample() {
    let bigger = Written {
        wait_ms: 6.0,
        compute_ms: 14.0,
        batch_size: 64,
        ..USUAL
    };
    let (_base, a, b) = two(&USUAL, &bigger);

    let said = headspace(&["compare", &a, &b, "--fail-if-slower", "5%"]);

    assert_eq!(said.code, EXIT_OK, "{}", said.out);
    assert!(said.out.contains("\ntime per sample "), "{}", said.out);
    assert!(said.out.contains("--batch=32"), "{}", said.out);
    assert!(said.out.contains("--batch=64"), "{}", said.out);
}

#[test]
fn json_has_the_numbers_that_the_text_shows() {
    let (_base, a, b) = two(&USUAL, &SLOWER);

    let said = headspace(&["compare", "--json", &a, &b, "--fail-if-slower", "5%"]);

    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said.code, EXIT_SLOWER);
    assert_eq!(found["schema"], "headspace-compare/1");
    assert_eq!(
        (&found["verdict"], &found["gate"]),
        (&"slower".into(), &"failed".into())
    );
    let pct = &found["step_ms"]["difference_pct"];
    assert!((pct["value"].as_f64().unwrap() - 10.0).abs() < 1.0, "{pct}");
    assert_eq!(found["stages"][0]["name"], "decode");
    assert!(found["floor_ms"]["a"].is_null());
    assert_eq!(found["a"]["runs"][0]["run_id"], "a");
}

#[test]
fn a_folder_of_runs_is_a_side_and_narrows_the_interval() {
    let base = tempfile::tempdir().unwrap();
    for (side, run) in [("a", USUAL), ("b", SLOWER)] {
        for seed in 0..4 {
            let folder = base.path().join(side).join(format!("run-{seed}"));
            write(
                &folder,
                0,
                &Written {
                    seed: seed + 10,
                    ..run
                },
            );
        }
    }
    let path = |name: &str| base.path().join(name).to_str().unwrap().to_owned();
    let width = |a: &str, b: &str| {
        let said = headspace(&["compare", "--json", &path(a), &path(b)]);
        let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let pct = found["step_ms"]["difference_pct"].clone();
        let runs = found["a"]["runs"].as_array().unwrap().len();
        (
            runs,
            pct["high"].as_f64().unwrap() - pct["low"].as_f64().unwrap(),
        )
    };

    let (one, wide) = width("a/run-0", "b/run-0");
    let (four, narrow) = width("a", "b");

    assert_eq!((one, four), (1, 4));
    assert!(narrow < wide / 2.0, "{narrow} {wide}");
    assert!(
        headspace(&["compare", &path("a"), &path("b")])
            .out
            .contains("4 runs")
    );
}

#[test]
fn runs_that_cannot_be_compared_are_reported_with_code_2() {
    let (base, a, b) = two(&USUAL, &USUAL);
    let short = base.path().join("short");
    write(&short, 0, &Written { ticks: 0, ..USUAL });
    let empty = base.path().join("empty");
    fs::create_dir(&empty).unwrap();

    for (path, said) in [
        (base.path().join("nowhere"), "cannot read"),
        (empty, "no run in"),
        (short, "no step in steady state"),
    ] {
        let got = headspace(&["compare", &a, path.to_str().unwrap()]);
        assert_eq!((got.code, got.out.as_str()), (EXIT_USAGE, ""), "{said}");
        assert!(got.err.contains(said), "{}", got.err);
    }
    let wrong = headspace(&["compare", &a, &b, "--fail-if-slower", "much"]);
    assert_eq!(wrong.code, EXIT_USAGE);
    assert!(wrong.err.contains("such as `5%`"), "{}", wrong.err);
}

#[test]
fn a_run_too_short_for_an_interval_is_shown_but_never_judged() {
    let (_base, a, b) = two(&USUAL, &Written { ticks: 3, ..SLOWER });

    let plain = headspace(&["compare", &a, &b]);
    let judged = headspace(&["compare", &a, &b, "--fail-if-slower", "5%"]);

    assert_eq!(plain.code, EXIT_OK);
    assert!(plain.out.contains("Inconclusive"), "{}", plain.out);
    assert_eq!(judged.code, EXIT_USAGE);
    assert!(
        judged.err.contains("too short for a 95 % interval"),
        "{}",
        judged.err
    );
}

/// A pipe whose reader has closed it.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_does_not_hide_that_b_is_slower() {
    let (_base, a, b) = two(&USUAL, &SLOWER);

    let (code, err) = run_into(&mut Closed, &["compare", &a, &b, "--fail-if-slower", "5%"]);

    assert_eq!((code, err.as_str()), (EXIT_SLOWER, ""));
}

#[test]
fn a_killed_run_with_damaged_lines_is_compared_as_far_as_it_was_recorded() {
    let killed = Written {
        state: RunState::Running,
        ..USUAL
    };
    let (base, a, b) = two(&USUAL, &killed);
    let file = rank_path(&base.path().join("b"), 0);
    let mut bytes = fs::read(&file).unwrap();
    bytes.extend_from_slice(b"{\"schema\":\"headspace/1\",\"time");
    fs::write(&file, bytes).unwrap();

    let said = headspace(&["compare", &a, &b, "--fail-if-slower", "5%"]);

    assert_eq!(said.code, EXIT_OK);
    assert!(
        said.err.contains("1 line skipped: 1 cut off"),
        "{}",
        said.err
    );
    assert!(said.out.contains("`b` has no recorded end"), "{}", said.out);
}

#[test]
fn a_run_that_an_exception_ended_is_compared_and_named() {
    let crashed = Written {
        crashed: true,
        ..USUAL
    };
    let (_base, a, b) = two(&USUAL, &crashed);

    let said = headspace(&["compare", &a, &b]);

    assert_eq!(said.code, EXIT_OK);
    let words: Vec<&str> = said.out.split_whitespace().collect();
    let note = "note: B: `b` was ended by an uncaught ValueError.";
    assert!(words.join(" ").contains(note), "{}", said.out);
}

/// Eight synchronous ranks. Rank 5 waits 4 ms longer for its data, and the other ranks wait for rank 5.
fn ranks_in_step(folder: &Path) {
    for rank in 0..8 {
        let wait_ms = if rank == 5 { 6.0 } else { 2.0 };
        let run = Written {
            wait_ms,
            compute_ms: 12.0 - wait_ms,
            world_size: 8,
            seed: rank.into(),
            ..USUAL
        };
        write(folder, rank, &run);
    }
}

#[test]
fn several_ranks_are_read_together_and_the_slowest_is_named_with_its_cause() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("run");
    ranks_in_step(&folder);
    fs::remove_file(rank_path(&folder, 2)).unwrap();

    let text = headspace(&["report", folder.to_str().unwrap()]);
    let json = headspace(&["report", "--json", folder.to_str().unwrap()]);

    assert_eq!(text.code, EXIT_OK);
    assert!(
        text.out
            .contains("\nranks      7 of 8 read; mean step of all ranks 12."),
        "{}",
        text.out
    );
    let slowest = "\nslowest    Rank 5, because of its data. It waits 4.0 ms longer";
    assert!(text.out.contains(slowest), "{}", text.out);
    assert!(
        text.out.contains("\nmissing    No summary of rank 2."),
        "{}",
        text.out
    );
    let record: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let ranks = &record["ranks"];
    assert_eq!(
        (&ranks["slowest"], &ranks["cause"]),
        (&5.into(), &"data".into())
    );
    assert_eq!(
        ranks["step"]["count"],
        7 * (60 * 50 - 20),
        "as many as their summaries say"
    );
    assert_eq!(ranks["each"].as_array().unwrap().len(), 7);
    assert_eq!(record["steps"], 3000, "the summary itself stays as it is");
}

#[test]
fn a_run_of_one_process_has_no_ranks() {
    let (_base, a, _) = two(&USUAL, &USUAL);

    let said = headspace(&["report", "--json", &a]);

    let record: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(record.get("ranks").is_none());
}

#[test]
fn ranks_count_together_in_a_comparison_but_not_as_repeated_runs() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("run");
    ranks_in_step(&folder);
    let path = folder.to_str().unwrap();

    let said = headspace(&["compare", path, path]);

    assert_eq!(said.code, EXIT_OK);
    assert!(said.out.contains("8 ranks, 23840 steps"), "{}", said.out);
    assert!(
        said.out.contains("use several runs per side"),
        "{}",
        said.out
    );
}
