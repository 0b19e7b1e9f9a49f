"""The parts of `headspace.spdl.autoresearch`, each through the interface that the engine calls."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import handmade_records
import pytest
from autoresearch import entry_point
from running import remove_settings, wait_until

pytest.importorskip("matplotlib", reason="the engine draws with matplotlib, which is not installed")

from spdl.autoresearch.pipeline_optimization._ops._failures import (
    _classify_terminal_job_failure as classify,
)
from spdl.autoresearch.pipeline_optimization._platform import _providers, create_platform

from headspace._processes import ending
from headspace.spdl.autoresearch import Provider, _jobs
from headspace.spdl.autoresearch._agent import Agent
from headspace.spdl.autoresearch._evidence import Evidence
from headspace.spdl.autoresearch._jobs import Jobs
from headspace.spdl.autoresearch._metrics import block
from headspace.spdl.autoresearch._records import Measured, Progress

TRAIN = """
import sys, time
import headspace
for step, batch in enumerate(headspace.wrap(range(200), batch_size=4)):
    time.sleep({each})
    if step == 60:
        {then}
"""


PROBED = """
import time
import headspace


def batches():
    for number in range(1_000_000):
        time.sleep(0.002)
        yield number


for batch in headspace.wrap(batches(), batch_size=4):
    time.sleep(0.001)
"""


class Workdir:
    """An engine's workdir, with experiments prepared as the engine prepares them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs = Jobs(path)

    def launch(self, command: str, run: str = "003_this", **experiment: object) -> str:
        folder = self.path / "runs" / run
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "meta.json").write_text(json.dumps(experiment))
        job = self.jobs.launch(command, self.path)
        (folder / "job_id.txt").write_text(job)
        return job

    def train(self, then: str, run: str = "003_this", each: float = 0.001) -> str:
        """Starts a loop that runs the code `then` at its 61st batch. Each batch takes `each` seconds."""
        script = self.path / f"{run}.py"
        script.write_text(TRAIN.format(then=then, each=each))
        return self.launch(f"{sys.executable} {script}", run)

    def ended(self, job: str) -> str:
        wait_until(lambda: self.jobs.status(job) != "RUNNING", "the job ends")
        return self.jobs.status(job)

    def evidence(self, job: str) -> Any:
        return Evidence(self.jobs).collect(job, self.path / "runs" / job / "metrics")


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workdir]:
    remove_settings(monkeypatch)
    workdir = Workdir(tmp_path)
    yield workdir
    for job in (tmp_path / "headspace").glob("*/job.json"):
        workdir.jobs.cancel(job.parent.name)


def kind(evidence: Any) -> str:
    """How the engine itself classifies a job that failed with that evidence."""
    name: str = classify(evidence, job_id="", progress_seen=False).kind.value
    return name


# --- the provider ---------------------------------------------------------------------------


