//! Tests `headspace report` on folders of runs.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use headspace::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};
use headspace_agent::model::record::{
    EndCause, EndRecord, NoticeRecord, ProbeRecord, RunState, SCHEMA, Severity, SummaryRecord,
};
use headspace_agent::model::{Record, RecordBody};
use headspace_collectors::catalog::Settings;
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::{part_path, rank_path};
use tempfile::TempDir;

fn line(rank: u32, time_unix_nano: u64, body: RecordBody) -> Vec<u8> {
    let mut out = Vec::new();
    let record = Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano,
        run_id: "a-run".to_owned(),
        rank,
        pid: 1,
        body,
    };
    encode(&record, &mut out).unwrap();
    out
}

fn summary(steps: u64) -> SummaryRecord {
    SummaryRecord {
        state: RunState::Finished,
        mode: Some(headspace_agent::model::Mode::Measure),
        loop_name: Some("loader".to_owned()),
        steps,
        steady_steps: steps.saturating_sub(20),
        steady_s: 19.2,
        steady_step_mean_ms: Some(30.0),
        wait_ms: Some(20.1),
        wait_pct: Some(67.0),
        compute_ms: Some(9.9),
        headspace_upper_bound_pct: Some(67.0),
        ..SummaryRecord::default()
    }
}

fn notice() -> RecordBody {
    RecordBody::Notice(NoticeRecord {
        code: "x".to_owned(),
        severity: Severity::Info,
        text: "x".to_owned(),
    })
}

/// A run's folder in `base`, with one rank.
fn write_run(base: &Path, name: &str, rank: u32, summary: SummaryRecord) {
    let folder = base.join(name);
    fs::create_dir_all(&folder).unwrap();
    let body = RecordBody::Summary(Box::new(summary));
    fs::write(rank_path(&folder, rank), line(rank, 1_000_000_000, body)).unwrap();
}

struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs the command in this process, with `base` as the folder of runs.
fn headspace(base: &Path, args: &[&str]) -> Said {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = headspace::run(
        std::iter::once("headspace")
            .chain(args.iter().copied())
            .map(Into::into),
        &mut Context {
            out: &mut out,
            err: &mut err,
            runs: base.to_path_buf(),
            settings: Settings::default(),
            more_sources: &mut Vec::new,
            inject: None,
        },
    );
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said {
        code,
        out: text(out),
        err: text(err),
    }
}

fn base() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn path_in(base: &TempDir, name: &str) -> String {
    base.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn without_a_path_the_newest_run_is_reported() {
    let base = base();
    write_run(base.path(), "old", 0, summary(1));
    write_run(base.path(), "new", 0, summary(640));
    let old = fs::File::options()
        .append(true)
        .open(base.path().join("old/rank0.jsonl"))
        .unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();

    let said = headspace(base.path(), &["report"]);

    assert_eq!((said.code, said.err.as_str()), (EXIT_OK, ""));
    let first = said.out.lines().next().unwrap();
    assert!(
        first.starts_with("headspace  640 steps, 620 in steady state"),
        "{first}"
    );
    assert!(said.out.contains("/new\n"), "{}", said.out);
    assert!(
        said.out
            .contains("less waiting saves at most 67.0 % of the step"),
        "{}",
        said.out
    );
}

#[test]
fn json_of_one_run_is_its_summary_with_null_for_missing_values() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));

    let said = headspace(base.path(), &["report", "--json", &path_in(&base, "run")]);

    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said.code, EXIT_OK);
    assert_eq!(value["schema"], "headspace/1.1");
    assert_eq!(
        (&value["run_id"], &value["rank"]),
        (&"a-run".into(), &0.into())
    );
    assert_eq!(
        (&value["steps"], &value["wait_ms"]),
        (&640.into(), &20.1.into())
    );
    let fields = value.as_object().unwrap();
    for absent in [
        "floor_step_ms",
        "headspace_pct",
        "bottleneck_stage",
        "data_readiness_pct",
    ] {
        assert!(fields[absent].is_null(), "{absent}");
    }
}

