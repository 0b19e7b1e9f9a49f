"""`headspace tune` on a real training program: ends of experiments, several tuners, and killed tuners."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import handmade_records
import pytest
from running import DEADLINE_S, PROGRAMS, remove_settings, wait_until

from headspace.tune.errors import TuneError
from headspace.tune.experiment import Experiment, Kind, Outcome, Proposal, State, Trial
from headspace.tune.output.progress import Progress
from headspace.tune.plan.planner import Limits, Planner
from headspace.tune.plan.what_if import floor_ms
from headspace.tune.run.launch import MARK, Patience, Running, Setup, end_leftovers
from headspace.tune.run.live import LiveRun
from headspace.tune.run.resources import Place, places, whole_cores
from headspace.tune.run.search import Job, Search
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Space, parse_knob
from headspace.tune.store import GONE_S, Store, lives, owner

pytest_plugins = ["database_fixtures"]

PROGRAM = str(PROGRAMS / "tuned.py")
SPACE = Space((parse_knob("threads=1,2,4"), parse_knob("depth=1,2"), parse_knob("turbo=no,yes")))
KNOBS = [
    word for knob in ("threads=1,2,4", "depth=1,2", "turbo=no,yes") for word in ("--knob", knob)
]
FAST = {"HEADSPACE_INTERVAL": "50ms", "HEADSPACE_QUIET": "1"}


@pytest.fixture(autouse=True)
def fast_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_settings(monkeypatch)
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)


def run_one(folder: Path, *words: str, best: float | None = None, **patience: float) -> Outcome:
    """One experiment of the program to its end."""
    proposal = Proposal(Kind.SAMPLE, SPACE.baseline, "A test.")
    setup = Setup(Patience(**{"measure": float("inf"), **patience}), inject=False)
    running = Running(
        Experiment(0, proposal), [sys.executable, PROGRAM, *words], folder, Place(), setup
    )
    outcomes: list[Outcome] = []

    def ended() -> bool:
        outcome = running.poll(best)
        outcomes.extend([outcome] if outcome else [])
        return outcome is not None

    try:
        wait_until(ended, "the experiment's end")
    finally:
        running.end()
    return outcomes[0]


def test_a_program_that_ends_is_measured_with_an_interval_and_its_log_is_kept(tmp_path):
    outcome = run_one(tmp_path, "--threads", "2", "--steps", "200")
    assert outcome.state is State.FINISHED
    assert outcome.measured
    assert outcome.step_ms is not None
    assert outcome.step_ms >= 7.0
    assert outcome.interval_ms is not None
    assert outcome.interval_ms[0] < outcome.step_ms < outcome.interval_ms[1]
    assert outcome.exit_code == 0
    assert outcome.steps == 200
    assert Path(outcome.log).exists()
    assert list(Path(outcome.run).glob("rank0.jsonl"))


@pytest.mark.parametrize(
    ("fault", "state", "told"),
    [
        ("crash", State.CRASHED, "TrainingError: the loss is not a number"),
        ("exit", State.CRASHED, "exit code 7"),
        ("startup", State.STARTUP_FAILED, "TrainingError: there is no data"),
        ("nothing", State.STARTUP_FAILED, "no supported loader"),
    ],
)
def test_each_kind_of_failure_is_reported_with_its_traceback(tmp_path, fault, state, told):
    outcome = run_one(tmp_path, "--fault", fault)
    assert outcome.state is state
    assert told in outcome.detail
    assert not outcome.measured


def test_a_kept_traceback_has_its_last_frames_and_no_later_output(tmp_path):
    outcome = run_one(tmp_path / "e", "--fault", "crash")
    frames = [line for line in outcome.detail.splitlines() if line.startswith("  File ")]
    assert len(frames) > 1
    assert outcome.detail.splitlines()[-1] == "TrainingError: the loss is not a number"


def test_a_hanging_program_is_ended_and_its_outcome_says_whether_it_had_begun(tmp_path):
    stalled = run_one(tmp_path / "a", "--fault", "stall", stall=4.0)
    assert stalled.state is State.STALLED
    assert stalled.steps >= 60
    hung = run_one(tmp_path / "b", "--fault", "hang", startup=4.0)
    assert hung.state is State.STARTUP_FAILED
    assert hung.steps == 0
    missing = Running(
        Experiment(0, Proposal(Kind.SAMPLE, {}, "")),
        ["/nonexistent/python"],
        tmp_path / "c",
        Place(),
        Setup(inject=False),
    ).poll(None)
    assert missing is not None
    assert missing.state is State.STARTUP_FAILED


def test_a_program_that_exceeds_the_time_limit_is_a_timeout_or_a_shorter_measurement(tmp_path):
    short = run_one(tmp_path / "a", "--fault", "slow", "--steps", "100000", timeout=1.5)
    assert short.state is State.TIMEOUT
    assert not short.measured
    cut = run_one(tmp_path / "c", "--steps", "100000", measure=60.0, timeout=6.0)
    assert (cut.state, cut.detail) == (
        State.FINISHED,
        "ended at the time limit of 6 s; the steps until then count",
    )
    measured = run_one(tmp_path / "b", "--steps", "100000", measure=1.0)
    assert measured.measured
    assert measured.exit_code is None
    assert measured.steps < 100000


def test_a_run_that_is_clearly_slower_than_the_best_is_stopped_early(tmp_path):
    outcome = run_one(tmp_path, "--steps", "100000", best=5.0)
    assert outcome.state is State.STOPPED_EARLY
    assert outcome.step_ms is not None
    assert outcome.step_ms > 5.0


def test_all_processes_of_an_experiment_end_with_it(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "sys.exit(3)\n"
    )
    proposal = Proposal(Kind.SAMPLE, {}, "")
    running = Running(
        Experiment(0, proposal), [sys.executable, str(script)], tmp_path / "e", Place(),
        Setup(inject=False),
    )  # fmt: skip
    wait_until(lambda: running.poll(None), "the end")
    wait_until(lambda: not marked(tmp_path / "e"), "its child's end")


def marked(folder: Path) -> list[int]:
    """Processes of an experiment, or of any below the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        mark = f"{MARK}={folder.resolve()}".encode()
        if entry.name.isdigit() and state != "Z" and any(v.startswith(mark) for v in variables):
            found.append(int(entry.name))
    return found


