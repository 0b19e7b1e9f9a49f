"""The ends of experiments of `headspace tune`, their owners, and resumed searches."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import PROGRAMS, remove_settings, wait_until

from headspace._processes import ending
from headspace.tune import store as store_module
from headspace.tune.experiment import Experiment, Kind, Outcome, Proposal, State, Trial
from headspace.tune.output.progress import Progress
from headspace.tune.plan.objective import Objective
from headspace.tune.plan.planner import Limits, Planner
from headspace.tune.run.early_stop import EarlyStop
from headspace.tune.run.launch import MARK, Patience, Running, Setup
from headspace.tune.run.live import StepMean
from headspace.tune.run.resources import Place
from headspace.tune.run.search import Job, Search
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Space, parse_knob
from headspace.tune.store import GONE_S, LOCK_S, Heartbeats, Store

PROGRAM = str(PROGRAMS / "tuned.py")
SPACE = Space((parse_knob("threads=1,2"),))
LIMITS = Limits(experiments=2, repeats=0, confirm=0)


@pytest.fixture(autouse=True)
def fast_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_settings(monkeypatch)
    monkeypatch.setenv("HEADSPACE_INTERVAL", "50ms")
    monkeypatch.setenv("HEADSPACE_QUIET", "1")


def started(folder: Path, words: list[str], setup: Setup | None = None) -> Running:
    experiment = Experiment(0, Proposal(Kind.SAMPLE, SPACE.baseline, "A test."))
    setup = setup or Setup(inject=False)
    return Running(experiment, [sys.executable, *words], folder, Place(), setup)


def ended(running: Running, best: float | None = None) -> Outcome:
    """Waits for the end of the experiment. Returns its outcome."""
    outcomes: list[Outcome] = []

    def is_over() -> bool:
        outcome = running.poll(best)
        outcomes.extend([outcome] if outcome else [])
        return outcome is not None

    try:
        wait_until(is_over, "the experiment's end")
    finally:
        running.end()
    return outcomes[0]


def test_a_program_without_a_step_before_the_time_limit_is_a_timeout(tmp_path):
    setup = Setup(Patience(timeout=1.0), inject=False)
    outcome = ended(started(tmp_path / "e", [PROGRAM, "--fault", "hang"], setup))
    assert outcome.state is State.TIMEOUT
    assert outcome.steps == 0


def test_objective_throughput_compares_the_time_per_sample(tmp_path):
    # A step takes at least 10 ms and has four samples.
    def run(name: str, best: float, measure: float = 1.0) -> State:
        patience = Patience(measure=measure)
        setup = Setup(patience, inject=False, objective=Objective.THROUGHPUT)
        words = [PROGRAM, "--steps", "100000"]
        return ended(started(tmp_path / name, words, setup), best).state

    assert run("slow", 1.0, measure=60.0) is State.STOPPED_EARLY
    assert run("fast", 1000.0) is State.FINISHED, "in milliseconds a step it would be faster too"
    # A step takes longer than 9 ms, but a sample takes less.
    assert run("large", 9.0) is State.FINISHED


def test_repeated_checks_rarely_stop_a_run_that_is_as_fast_as_the_best():
    rng = random.Random(4)
    stopped = 0
    for _ in range(300):
        total, early_stop = 0.0, EarlyStop()
        for ticks in range(1, 201):
            total += 10 * rng.gauss(1.0, 0.05)
            mean = StepMean(total / ticks, 0.5 / ticks**0.5, 20 * ticks)
            if early_stop.is_slower(mean, 10.0):
                stopped += 1
                break
    assert stopped <= 0.05 * 300


TERMINATED = """
import os, signal, subprocess, sys, time
folder = sys.argv[1]
if len(sys.argv) > 2:
    def end(*_):
        open(f"{folder}/told", "w").close()
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.005)
        open(f"{folder}/records", "w").close()
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    open(f"{folder}/ready", "w").close()
else:
    subprocess.Popen([sys.executable, __file__, folder, "child"])
while True:
    time.sleep(60)