def test_the_engine_finds_the_platform_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_point(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    platform = create_platform({"platform": "headspace", "agent": "codex"}, tmp_path / "search")

    assert isinstance(platform.execution, Jobs)
    providers = _providers._resolve_providers()
    assert _providers._find_provider(providers, "auto", {}, None).name == "headspace"


@pytest.mark.parametrize("mode", ["dataloader_only", "dry_run"])
def test_unsupported_execution_modes_are_left_to_the_engine(mode: str) -> None:
    availability = Provider().is_available({"local_execution_mode": mode}, None)

    assert not availability.available
    assert f"`local_execution_mode` is `{mode}`" in availability.reason


def test_with_headspace_0_the_engine_uses_its_own_platform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADSPACE", "0")

    assert not Provider().is_available({}, None).available


def test_experiments_run_one_at_a_time(tmp_path: Path) -> None:
    config = {"agent": "codex", "max_concurrency": 3}

    Provider().create(config, tmp_path, object())

    assert config["max_concurrency"] == 1


# --- jobs -----------------------------------------------------------------------------------


def test_a_job_that_ended_without_an_engine_keeps_its_exit_code(workdir: Workdir) -> None:
    job = workdir.launch("exit 3")
    wait_until((workdir.path / "headspace" / job / "exit").exists, "the job ends")

    resumed = Jobs(workdir.path)

    assert resumed.status(job) == "FAILED"
    assert resumed.exit_code(job) == 3


@pytest.mark.parametrize("is_relative", [False, True], ids=["absolute", "relative"])
def test_the_next_engine_finds_a_job_that_is_still_running(
    workdir: Workdir, is_relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = workdir.launch("sleep 600")
    wait_until((workdir.path / "headspace" / job / "pid").exists, "the job begins")

    monkeypatch.chdir(workdir.path.parent)
    resumed = Jobs(Path(workdir.path.name) if is_relative else workdir.path)

    assert resumed.status(job) == "RUNNING"
    # This process is the parent and must reap the job. After a real restart, `init` would do it.
    pid = workdir.jobs._children[job].pid
    os.killpg(pid, signal.SIGKILL)
    workdir.jobs._children[job].wait()
    assert resumed.status(job) == "FAILED"


def test_a_process_that_reuses_the_pid_of_a_job_is_not_the_job(workdir: Workdir) -> None:
    job = workdir.launch("true")
    workdir.ended(job)
    folder = workdir.path / "headspace" / job
    (folder / "exit").unlink()
    (folder / "pid").write_text(f"{os.getpid()}\n")

    resumed = Jobs(workdir.path)

    assert resumed.status(job) == "FAILED"
    assert resumed.cancel(job)  # This process, which has the PID, must not be ended.


def test_cancelling_ends_all_processes_of_the_command(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = workdir.launch("(trap '' TERM; echo ready; sleep 600) & sleep 600")
    log = workdir.path / "headspace" / job / "output.log"
    wait_until(lambda: "ready" in log.read_text(), "the job begins")
    group = workdir.jobs._children[job].pid

    monkeypatch.setattr(ending, "GRACE_S", 0.2)

    assert workdir.jobs.cancel(job)

    assert workdir.jobs.status(job) == "FAILED"
    assert not ending.group_lives(group)


def test_cancelling_ends_ranks_in_separate_process_sessions(workdir: Workdir) -> None:
    # `torchrun` starts ranks in separate sessions. The shell in between exits before it can signal them.
    job = workdir.launch("setsid sleep 600 & echo ready; wait")
    folder = workdir.path / "headspace" / job
    wait_until(lambda: "ready" in (folder / "output.log").read_text(), "the job begins")

    assert workdir.jobs.cancel(job)

    assert list(ending.find_marked(_jobs.MARK, str(folder))) == []


def test_a_cancelled_job_completes_its_records_before_it_ends(workdir: Workdir) -> None:
    # The shell between the engine and the program exits at the first signal.
    script = workdir.path / "train.py"
    script.write_text(PROBED)
    job = workdir.launch(f"cd . && {sys.executable} {script}; true")
    wait_until(lambda: workdir.jobs.progress(job), "the loop takes batches")

    assert workdir.jobs.cancel(job)

    workdir.evidence(job)
    told = workdir.path / "runs" / job / "metrics" / "summary.json"
    assert json.loads(told.read_text())["state"] == "finished"


def test_an_orphan_of_an_experiment_is_ended_before_a_new_launch(
    workdir: Workdir,
) -> None:
    first = workdir.launch("sleep 600")

    second = workdir.launch("true")

    assert (first, second) == ("003_this", "003_this.2")
    assert workdir.jobs.status(first) == "FAILED"
    assert workdir.ended(second) == "SUCCEEDED"


def test_the_headspace_experiment_runs_a_probe_and_ends_with_it(workdir: Workdir) -> None:
    done = handmade_records.probe().strip()
    write = f"mkdir $HEADSPACE_DIR/run && echo '{done}' > $HEADSPACE_DIR/run/rank0.jsonl"
    job = workdir.launch(
        f"echo $HEADSPACE_MODE; mkdir -p $HEADSPACE_DIR; {write}; sleep 600",
        "000_headspace",
        _is_headspace=True,
    )

    assert workdir.ended(job) == "SUCCEEDED"
    assert workdir.jobs.duration(job) is None
    assert (workdir.path / "headspace" / job / "output.log").read_text().startswith("probe\n")


@pytest.mark.slow
def test_a_real_probe_ends_its_job_and_the_answer_contains_the_floor(workdir: Workdir) -> None:
    script = workdir.path / "train.py"
    script.write_text(PROBED)
    job = workdir.launch(f"{sys.executable} {script}", "000_headspace", _is_headspace=True)

    # If the probe did not end the job, it would run for most of an hour.
    assert workdir.ended(job) == "SUCCEEDED"

    workdir.evidence(job)
    told = workdir.path / "runs" / job / "metrics"
    summary = json.loads((told / "summary.json").read_text())
    metrics = json.loads((told / "answer.json").read_text())["metrics"]
    assert summary["state"] == "finished"
    if summary["floor_step_ms"] is None:  # On a busy machine, the windows may disagree.
        assert metrics["steady_step_time_ms"] is None
        assert "the floor was not measured: " in metrics["notes"]
    else:
        assert metrics["steady_step_time_ms"] == pytest.approx(summary["floor_step_ms"], abs=1e-3)
        # With free data, a step sleeps 1 ms instead of 3 ms.
        assert metrics["throughput_samples_per_s"] > summary["throughput_samples_per_s"]


def test_only_new_batches_count_as_progress(tmp_path: Path) -> None:
    file = tmp_path / "run" / "rank0.jsonl"
    file.parent.mkdir()
    idle, busy = (
        handmade_records.tick(),
        handmade_records.tick(handmade_records.loop("train", 7, 1.0)),
    )
    file.write_text(idle)
    progress = Progress(tmp_path)

    told = []
    for line in ("", busy, idle, busy[:20], busy[20:]):
        with file.open("a") as records:
            records.write(line)
        progress.read()
        told.append(progress.text)

    assert told == [None, "7 batches", "7 batches", "7 batches", "14 batches"]

    with file.open("a") as records:
        records.write(busy)
    file.rename(file.with_name("rank0.001.jsonl"))
    file.write_text(busy)
    progress.read()
    assert progress.text == "28 batches", "nothing of a rotated file is lost"

    other = tmp_path / "other" / "rank0.jsonl"
    other.parent.mkdir()
    for path in (file, other):
        with path.open("a") as records:
            records.write(busy + handmade_records.probe())
        progress.read()
        assert progress.is_probed
    assert progress.text == "42 batches", "two processes of a job may train at once"
    other.with_name("rank1.jsonl").write_text(busy)
    progress.read()
    assert not progress.is_probed


# --- evidence -------------------------------------------------------------------------------


def test_a_failure_before_the_first_batch_is_a_start_up_failure_with_any_message(
    workdir: Workdir,
) -> None:
    job = workdir.launch("echo '[autoresearch] cpu_cores=2'; echo 'bad --step_time_ms' >&2; exit 2")
    assert workdir.ended(job) == "FAILED"

    evidence = workdir.evidence(job)

    assert kind(evidence) == "job_startup_failed"
    assert evidence.exit_code == 2
    assert "(2 lines left out)" in evidence.pipeline_stats_log


def test_a_failure_after_the_first_batch_is_a_run_failure_with_any_message(
    workdir: Workdir,
) -> None:
    job = workdir.train("raise ImportError('cannot initialize: startup of mtp')")
    assert workdir.ended(job) == "FAILED"

    evidence = workdir.evidence(job)

    assert kind(evidence) == "job_runtime_failed"
    assert evidence.error_summary.endswith("ImportError: cannot initialize: startup of mtp")
    assert evidence.progress_seen
    answer = json.loads((workdir.path / "runs" / job / "metrics" / "answer.json").read_text())
    assert answer["metrics"]["throughput_samples_per_s"] is None


def test_the_signal_that_ended_a_job_is_named(workdir: Workdir) -> None:
    job = workdir.train("import os; os.kill(os.getpid(), 11)")
    assert workdir.ended(job) == "FAILED"

    assert ": killed by SIGSEGV.\n" in workdir.evidence(job).error_summary


def test_an_experiment_is_compared_with_the_baseline_and_the_best(workdir: Workdir) -> None:
    answers = {}
    for run, each in (("000_baseline", 0.001), ("004_slower", 0.02)):
        job = workdir.train("pass", run, each)
        assert workdir.ended(job) == "SUCCEEDED"
        workdir.evidence(job)
        answer = json.loads((workdir.path / "runs" / job / "metrics" / "answer.json").read_text())
        answers[run] = answer["metrics"]

    assert answers["000_baseline"]["is_best_so_far"]
    assert answers["000_baseline"]["improvement_vs_baseline_pct"] == 0.0
    assert answers["000_baseline"]["throughput_samples_per_s"] > 0
    assert not answers["004_slower"]["is_best_so_far"]
    assert answers["004_slower"]["improvement_vs_baseline_pct"] < 0


UNEDITED = """
import time
from spdl.pipeline import PipelineBuilder


def load(number):
    time.sleep(0.001)
    return number


pipeline = (
    PipelineBuilder()
    .add_source(range(360))
    .pipe(load, concurrency=2)
    .aggregate(3)
    .add_sink(2)
    .build(num_threads=2)
)
with pipeline.auto_stop():
    for batch in pipeline:
        time.sleep(0.001)
"""


def test_a_script_without_headspace_in_it_is_measured(workdir: Workdir) -> None:
    script = workdir.path / "train.py"
    script.write_text(UNEDITED)
    job = workdir.launch(f"{sys.executable} {script}")
    assert workdir.ended(job) == "SUCCEEDED"

    evidence = workdir.evidence(job)

    answer = json.loads((workdir.path / "runs" / job / "metrics" / "answer.json").read_text())
    assert answer["metrics"]["steady_step_time_ms"] > 1.0
    assert "[autoresearch] step=120 step_time_ms=" in evidence.pipeline_stats_log
    assert "\npipeline:0:1:load[2]_ave_time\t" in evidence.metrics_summary


def test_a_command_without_a_known_loop_reports_that_nothing_was_measured(
    workdir: Workdir,
) -> None:
    job = workdir.launch("true")
    assert workdir.ended(job) == "SUCCEEDED"

    assert "nothing was measured: no loop" in workdir.evidence(job).metrics_summary


SUMMARY: dict[str, Any] = {
    "steps": 900,
    "step_time_ms": 31.0,
    "steady_step_time_ms": 29.5,
    "steady_step_mean_ms": 30.0,
    "throughput_samples_per_s": 100.0,
    "floor_step_ms": 10.0,
    "headspace_pct": 66.7,
    "headspace_ci_pct": [65.0, 68.0],
}


def test_the_floor_is_reported_as_a_run_with_free_data_that_the_engine_does_not_scale() -> None:
    answer = block(Measured(SUMMARY, "", {}), mode="probe")

    metrics = answer["metrics"]
    assert metrics["throughput_samples_per_s"] == 300.0
    # If the first were shorter, the engine would scale by the ratio of the two.
    assert metrics["steady_step_time_ms"] == metrics["step_time_ms"] == 10.0
    assert "with free data a step takes 10.0 ms" in answer["findings"][0]


def test_the_throughput_of_all_ranks_is_added_up() -> None:
    summary = {**SUMMARY, "ranks": {"read": 4}}

    metrics = block(Measured(summary, "", {}), mode="measure")["metrics"]

    assert metrics["throughput_samples_per_s"] == 400.0
    assert metrics["steady_step_time_ms"] == 29.5


def test_findings_name_the_noise_and_the_predicted_gain_of_a_remedy() -> None:
    remedy = {
        "what": "Run 4 concurrent calls of `decode`.",
        "predicted_step_ms": 15,
        "predicted_gain_pct": 50,
    }
    none = {"what": "Look at the model.", "predicted_step_ms": 30, "predicted_gain_pct": 0}
    summary = {
        **SUMMARY,
        "wait_pct": 66.0,
        "steady_step_ci_ms": [28.0, 32.0],
        "remedies": [remedy, none],
        "bottleneck": {"kind": "stage", "name": "decode", "evidence": "busy 99 %"},
    }

    answer = block(Measured(summary, "", {}), mode="measure")

    assert answer["findings"] == [
        "66 % of a step is waiting for data; the bottleneck is decode (busy 99 %)",
        "a step takes 28.0 to 32.0 ms (95 % interval): a difference within it is noise",
        "predicted: Run 4 concurrent calls of `decode`: 15.0 ms a step (-50 %)",
        "Look at the model",
    ]
    assert answer["metrics"]["notes"] == answer["findings"][0]
    assert answer["metrics"]["bottleneck_stage"] == "decode"


# --- agent ----------------------------------------------------------------------------------


class Codex:
    """An agent that records its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def _load_prompt(self, name: str, **values: str) -> str:
        return f"{name} {values}"

    def run(self, prompt: str, workdir: Path, phase: str) -> str:
        self.asked.append(phase)
        return "its answer"


SCRIPT = '\nimport this\n\n"""\n    ```\n"""\n'


@pytest.mark.parametrize(
    ("name", "experiment"),
    [("instrument", ""), ("headspace", ""), ("apply_changes", "baseline")],
)
def test_the_script_is_returned_unchanged_when_an_edit_would_only_add_measurement(
    name: str, experiment: str, tmp_path: Path
) -> None:
    from spdl.autoresearch.pipeline_optimization._factory import _extract_python_block

    codex = Codex()
    agent = Agent(codex)

    prompt = agent._load_prompt(name, PIPELINE_CODE=SCRIPT, EXPERIMENT_NAME=experiment)
    answer = agent.run(prompt, tmp_path, "phase")

    assert codex.asked == []
    assert _extract_python_block(answer) == SCRIPT.lstrip()


def test_other_edits_are_left_to_the_agent(tmp_path: Path) -> None:
    codex = Codex()
    agent = Agent(codex)

    prompt = agent._load_prompt("apply_changes", PIPELINE_CODE=SCRIPT, EXPERIMENT_NAME="mtp")

    assert agent.run(prompt, tmp_path, "apply_001") == "its answer"
    assert codex.asked == ["apply_001"]


def test_a_script_that_the_engine_would_truncate_is_refused_with_a_reason(tmp_path: Path) -> None:
    agent = Agent(Codex())
    prompt = agent._load_prompt("headspace", PIPELINE_CODE='"""\n```python\n```\n"""\n')

    with pytest.raises(ValueError, match="begins with ```, and the engine would truncate"):
        agent.run(prompt, tmp_path, "apply_000")