def test_concurrent_slots_divide_cores_and_gpus_and_share_none(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    divided = places(3)
    cores = [core for place in divided for core in place.cores]
    assert len(cores) == len(set(cores))
    assert {len(place.cores) for place in divided} == {len(divided[0].cores)}
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in divided] == ["3", "5", "7"]
    with pytest.raises(Exception, match="GPUs"):
        places(4)
    for thread, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        topology = tmp_path / f"cpu{thread}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings)
    assert whole_cores({0, 1, 2, 3}, tmp_path) == [{0, 2}, {1, 3}]


def test_an_experiment_runs_only_on_the_cores_of_its_slot(tmp_path):
    core = min(os.sched_getaffinity(0))
    script = tmp_path / "where.py"
    script.write_text("import os; print('on', sorted(os.sched_getaffinity(0)))\n")
    running = Running(
        Experiment(0, Proposal(Kind.SAMPLE, {}, "")), [sys.executable, str(script)],
        tmp_path / "e", Place(0, (core,)), Setup(inject=False),
    )  # fmt: skip
    wait_until(lambda: running.poll(None), "the end")
    assert f"on [{core}]" in (tmp_path / "e" / "output.log").read_text()


def tuner(
    folder: Path, log: Path, *more: str, what_if: bool = False, **popen: Any
) -> subprocess.Popen[str]:
    """Starts `headspace tune` on the program."""
    more = (*more, *(["--what-if-steps", "600"] if what_if else ["--no-what-if"]))
    return subprocess.Popen(
        [
            sys.executable, "-m", "headspace", "tune", "--dir", str(folder), "--no-inject",
            "--no-early-stop", "--confirm", "1", *KNOBS, *more, "--", sys.executable, PROGRAM,
            "--threads", "{threads}", "--depth", "{depth}", "{turbo:--turbo}", "--log", str(log),
            "--steps", "{what_if:650|70}",
        ],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **popen,
    )  # fmt: skip


def stored(folder: Path, url: str | None = None) -> list[Trial]:
    """The stored experiments."""
    store = Store(url or f"sqlite:///{folder / 'study.db'}", "headspace-tune", SPACE, {})
    return store.read()[0]