"""


def test_a_child_may_complete_its_records_after_its_parent_has_exited(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TERMINATED)
    running = started(tmp_path / "e", [str(script), str(tmp_path)])
    wait_until(lambda: (tmp_path / "ready").exists(), "its child began")
    running.ask_to_end()
    assert running._process is not None
    wait_until(lambda: ending.has_exited(running._process.pid), "the leader's end")
    wait_until(lambda: (tmp_path / "told").exists(), "its child is told")
    assert running.poll(None) is None
    (tmp_path / "go").touch()
    wait_until(lambda: running.poll(None), "the end")
    assert (tmp_path / "records").exists()


def test_ranks_in_separate_process_sessions_end_with_their_experiment(tmp_path):
    script = tmp_path / "torchrun.py"
    sleep = "import time; time.sleep(600)"
    script.write_text(
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(600)\n"
    )
    running = started(tmp_path / "e", [str(script)])
    wait_until(lambda: (tmp_path / "ready").exists(), "its rank began")
    mark = str((tmp_path / "e").resolve())
    wait_until(lambda: len(list(ending.find_marked(MARK, mark))) == 2, "both run")
    running.end()
    assert list(ending.find_marked(MARK, mark)) == []
    assert ending.GRACE_S > 30, "torchrun gives its ranks 30 s"


def test_only_processes_with_the_exact_mark_are_killed(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    marks = ["/a/0001-b1", "/a/0001-b1/x", "/a/10001-b1"]
    programs = [subprocess.Popen(sleep, env={**os.environ, MARK: mark}) for mark in marks]
    try:
        for mark in marks:
            wait_until(lambda mark=mark: list(ending.find_marked(MARK, mark)), "it runs")
        assert ending.end_marked(MARK, "0001-b1") == 1
        assert programs[0].wait(60) == -signal.SIGKILL
        assert [program.poll() for program in programs[1:]] == [None, None]
    finally:
        for program in programs:
            program.kill()
            program.wait()


def search(folder: Path, study: str, *words: str, limits: Limits = LIMITS) -> Search:
    """A search in a folder."""
    command = [sys.executable, PROGRAM, "--threads", "{threads}", "--steps", "70", *words]
    template = Template(command, SPACE)
    setup = Setup(Patience(measure=float("inf")), inject=False, early=False)
    job = Job(folder, SPACE, template, limits, setup, [Place()], 50.0)
    store = Store(f"journal:{folder / study}", study, SPACE, {}, folder)
    return Search(job, store, Progress(SPACE, limits, quiet=True))


def test_a_run_of_another_study_in_the_same_folder_is_not_read(tmp_path):
    first = search(tmp_path, "one").run()
    assert not first.failed
    second = search(tmp_path, "two", "--fault", "startup").run()
    assert second.failed
    assert second.trials[0].number == first.trials[0].number == 0
    assert second.trials[0].outcome.state is State.STARTUP_FAILED
    names = [path.name for path in (tmp_path / "experiments").iterdir()]
    assert len(names) == len(first.trials) + 1, "a folder is of one claim"


def test_time_spent_before_a_resume_counts(tmp_path):
    before = search(tmp_path, "one")
    before._store._spent_before = 60.0
    before._store.beat([])
    resumed = search(tmp_path, "one")
    assert resumed._store.spent_s >= 60.0
    outcome = Outcome(State.FINISHED, 10.0, (9.9, 10.1), 100)
    baseline = Trial(0, Proposal(Kind.BASELINE, SPACE.baseline, ""), outcome=outcome)
    said = resumed._plan([baseline], [])
    assert getattr(said, "reason", "") == "the limit `--time` is reached"


def test_an_experiment_that_another_worker_gave_up_is_dropped_and_the_search_goes_on(
    tmp_path, monkeypatch
):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    planner = Planner(SPACE, LIMITS)
    mine, other = Store(url, "s", SPACE, {}), Store(url, "s", SPACE, {})
    taken = mine.claim(planner.next)
    assert isinstance(taken, Experiment)
    assert mine.beat([taken]) == []
    monkeypatch.setattr(store_module, "lives", lambda *_: False)
    assert [given.experiment for given in other.give_up_lost()] == [taken]
    mine._beaten = float("-inf")
    assert mine.beat([taken]) == [taken]
    assert not mine.record(taken, Outcome(State.FINISHED, 10.0, (9.0, 11.0), 100))
    assert mine.read() == ([], [])
    again = mine.claim(planner.next)
    assert isinstance(again, Experiment)
    assert (again.proposal, again.number) == (taken.proposal, taken.number + 1)
    assert again.name != taken.name


def test_an_experiment_that_another_worker_gave_up_is_run_again(tmp_path, monkeypatch):
    mine = search(tmp_path, "one")
    store = mine._store
    record = store.record

    def too_late(experiment: Experiment, outcome: Outcome) -> bool:
        if experiment.number == 0:
            assert store._fail(store._id(experiment), "given_up")
        return record(experiment, outcome)

    monkeypatch.setattr(store, "record", too_late)
    done = mine.run()
    assert not done.failed
    assert [trial.number for trial in done.trials] == [1, 2]
    assert done.trials[0].kind is Kind.BASELINE


def test_a_silent_worker_is_detected_by_unchanged_heartbeats_not_by_its_clock():
    now = 1000.0
    heartbeats = Heartbeats(lambda: now)
    assert heartbeats.silent_s("a", -5e9) == 0.0, "its clock may be anywhere"
    now += GONE_S - 1
    assert heartbeats.silent_s("a", -5e9) == GONE_S - 1
    assert heartbeats.silent_s("a", -6e9) == 0.0, "its clock may go back"
    now += 5.0
    assert heartbeats.silent_s("a", -6e9) == 5.0
    assert heartbeats.silent_s("b", None) == 0.0
    assert 2 * LOCK_S < GONE_S, "who waits for a lock is not gone"


def test_a_baseline_without_samples_says_what_is_missing_and_is_run_again(tmp_path):
    script = tmp_path / "train.py"
    command = [sys.executable, "-m", "headspace", "tune", "--dir", str(tmp_path / "t"), "--no-inject",
               "--no-what-if", "--repeats", "0", "--objective", "throughput", "--knob", "n=1,2", "--",
               sys.executable, str(script), "{n}"]  # fmt: skip
    text = (
        "import sys, time, headspace\n"
        "for _ in headspace.wrap(iter(range(90)){}):\n    time.sleep(0.02 / int(sys.argv[1]))\n"
    )
    script.write_text(text.format(""))
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 1
    assert "batch_size=N" in first.stderr
    script.write_text(text.format(", batch_size=8"))
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[-1].endswith("train.py 2")
