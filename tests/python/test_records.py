"""The records of a run follow the schema and the definitions, and reports can read them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from running import Programs, Record, Runs, of_kind, read_records, steps_in_ticks, wait_until

import headspace

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/headspace-1.schema.json").read_text())


def slowly(count: int, load_s: float = 0.0, first_s: float = 0.0) -> Iterator[int]:
    time.sleep(first_s)
    for i in range(count):
        time.sleep(load_s)
        yield i


class Slow:
    def __init__(self, count: int, load_s: float = 0.0, first_s: float = 0.0) -> None:
        self.args = (count, load_s, first_s)

    def __iter__(self) -> Iterator[int]:
        return slowly(*self.args)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """The records of a run with every kind of record."""
    base = tmp_path_factory.mktemp("everything")
    with headspace.start(to=headspace.JsonLines(base), interval=0.01, quiet=True) as session:
        for _ in headspace.wrap(Slow(30, 0.001), name="everything", batch_size=2):
            pass
        for _ in headspace.wrap(
            itertools.count(), mode="probe", probe_steps=600, stop_after_probe=True
        ):
            pass
        for batch in headspace.wrap(
            [bytearray(9) for _ in range(9)], mode="replay", num_caches=2, return_caches_after=3
        ):
            batch[0] = 7
        for _ in range(5):
            headspace.step(samples=3)
        folder = Path(session.folder)
    return read_records(folder / "rank0.jsonl")


def test_every_record_follows_the_schema(everything: list[Record]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)

    for record in everything:
        errors = [error.message for error in validator.iter_errors(record)]
        assert errors == [], record["kind"]
    assert {record["kind"] for record in everything} == {
        *("run", "tick", "epoch", "probe", "notice", "summary")
    }


def test_every_record_names_its_run_rank_and_process(everything: list[Record]) -> None:
    assert {record["schema"] for record in everything} == {"headspace/1.1"}
    assert {record["rank"] for record in everything} == {0}
    assert {record["pid"] for record in everything} == {os.getpid()}
    assert len({record["run_id"] for record in everything}) == 1
    times = [record["time_unix_nano"] for record in everything]
    assert times == sorted(times)
    assert abs(times[0] / 1e9 - time.time()) < 3600, "nanoseconds since 1970"


def test_the_run_record_is_first_and_the_final_summary_is_last(everything: list[Record]) -> None:
    kinds = [record["kind"] for record in everything]

    assert kinds.index("run") == 0
    # It is written again when another loop becomes the main loop.
    assert of_kind(everything, "run")[-1]["loader"]["name"] == everything[-1]["loop"]
    assert (kinds[-1], everything[-1]["state"]) == ("summary", "finished")
    ticks = of_kind(everything, "tick")
    assert [tick["tick"] for tick in ticks] == list(range(len(ticks)))
    assert all(a["at_s"] < b["at_s"] for a, b in itertools.pairwise(ticks))


def test_the_run_record_describes_the_program_and_the_machine(everything: list[Record]) -> None:
    run = everything[0]

    assert run["versions"]["headspace"] == headspace.__version__
    assert run["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert run["host"]["cores_affinity"] == len(os.sched_getaffinity(0))
    assert run["argv"] == sys.argv
    assert run["loader"]["name"] == "everything"
    assert run["loader"]["batch_size"] == 2
    assert [source["name"] for source in run["sources"]] == [
        *("process", "host", "frequency", "pressure", "cgroup", "tree", "tree_memory"),
        *("disk", "network_mounts", "network"),
        *("threads", "perf", "perf_hardware", "gpu", "gpu_gpm", "gpu_processes", "gil", "gc"),
        "stacks",
    ]
    for source in run["sources"]:
        assert source["reads"]
        assert (source["state"] == "off") == ("reason" in source), source
    on = {source["name"] for source in run["sources"] if source["state"] == "on"}
    assert on >= {"process", "host", "tree", "threads", "gc"}


def test_readings_describe_this_process(everything: list[Record]) -> None:
    last = of_kind(everything, "tick")[-1]["readings"]

    assert last["process"]["process.thread.count"] >= 4
    assert last["process"]["process.memory.usage"] > 1_000_000
    assert last["host"]["headspace.host.cpu.usable"] > 0
    assert last["agent"]["headspace.agent.cpu.time"] > 0


def test_summaries_contain_no_number_that_was_not_measured(everything: list[Record]) -> None:
    first, last = (of_kind(everything, "summary")[i] for i in (0, -1))

    assert first["state"] == "running"
    for name in ("sm_utilization_pct", "data_readiness_pct", "bottleneck_stage"):
        assert last[name] is None
    assert first["floor_step_ms"] is None
    assert last["loop"] is not None
    # The contents of a batch are known from the second batch on, and absent before.
    assert set(first) == set(last) - {"delivered_batch"}, "absent values are null"


def sums(records: list[Record], loop: str, part: str) -> tuple[int, float]:
    entries = [
        entry[part]
        for tick in of_kind(records, "tick")
        for entry in tick["loops"]
        if entry["name"] == loop
    ]
    return sum(entry["count"] for entry in entries), sum(entry["sum_ms"] for entry in entries)


def test_wait_and_compute_add_up_to_the_step_and_steps_to_the_elapsed_time(runs: Runs) -> None:
    load_s, compute_s, first_s, between_s = 0.004, 0.003, 0.06, 0.05
    began = time.perf_counter()
    with headspace.start(interval=0.02):
        loader = headspace.wrap(Slow(12, load_s, first_s), name="sums", batch_size=4)
        for _ in range(3):
            for _ in loader:
                time.sleep(compute_s)
            time.sleep(between_s)
    took_ms = 1e3 * (time.perf_counter() - began)

    records = runs.records()
    (waits, wait), (computes, compute), (steps, step) = (
        sums(records, "sums", part) for part in ("wait", "compute", "step")
    )
    assert waits == computes == steps == 3 * 11, "the first batch of an epoch ends no step"
    assert step == pytest.approx(wait + compute, abs=0.01)
    # A sleep is never shorter than requested, but may be longer. So only lower bounds are checked.
    assert wait >= 33 * load_s * 1e3
    assert compute >= 33 * compute_s * 1e3

    epochs = of_kind(records, "epoch")
    assert [(epoch["epoch"], epoch["steps"], epoch["samples"]) for epoch in epochs] == [
        *((0, 12, 48), (1, 12, 48), (2, 12, 48))
    ]
    assert all(epoch["ttfb_s"] >= first_s + load_s for epoch in epochs)
    assert "boundary_s" not in epochs[0]
    for epoch in epochs[1:]:
        assert epoch["boundary_s"] >= compute_s + between_s + epoch["ttfb_s"]
    outside = epochs[0]["ttfb_s"] + sum(epoch["boundary_s"] for epoch in epochs[1:])
    assert step + 1e3 * outside <= took_ms
    assert steps_in_ticks(records) == 36
    summary = of_kind(records, "summary")[-1]
    assert (summary["steps"], summary["epochs"]) == (36, 3)
    assert summary["ttfb_s"] == epochs[0]["ttfb_s"]
    assert summary["step_time_ms"] == pytest.approx(step / 33, rel=0.01)


def test_step_ranges_of_the_ticks_join_without_gap(runs: Runs) -> None:
    with headspace.start(interval=0.005):
        for _ in headspace.wrap(Slow(60, 0.001), name="joined"):
            pass

    at = 0
    for tick in runs.kind("tick"):
        for entry in tick["loops"]:
            assert entry["first_step"] == at
            at += entry["steps"]
    assert at == 60


def test_batches_are_not_counted_while_paused_and_no_step_spans_the_pause(runs: Runs) -> None:
    with headspace.start() as session:
        wrapped = headspace.wrap(iter(range(100)), name="paused")
        got = list(itertools.islice(wrapped, 5))
        session.pause()
        got += itertools.islice(wrapped, 7)
        session.resume()
        got += itertools.islice(wrapped, 6)
        del wrapped

    assert got == list(range(18))
    records = runs.records()
    assert steps_in_ticks(records, "paused") == 11
    assert sums(records, "paused", "step")[0] == 4 + 5
    assert of_kind(records, "epoch")[0]["steps"] == 11


def test_a_paused_session_writes_nothing_until_it_is_resumed(runs: Runs) -> None:
    with headspace.start(interval=0.001) as session:
        session.flush()
        wait_until(lambda: len(runs.kind("tick")) > 3, "ticks")
        session.pause()
        session.flush()
        before = len(runs.kind("tick"))
        time.sleep(0.05)  # No tick may be written in these fifty intervals.
        assert len(runs.kind("tick")) == before
        session.resume()
        wait_until(lambda: len(runs.kind("tick")) > before, "ticks again")


def test_flush_writes_all_pending_records(runs: Runs) -> None:
    with headspace.start(interval=3600) as session:
        iterator = iter(headspace.wrap(range(100), name="flushed"))
        for _ in range(7):
            next(iterator)
        assert session.flush(30)

        assert steps_in_ticks(runs.records(), "flushed") == 7
        assert runs.summary()["state"] == "running"


def test_steps_of_a_loop_without_a_loader_are_counted(runs: Runs) -> None:
    with headspace.start() as session:
        for _ in range(31):
            headspace.step(samples=8)
        report = session.report().to_dict()

    assert report["steps"] == 30, "the first call begins the first step"
    assert report["wait_ms"] is None, "waiting is not seen this way"
    assert report["headspace_upper_bound_pct"] is None
    assert report["throughput_samples_per_s"] > 0
    assert steps_in_ticks(runs.records(), "steps") == 30


def test_a_session_starts_at_the_first_batch_and_ends_at_stop(runs: Runs) -> None:
    assert headspace.report() is None
    assert headspace.stop() is None
    for _ in headspace.wrap([1, 2]):
        assert headspace.report() is not None
    (folder,) = runs.folders
    assert headspace.stop() is not None
    assert headspace.stop() is None

    list(headspace.wrap([1, 2]))
    assert len(runs.folders) == 2
    assert folder in runs.folders


def test_a_loader_of_an_earlier_run_with_the_same_name_affects_no_later_run(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    images = {"image": numpy.zeros((8, 3, 2, 2)), "label": numpy.zeros(8)}
    for number, batches in enumerate(([1, 2, 3], [images] * 60)):
        with headspace.start(to=headspace.JsonLines(tmp_path / str(number)), quiet=True):
            for _ in headspace.wrap(batches, name="of either run"):
                time.sleep(0.001)

    (folder,) = (tmp_path / "1").iterdir()
    records = read_records(folder / "rank0.jsonl")
    (epoch,) = of_kind(records, "epoch")
    loaders = [run["loader"] for run in of_kind(records, "run") if run.get("loader")]
    assert {(loader["name"], loader["batches"]) for loader in loaders} == {("of either run", 60)}
    assert epoch["samples"] == 8 * 60


def test_a_second_session_is_refused_while_one_is_active(runs: Runs) -> None:
    with headspace.start() as session:
        with pytest.raises(RuntimeError, match="already running"):
            headspace.start()
        assert Path(session.folder) == runs.folder
    with headspace.start() as session:
        assert session.stop() is not None
        assert session.stop() is None


def test_start_refuses_invalid_arguments_and_uses_the_given_run_id(
    runs: Runs, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="`interval`"):
        headspace.start(interval=0.0001)
    with pytest.raises(ValueError, match="`interval`"):
        headspace.start(interval=float("nan"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot create"):
        headspace.start(to=headspace.JsonLines(tmp_path / "file" / "below"))
    assert headspace.report() is None

    with headspace.start(to=headspace.JsonLines(tmp_path / "elsewhere"), run_id="mine"):
        pass
    assert read_records(tmp_path / "elsewhere/mine/rank0.jsonl")[0]["run_id"] == "mine"


def test_fifty_sessions_leave_no_thread_and_no_descriptor_behind(runs: Runs) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def one() -> None:
        with headspace.start():
            list(headspace.wrap([1, 2]))

    one()
    before = held()
    for _ in range(50):
        one()

    wait_until(lambda: held()[0] <= before[0] and held()[1] <= before[1] + 1, "all is given back")


def test_a_report_prints_and_converts_and_shows_in_a_notebook(runs: Runs) -> None:
    with headspace.start():
        for _ in headspace.wrap(Slow(40, 0.001), name="<b>reported</b>", batch_size=2):
            pass
        report = headspace.report()
        assert report is not None

    text, numbers, html = str(report), report.to_dict(), report._repr_html_()
    assert text.startswith("headspace  ")
    assert "waiting for data" in text
    assert "upper bound" in text or "at most" in text or "up to" in text
    assert repr(report) == text
    assert isinstance(report, headspace.Report)
    assert numbers["steps"] == 40
    assert 0 < numbers["headspace_upper_bound_pct"] <= 100
    assert numbers["headspace_pct"] is None
    assert json.loads(json.dumps(numbers)) == numbers
    assert 'class="headspace-report"' in html
    assert "Waiting for data" in html
    assert "<b>reported" not in html


def test_the_verdict_is_printed_at_exit(program: Programs) -> None:
    run = program("loop.py", "--steps", 40, "--load-ms", 1, "--batch-size", 2)

    assert (run.exit_code, run.stdout) == (0, "steps 40\n")
    assert run.stderr.startswith("headspace  ")
    assert "waiting for data" in run.stderr
    assert run.folder.name in run.stderr
    assert not run.stderr.endswith("\n\n")
    assert run.summary()["state"] == "finished"
    assert run.summary()["steps"] == 40


def test_quiet_prints_nothing(program: Programs) -> None:
    run = program("loop.py", env={"HEADSPACE_QUIET": "1", "HEADSPACE_INTERVAL": "nonsense"})

    assert (run.exit_code, run.stdout, run.stderr) == (0, "steps 20\n", "")
    assert run.summary()["steps"] == 20


def test_headspace_0_records_nothing(program: Programs) -> None:
    run = program("loop.py", env={"HEADSPACE": "0"})

    assert (run.exit_code, run.stdout, run.stderr) == (0, "steps 20\n", "")
    assert run.folders == []


def test_mode_and_interval_come_from_the_environment(program: Programs) -> None:
    run = program(
        "loop.py",
        *("--steps", 30, "--epochs", 3, "--compute-ms", 1),
        env={"HEADSPACE_MODE": "replay", "HEADSPACE_INTERVAL": "5ms"},
    )

    assert run.stdout == "steps 90\n"
    settings = run.kind("run")[0]["settings"]
    assert (settings["mode"], settings["interval"]) == ("replay", "0.005s")
    assert run.kind("run")[0]["mode"] == "replay"
    assert len(run.kind("tick")) > 3


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HEADSPACE_INTERVAL", "often", "1s is used"),
        ("HEADSPACE_INTERVAL", "0.1ms", "1s is used"),
        ("HEADSPACE_INTERVAL", "nan", "1s is used"),
        ("HEADSPACE_INTERVAL", "-1s", "1s is used"),
        ("HEADSPACE_MODE", "fast", "`measure` is used"),
        ("HEADSPACE_QUIET", "maybe", "not quiet"),
        ("HEADSPACE", "perhaps", "stays on"),
        ("RANK", "first", "it is ignored"),
        ("WORLD_SIZE", "-3", "it is ignored"),
    ],
)
def test_an_invalid_value_is_reported_once_and_the_default_is_used(
    program: Programs, name: str, value: str, said: str
) -> None:
    run = program("loop.py", "--epochs", 3, env={name: value})

    assert (run.exit_code, run.stdout) == (0, "steps 60\n")
    assert run.stderr.count(f"`{name}`") == 1
    assert run.stderr.count(f"`{value}`") == 1
    assert said in run.stderr
    (notice,) = run.kind("notice")
    assert notice["code"] == "setting_refused"
    assert f"`{value}`" in notice["text"]
    settings = run.kind("run")[0]["settings"]
    assert (settings["mode"], settings["interval"]) == ("measure", "1s")


LAUNCHERS: dict[str, dict[str, str]] = {
    "torchrun": {"TORCHELASTIC_RUN_ID": "job 7/a"},
    "torchrun without id": {"TORCHELASTIC_RUN_ID": "none"},
    "by hand": {},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_share_a_folder_and_only_the_first_prints(
    program: Programs, tmp_path: Path, launcher: str
) -> None:
    shared = tmp_path / "shared"
    started = [
        program.start(
            "loop.py",
            runs=shared,
            env={"RANK": str(rank), "WORLD_SIZE": "2", **LAUNCHERS[launcher]},
        )
        for rank in range(2)
    ]
    first, second = (run.finish() for run in started)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stderr.startswith("headspace  ")
    assert second.stderr == ""
    assert sorted(path.name for path in first.folder.iterdir()) == ["rank0.jsonl", "rank1.jsonl"]
    for rank in range(2):
        records = first.records(rank)
        assert {record["rank"] for record in records} == {rank}
        assert {record["run_id"] for record in records} == {first.folder.name}
        assert records[0]["world_size"] == 2
        assert first.summary(rank)["steps"] == 20


def test_ranks_are_read_from_slurm_variables(program: Programs) -> None:
    env = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "991"}
    run = program("loop.py", env=env)

    assert run.stderr == ""
    assert run.folder.name.endswith("-991")
    assert run.records(3)[0]["world_size"] == 8


def command(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headspace", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def finished(program: Programs) -> Any:
    return program("loop.py", "--steps", 40, "--load-ms", 1)


def test_the_command_reports_a_run(finished: Any) -> None:
    text, as_json = command("report", finished.folder), command("report", "--json", finished.folder)

    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout.splitlines()[:2] == finished.stderr.splitlines()[:2]
    summary = json.loads(as_json.stdout)
    assert summary["steps"] == 40
    assert summary["kind"] == "summary"


def test_the_command_skips_and_counts_lines_that_are_no_records(finished: Any) -> None:
    path = finished.folder / "rank0.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    before = json.loads(command("report", "--json", finished.folder).stdout)
    path.write_bytes(
        b"".join([*lines[:1], b"not json\n", b"\xff\xfe\n", b'{"schema":"other/1"}\n', *lines[1:]])
        + lines[0][:40]
    )

    after = command("report", "--json", finished.folder)

    assert after.returncode == 0
    assert json.loads(after.stdout) == before
    assert "headspace:" in after.stderr


def test_the_command_names_a_path_that_it_cannot_read(tmp_path: Path, finished: Any) -> None:
    missing = command("report", tmp_path / "missing")
    nonsense = command("report", "--nonsense")

    assert missing.returncode == 1
    assert "missing" in missing.stderr
    assert nonsense.returncode == 2
    assert command("--version").stdout.strip() == f"headspace {headspace.__version__}"


def test_start_accepts_a_path_and_an_interval_as_text(tmp_path: Path) -> None:
    with headspace.start(to=tmp_path / "runs", interval="250ms", quiet=True) as session:
        pass

    (run,) = of_kind(read_records(Path(session.folder) / "rank0.jsonl"), "run")
    assert Path(session.folder).parent == tmp_path / "runs"
    assert run["settings"]["interval"] == "0.25s"


@pytest.mark.parametrize("interval", ["soon", 0, -1.0, float("nan")])
def test_an_invalid_interval_raises_an_error_that_names_it(tmp_path: Path, interval: Any) -> None:
    with pytest.raises(ValueError, match="interval"):
        headspace.start(to=tmp_path, interval=interval)


@pytest.mark.parametrize("option", ["batch_size", "probe_steps"])
@pytest.mark.parametrize("value", [0, -1, "a", 1.5])
def test_an_invalid_count_raises_an_error_that_names_it(option: str, value: Any) -> None:
    options: Any = {option: value}
    with pytest.raises(ValueError, match=option):
        headspace.wrap([1], **options)