#[test]
fn json_of_several_runs_is_a_list_in_the_order_given() {
    let base = base();
    write_run(base.path(), "a", 0, summary(1));
    write_run(base.path(), "b", 0, summary(2));

    let (a, b) = (path_in(&base, "a"), path_in(&base, "b"));
    let said = headspace(base.path(), &["report", &b, &a, "--json"]);

    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let steps: Vec<_> = value
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["steps"])
        .collect();
    assert_eq!(steps, [2, 1]);
}

#[test]
fn the_shape_of_json_depends_on_the_requested_runs_and_not_on_the_readable_ones() {
    let base = base();
    write_run(base.path(), "runs/a", 0, summary(640));
    let (a, missing) = (path_in(&base, "runs/a"), path_in(&base, "missing"));
    let runs = path_in(&base, "runs");
    let json = |args: &[&str]| {
        let said = headspace(base.path(), &[&["report", "--json"], args].concat());
        let value: Option<serde_json::Value> =
            (!said.out.is_empty()).then(|| serde_json::from_str(&said.out).unwrap());
        (said.code, value)
    };
    let list = |args: &[&str]| {
        let (code, value) = json(args);
        (code, value.unwrap().as_array().map(Vec::len))
    };

    assert_eq!(list(&[&a, &missing]), (EXIT_UNREADABLE, Some(1)));
    assert_eq!(list(&[&missing, &missing]), (EXIT_UNREADABLE, Some(0)));
    assert_eq!(json(&[&missing]), (EXIT_UNREADABLE, None));
    assert!(json(&[&runs]).1.unwrap().is_object());

    fs::create_dir(base.path().join("runs/begun")).unwrap();
    fs::write(base.path().join("runs/begun/rank0.jsonl"), "").unwrap();
    assert_eq!(list(&[&runs]), (EXIT_OK, Some(1)));
}

#[test]
fn the_verdict_has_no_text_of_the_probe_of_another_loop() {
    let reason = "unsettled";
    let verdict_with_probe_of = |loop_name: &str| {
        let base = base();
        let probed = SummaryRecord {
            mode: Some(headspace_agent::model::Mode::Probe),
            ..summary(640)
        };
        write_run(base.path(), "run", 0, probed);
        let probe = ProbeRecord {
            loop_name: loop_name.to_owned(),
            reason: Some(reason.to_owned()),
            ..ProbeRecord::default()
        };
        let file = fs::File::options()
            .append(true)
            .open(rank_path(&base.path().join("run"), 0));
        let probe = line(0, 1_000_000_000, RecordBody::Probe(probe));
        file.unwrap().write_all(&probe).unwrap();
        headspace(base.path(), &["report"]).out
    };

    let verdict = verdict_with_probe_of("loader");
    assert!(verdict.contains(reason), "{verdict}");
    let verdict = verdict_with_probe_of("check");
    assert!(!verdict.contains(reason), "{verdict}");
}