def starts(log: Path) -> list[tuple[str, str]]:
    """The lines that the programs have logged: the word, and the experiment's folder."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines]


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Tuners that are killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.alone  # If two other tests use the cores, the fastest configuration may seem slower than another.
def test_the_whole_search_finds_the_fastest_and_prints_its_command(tmp_path, running):
    folder, log = tmp_path / "tune", tmp_path / "log"
    process = tuner(folder, log, "--repeats", "0", what_if=True)
    running.append(process)
    out, err = process.communicate(timeout=4 * DEADLINE_S)
    assert process.returncode == 0, err
    command = out.splitlines()[-1]
    assert "--threads 4 --depth 2 --turbo" in command
    assert f"--log {log} --steps 70" in command
    assert "each of the best configuration and the baseline" in out
    for row in ("classes    ", "hit rate   ", "time       ", "ladder     baseline "):
        assert f"\n{row}" in out, row
    pictures = ("progress.svg", "ladder.svg", "tree.svg")
    for name in ("results.tsv", "experiments.jsonl", "study.db", *pictures):
        assert (folder / name).exists(), name
    trials = stored(folder)
    summaries = [t.outcome.summary for t in trials]
    asked = [summary.get("what_if_status") is not None for summary in summaries]
    assert asked == [True] + [False] * (len(trials) - 1), "only the first run has a what-if"
    assert summaries[0]["what_if_status"]["finished"]
    # On a busy machine, the steps of the baseline may vary too much for a floor, or the best step may be shorter.
    floor = (
        r"unknown: the steps of the baseline varied"
        if floor_ms(summaries[0]) is None
        else r"\d+\.\d [a-z ]+: (a headspace of \d|no headspace)"
    )
    assert re.search(rf"^floor +{floor}", out, re.MULTILINE)
    rows = (folder / "results.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows[:3]] == ["name", "baseline", "headspace_cache"]
    assert len(rows) == len(trials) + 2


def more_began(log: Path, before: int, process: subprocess.Popen[str]) -> bool:
    return len(starts(log)) > before or process.poll() is not None


@pytest.mark.slow
def test_ten_kills_neither_lose_nor_repeat_a_finished_experiment(tmp_path, running):
    folder, log = tmp_path / "tune", tmp_path / "log"
    may_end = tmp_path / "log.may-end"
    may_end.write_text("0")
    whole = ("--repeats", "0", "--patience", "100", "--near-floor", "0")
    moments = random.Random(6)
    known: dict[int, Trial] = {}
    for kill in range(10):
        before = len(starts(log))
        # Each time, one more program may end. The search needs more programs, so it cannot finish before the kill.
        may_end.write_text(str(kill + 1))
        process = tuner(folder, log, *whole)
        running.append(process)
        if kill % 3:  # In the other cases, no program may have begun before the kill.
            wait_until(partial(more_began, log, before, process), "a start")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.0, 1.5))
        process.kill()
        process.wait()
        if (folder / "study.db").exists():
            now = {trial.number: trial for trial in stored(folder)}
            assert known.items() <= now.items(), "an outcome was lost or changed"
            known = now
    may_end.unlink()
    assert len(known) <= 10
    process = tuner(folder, log, *whole)
    running.append(process)
    _, err = process.communicate(timeout=4 * DEADLINE_S)
    assert process.returncode == 0, err
    now = {trial.number: trial for trial in stored(folder)}
    assert known.items() <= now.items()
    keys = [trial.proposal.key for trial in now.values()]
    assert len(keys) == len(set(keys)), "an experiment was done twice"
    began = [experiment for word, experiment in starts(log) if word == "began"]
    assert len(began) == len(set(began)), "two programs had one experiment's folder"
    assert set(now) <= {int(name.partition("-")[0]) for name in began}
    assert len(began) <= len(now) + 10
    assert not marked(folder), "a program was left behind"


@pytest.mark.parametrize("storage", ["sqlite", "journal", "postgresql", "mysql"])
@pytest.mark.slow
def test_tuners_on_one_study_share_it_and_repeat_no_experiment(
    tmp_path, running, database, storage
):
    files = {"sqlite": f"sqlite:///{tmp_path / 'all.db'}", "journal": f"journal:{tmp_path / 'all'}"}
    url = files.get(storage) or database(storage)
    log = tmp_path / "log"
    processes = []
    for me, other in ((0, 1), (1, 0)):
        # The first programs of each tuner wait until the other tuner has begun nearly as many.
        fair = {
            **os.environ,
            "TUNED_FAIR": f"{tmp_path / f'began{me}'}:{tmp_path / f'began{other}'}",
        }
        more = ("--storage", url, "--repeats", "0", "--patience", "100", "--near-floor", "0")
        processes.append(tuner(tmp_path / f"tuner{me}", log, *more, env=fair))
        running.append(processes[-1])
    for process in processes:
        _, err = process.communicate(timeout=4 * DEADLINE_S)
        assert process.returncode == 0, err
    trials = stored(tmp_path, url)
    keys = [trial.proposal.key for trial in trials]
    assert len(keys) == len(set(keys))
    assert [word for word, _ in starts(log)].count("began") == len(trials)
    done = [len(list((tmp_path / f"tuner{i}" / "experiments").iterdir())) for i in range(2)]
    assert sum(done) == len(trials)
    assert min(done) >= 2, "one tuner did nearly all"
    confirmed = [t.proposal for t in trials if t.kind is Kind.CONFIRM]
    assert len({proposal.by for proposal in confirmed}) == 1, "the turns are of one tuner"


def test_an_interrupted_search_ends_its_program_and_says_how_to_resume(tmp_path, running):
    folder, log = tmp_path / "tune", tmp_path / "log"
    process = tuner(folder, log)
    running.append(process)
    wait_until(lambda: starts(log), "an experiment")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "repeat the command to continue" in err
    assert not marked(folder)


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    Store(url, "s", SPACE, {"command": "a"})
    Store(url, "s", SPACE, {"command": "a"})
    with pytest.raises(TuneError, match="`command` is `a` there and `b` here"):
        Store(url, "s", SPACE, {"command": "b"})
    with pytest.raises(TuneError, match="is not a storage"):
        Store("study", "s", SPACE, {})
    with pytest.raises(TuneError, match="needs the Python module `pg8000`"):
        Store("postgresql+pg8000://me@127.0.0.1/none", "s", SPACE, {})
    with pytest.raises(TuneError, match=r"mysql://me:…@127\.0\.0\.1/none"):
        Store("mysql://me:secret@127.0.0.1/none", "s", SPACE, {})


def test_only_experiments_of_a_dead_tuner_are_given_up(tmp_path):
    url = f"journal:{tmp_path / 'study'}"
    store = Store(url, "s", SPACE, {})
    planner = Planner(SPACE, Limits())
    mine = store.claim(planner.next)
    assert isinstance(mine, Experiment)
    assert store.give_up_lost() == []
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    me = owner()
    other = {**me, "pid": child.pid, "started": 0}
    assert not lives(other, 0.0)
    store._me = {**me, "pid": 2**22 + 1}
    lost = Store(url, "s", SPACE, {})
    lost._me = store._me
    child.kill()
    child.wait()
    # Remedies wait for the baseline, so the lost experiment comes from a separate plan.
    taken = lost.claim(lambda *_: Proposal(Kind.SAMPLE, {**SPACE.baseline, "threads": 2}, ""))
    assert isinstance(taken, Experiment)
    assert [given.experiment for given in store.give_up_lost()] == [taken]
    assert [experiment.number for experiment in store.read()[1]] == [mine.number]
    elsewhere = {**me, "host": "another", "pid": 1}
    assert lives(elsewhere, 0.0)
    assert not lives(elsewhere, GONE_S)


def test_only_the_leftover_processes_of_a_killed_tuner_are_ended(tmp_path):
    lost = Experiment(1, Proposal(Kind.SAMPLE, {}, ""), "a0a0a0a0a0a0")
    folder = tmp_path / lost.name
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    left = subprocess.Popen(sleep, env={**os.environ, MARK: str(folder)})
    other = subprocess.Popen(sleep, env={**os.environ, MARK: str(tmp_path / "0001-b1")})
    try:
        wait_until(lambda: marked(folder) and marked(tmp_path / "0001-b1"), "both began")
        assert end_leftovers(lost) == 1
        assert left.wait(DEADLINE_S) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def test_without_optuna_tune_says_what_to_install(tmp_path):
    (tmp_path / "optuna.py").write_text("raise ModuleNotFoundError(\"No module named 'optuna'\")")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "headspace", "tune", "--dir", str(tmp_path / "t"), "--knob",
         "a=1,2", "--", "true", "{a}"],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install '.[tune]'" in done.stderr
    assert "Traceback" not in done.stderr


def tick(name: str, steps: int, ms: float, phase: str = "live") -> str:
    return handmade_records.tick(handmade_records.loop(name, steps, ms, phase))


def test_a_growing_run_is_read_for_its_training_loop_only(tmp_path):
    live = LiveRun(tmp_path)
    live.read()
    assert (live.steps, live.step, live.run) == (0, None, None)
    file = tmp_path / "2026-a-run" / "rank0.jsonl"
    file.parent.mkdir()
    file.write_text(tick("train", 20, 99.0) + tick("train", 30, 10.0)[:-9])
    live.read()
    assert live.steps == 20, "what is not whole is not read"
    with file.open("a") as more:
        more.write(tick("train", 30, 10.0)[-9:] + tick("evaluate", 500, 50.0) + "no record\n")
    live.read()
    assert live.moves == 550
    with file.open("a") as more:
        more.write(handmade_records.line("summary", loop="train"))
        more.write("".join(tick("train", 10, 10.0 + k % 3) for k in range(12)))
        more.write(tick("train", 50, 1.0, "replay"))
    live.read()
    step = live.step
    assert step is not None
    assert step.steps == 150, "neither warm-up nor replay nor evaluation"
    assert step.ms == pytest.approx((300 + 1320) / 150)
    assert step.seconds == pytest.approx(1.62)
    assert step.interval_ms is not None
    assert step.interval_ms[0] < step.ms < step.interval_ms[1]
    with file.open("a") as more:
        more.write(tick("train", 5, 10.0))
    file.rename(file.with_name("rank0.001.jsonl"))
    file.write_text(tick("train", 7, 10.0))
    live.read()
    assert live.steps == 20 + 30 + 120 + 50 + 5 + 7, "nothing of a rotated file is lost"
    later = tmp_path / "2026-b-run" / "rank0.jsonl"
    later.parent.mkdir()
    later.write_text(tick("train", 1000, 10.0))
    live.read()
    assert (live.steps, live.run) == (232, file.parent), "a later run is another training"


class Quiet(Progress):
    """Records the maximum number of concurrent experiments."""

    most = 0

    def draw(self, now: object, spent: int, running: Sequence[str]) -> None:
        self.most = max(self.most, len(running))


def test_two_slots_run_two_experiments_at_once_and_none_twice(tmp_path):
    words = [sys.executable, PROGRAM, "--threads", "{threads}", "--depth", "{depth}",
             "{turbo:--turbo}", "--steps", "70"]  # fmt: skip
    limits = Limits(experiments=7, repeats=0, confirm=0, patience=100)
    setup = Setup(Patience(measure=float("inf")), inject=False, early=False)
    job = Job(
        tmp_path, SPACE, Template(words, SPACE), limits, setup, [Place(0), Place(1)], float("inf")
    )
    progress = Quiet(SPACE, limits, quiet=True)
    ended = Search(job, Store(f"journal:{tmp_path / 'study'}", "s", SPACE, {}), progress).run()
    assert ended.reason == "7 experiments were run"
    assert progress.most == 2
    keys = [trial.proposal.key for trial in ended.trials]
    assert len(keys) == len(set(keys)) == 7
    links = sorted(link.name for link in (tmp_path / "runs").iterdir())
    assert links == sorted(Path(trial.outcome.run).name for trial in ended.trials)


def test_a_failed_baseline_is_reported_and_run_again_by_the_next_search(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('no data')\n")
    command = [sys.executable, "-m", "headspace", "tune", "--dir", str(tmp_path / "t"), "--no-inject",
               "--no-what-if", "--repeats", "0", "--knob", "n=1,2", "--", sys.executable, str(script),
               "{n}"]  # fmt: skip
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 1
    assert "startup failed: no step: exit code 1" in first.stderr
    assert "no data" in first.stderr
    script.write_text(
        "import sys, time, headspace\n"
        "for _ in headspace.wrap(iter(range(90))):\n    time.sleep(0.02 / int(sys.argv[1]))\n"
    )
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[-1].endswith("train.py 2")