#[test]
fn a_folder_of_runs_is_a_table_of_them() {
    let base = base();
    let probed = SummaryRecord {
        mode: Some(headspace_agent::model::Mode::Probe),
        floor_step_ms: Some(10.0),
        headspace_pct: Some(66.7),
        headspace_ci_pct: Some((65.6, 67.8)),
        throughput_samples_per_s: Some(1066.7),
        ..summary(1000)
    };
    let killed = SummaryRecord {
        state: RunState::Running,
        ..summary(30)
    };
    for (i, (name, summary)) in [("a", summary(640)), ("b", probed), ("c", killed)]
        .into_iter()
        .enumerate()
    {
        write_run(base.path(), name, 0, summary);
        let file = base.path().join(name).join("rank0.jsonl");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(i as u64);
        fs::File::options()
            .append(true)
            .open(file)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    let said = headspace(base.path(), &["report", base.path().to_str().unwrap()]);

    assert_eq!(
        said.out,
        "\
run  mode     steps     step  waiting    floor     headspace  samples/s
a    measure    640  30.0 ms     67 %        -             -          -
b    probe     1000  30.0 ms     67 %  10.0 ms  66.7 % ± 1.1     1066.7
c *  measure     30  30.0 ms     67 %        -             -          -
* no end recorded: killed, or still running; the numbers are of its last summary
"
    );
}

#[test]
fn a_run_that_an_exception_ended_is_marked_in_the_table_and_in_its_verdict() {
    let base = base();
    let crashed = SummaryRecord {
        ended_by: Some(EndRecord {
            cause: EndCause::Exception,
            name: "RuntimeError".to_owned(),
        }),
        ..summary(320)
    };
    write_run(base.path(), "a", 0, summary(640));
    write_run(base.path(), "b", 0, crashed);
    let runs = base.path().to_str().unwrap();

    let table = headspace(base.path(), &["report", runs]).out;
    let verdict = headspace(base.path(), &["report", &format!("{runs}/b")]).out;

    assert!(table.contains("\nb !  measure    320"), "{table}");
    assert!(
        table.ends_with("! ended by an uncaught exception: b by RuntimeError\n"),
        "{table}"
    );
    assert!(
        verdict.contains("\nended      An uncaught RuntimeError ended the run.\n"),
        "{verdict}"
    );
}

#[test]
fn several_ranks_are_one_line_each_below_the_verdict_of_the_first() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));
    write_run(base.path(), "run", 1, summary(639));
    fs::write(base.path().join("run/rank2.jsonl"), line(2, 1, notice())).unwrap();

    let said = headspace(base.path(), &["report", &path_in(&base, "run")]);

    assert!(
        said.out.ends_with(
            "
ranks      2 read.
slowest    Unknown. Fewer than two ranks reached a steady state.
steps      The ranks took between 639 and 640 steps.

rank       steps     step  waiting  compute  floor  headspace
0            640  30.0 ms  20.1 ms   9.9 ms      -          -
1            639  30.0 ms  20.1 ms   9.9 ms      -          -
2     no summary
"
        ),
        "{}",
        said.out
    );
    assert!(said.out.starts_with("headspace  640 steps"), "{}", said.out);
}

#[test]
fn a_rank_file_is_reported_alone_with_its_older_parts() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));
    write_run(base.path(), "run", 1, summary(639));
    let folder = base.path().join("run");
    fs::rename(rank_path(&folder, 1), part_path(&folder, 1, 1)).unwrap();
    fs::write(rank_path(&folder, 1), line(1, 9, notice())).unwrap();

    let said = headspace(base.path(), &["report", &path_in(&base, "run/rank1.jsonl")]);

    assert_eq!(said.code, EXIT_OK, "{}", said.err);
    assert!(said.out.starts_with("headspace  639 steps"), "{}", said.out);
    assert!(!said.out.contains("rank  "), "{}", said.out);
    let heading: String = said.out.lines().take(2).collect();
    assert!(heading.contains("/run/rank1.jsonl"), "{}", said.out);
}

#[test]
fn an_empty_file_is_reported_by_its_path_as_a_run_without_records() {
    let base = base();
    fs::create_dir(base.path().join("run")).unwrap();
    fs::write(base.path().join("run/rank0.jsonl"), "").unwrap();

    for name in ["run/rank0.jsonl", "run"] {
        let path = path_in(&base, name);
        let said = headspace(base.path(), &["report", &path]);

        assert_eq!(said.code, EXIT_UNREADABLE);
        assert_eq!(
            said.err,
            format!(
                "headspace: `{path}` holds no record: the run was killed before its first records \
                 were written, or is just starting\n"
            )
        );
    }
}

#[test]
fn a_run_without_a_summary_is_reported_with_its_number_of_records() {
    let base = base();
    fs::create_dir(base.path().join("run")).unwrap();
    let file = base.path().join("run/rank0.jsonl");
    let one = line(0, 1, notice());

    for (records, end) in [(1, "(1 record read)\n"), (2, "(2 records read)\n")] {
        fs::write(&file, one.repeat(records)).unwrap();
        let said = headspace(base.path(), &["report", &path_in(&base, "run")]);

        assert!(said.err.ends_with(end), "{}", said.err);
    }
}

#[test]
fn a_killed_run_is_reported_with_the_age_of_its_numbers_and_its_skipped_lines() {
    let base = base();
    let killed = SummaryRecord {
        state: RunState::Running,
        ..summary(640)
    };
    write_run(base.path(), "run", 0, killed);
    let path = base.path().join("run/rank0.jsonl");
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"hello\n").unwrap();
    file.write_all(&line(0, 5_000_000_000, notice())).unwrap();
    file.write_all(b"{\"schema\":\"headspace/1\",\"time")
        .unwrap();

    let said = headspace(base.path(), &["report", &path_in(&base, "run")]);

    assert_eq!(said.code, EXIT_OK);
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("computed 4.00 s before the last record of the run"),
        "{}",
        said.out
    );
    assert!(
        said.err
            .ends_with("rank0.jsonl`: 2 lines skipped: 1 cut off, 1 not records\n"),
        "{}",
        said.err
    );
}

#[test]
fn unreadable_runs_are_named_and_the_others_are_reported() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));
    fs::create_dir(base.path().join("empty")).unwrap();
    fs::write(base.path().join("notes.txt"), "nothing of ours\n").unwrap();
    fs::create_dir(base.path().join("begun")).unwrap();
    fs::write(base.path().join("begun/rank0.jsonl"), line(0, 1, notice())).unwrap();
    fs::create_dir(base.path().join("damaged")).unwrap();
    let mut damaged = line(0, 1, notice());
    damaged.extend(br#"{"schema":"headspace/1.1","kind":"summary","steps":"many"}"#);
    fs::write(base.path().join("damaged/rank0.jsonl"), damaged).unwrap();
    let run = path_in(&base, "run");

    for (name, why) in [
        ("missing", "No such file or directory"),
        ("empty", "a folder in it contains `rank0.jsonl`"),
        ("notes.txt", "no record in it"),
        ("begun", "or it has just begun (1 record read)"),
        (
            "damaged",
            "or its summary is among the skipped lines (1 record read)",
        ),
    ] {
        let said = headspace(base.path(), &["report", &path_in(&base, name), &run]);

        assert_eq!(said.code, EXIT_UNREADABLE, "{name}");
        assert!(said.err.contains(why), "{name}: {}", said.err);
        assert!(
            said.out.starts_with("headspace  640 steps"),
            "{name}: {}",
            said.out
        );
    }
}

/// Puts something that is not a regular file in place of `rank0.jsonl` of new runs. Returns their names.
fn write_other_kinds(base: &Path) -> [&'static str; 5] {
    let kinds = ["pipe", "socket", "device", "folder", "part"];
    for kind in kinds {
        fs::create_dir(base.join(kind)).unwrap();
    }
    let path = |kind| rank_path(&base.join(kind), 0);
    let part = part_path(&base.join("part"), 0, 1);
    for pipe in [path("pipe"), part] {
        let made = Command::new("mkfifo").arg(pipe).status();
        assert!(made.unwrap().success());
    }
    UnixListener::bind(path("socket")).unwrap();
    symlink("/dev/zero", path("device")).unwrap();
    fs::create_dir(path("folder")).unwrap();
    fs::write(path("part"), line(0, 1, notice())).unwrap();
    kinds
}

/// Runs the command. Panics if it takes longer than a minute.
fn headspace_in_time(base: &Path, args: &[&str]) -> Said {
    let (send, receive) = mpsc::channel();
    let (base, owned) = (base.to_path_buf(), args.join("\n"));
    thread::spawn(move || {
        let args: Vec<&str> = owned.split('\n').collect();
        let _ = send.send(headspace(&base, &args));
    });
    receive.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn what_is_not_a_regular_file_is_named_and_the_runs_beside_it_are_reported() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));
    let kinds = write_other_kinds(base.path());
    let all = base.path().to_str().unwrap();
    let refused = |kind: &str| {
        let part = if kind == "part" { ".001" } else { "" };
        format!(
            "headspace: cannot read `{all}/{kind}/rank0{part}.jsonl`: it is not a regular file\n"
        )
    };

    let said = headspace_in_time(base.path(), &["report", all]);

    assert_eq!(said.code, EXIT_OK, "{}", said.err);
    assert!(said.out.starts_with("headspace  640 steps"), "{}", said.out);
    for kind in kinds {
        assert!(said.err.contains(&refused(kind)), "{kind}: {}", said.err);
    }
    assert_eq!(said.err.lines().count(), kinds.len(), "{}", said.err);

    let output = path_in(&base, "output");
    for kind in kinds {
        let (folder, file) = (path_in(&base, kind), path_in(&base, kind) + "/rank0.jsonl");
        for args in [
            &["report", &folder][..],
            &["report", &file],
            &["report", "--html", &output, &folder],
            &["report", "--html", &output, &file],
            &["report", "--perfetto", &output, &folder],
        ] {
            let said = headspace_in_time(base.path(), args);

            assert_eq!(said.code, EXIT_UNREADABLE, "{args:?}");
            // A folder as an argument is listed, not read.
            if kind != "folder" || !args.contains(&file.as_str()) {
                assert_eq!(said.err, refused(kind), "{args:?}");
            }
        }
    }
}

#[test]
fn without_a_run_the_message_explains_how_to_make_one() {
    let base = base();

    for args in [&["report"][..], &["report", "--json"]] {
        let said = headspace(&base.path().join("nowhere"), args);

        assert_eq!((said.code, said.out.as_str()), (EXIT_UNREADABLE, ""));
        assert!(
            said.err.contains("nowhere") && said.err.contains("HEADSPACE_DIR"),
            "{}",
            said.err
        );
    }
}

#[test]
fn a_wrong_command_line_is_refused_and_help_is_not() {
    let base = base();

    for args in [&["repotr"][..], &["report", "--jsno"]] {
        let said = headspace(base.path(), args);
        assert_eq!((said.code, said.out.as_str()), (EXIT_USAGE, ""), "{args:?}");
        assert!(said.err.contains("Usage"), "{}", said.err);
    }
    for args in [&[][..], &["--help"], &["report", "--help"], &["--version"]] {
        let said = headspace(base.path(), args);
        assert_eq!((said.code, said.err.as_str()), (EXIT_OK, ""), "{args:?}");
        assert!(said.out.contains("headspace"), "{}", said.out);
    }
}

struct Closed(io::ErrorKind);

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));

    for (kind, code, said) in [
        (io::ErrorKind::BrokenPipe, EXIT_OK, ""),
        (io::ErrorKind::StorageFull, EXIT_UNREADABLE, "cannot print"),
    ] {
        let mut err = Vec::new();
        let got = headspace::run(
            ["headspace", "report"].map(Into::into).into_iter(),
            &mut Context {
                out: &mut Closed(kind),
                err: &mut err,
                runs: base.path().to_path_buf(),
                settings: Settings::default(),
                more_sources: &mut Vec::new,
                inject: None,
            },
        );
        let err = String::from_utf8(err).unwrap();
        assert_eq!(got, code);
        assert!(
            err.contains(said) && err.is_empty() == said.is_empty(),
            "{err}"
        );
    }
}

fn program(base: &TempDir, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headspace"))
        .args(args)
        .env("HEADSPACE_DIR", base.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn the_program_reads_headspace_dir_and_hands_on_the_exit_code() {
    let base = base();
    write_run(base.path(), "run", 0, summary(640));

    let reported = program(&base, &["report"]);
    assert!(reported.status.success());
    assert!(
        String::from_utf8(reported.stdout)
            .unwrap()
            .starts_with("headspace  640 steps")
    );

    assert_eq!(
        program(&base, &["report", "/nowhere"]).status.code(),
        Some(EXIT_UNREADABLE)
    );
    assert_eq!(program(&base, &["unknown"]).status.code(), Some(EXIT_USAGE));
}
