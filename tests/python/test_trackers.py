"""Values in TensorBoard, Weights & Biases and MLflow, read with their own libraries."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from running import DEADLINE_S, Programs, Ran, Runs, wait_until

import headspace
from headspace.integrations import MLflow, Sink, TensorBoard, Wandb

#: Steps of the program. It runs long enough for two calls from headspace's thread.
STEPS = 400

#: A curve: value by step.
Curve = dict[int, float]

#: The trackers send nothing to other machines, and MLflow keeps runs in plain files.
ENV = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}


def from_ticks(run: Ran, what: str) -> Curve:
    """The mean over each tick in milliseconds, by the number of steps at the end of the tick."""
    curve: Curve = {}
    for tick in run.kind("tick"):
        for entry in tick["loops"]:
            if entry["name"] == "train" and entry[what]["count"]:
                step = entry["first_step"] + entry["steps"]
                curve[step] = entry[what]["sum_ms"] / entry[what]["count"]
    return curve


def check(run: Ran, curves: dict[str, Curve]) -> None:
    """Checks that the curves have the values of the records."""
    assert run.exit_code == 0, run.stderr
    assert run.stdout.endswith("trained\n")
    assert "integration_off" not in run.notices()
    for what in ("step", "wait", "compute"):
        assert curves[f"headspace/{what}_ms"] == pytest.approx(from_ticks(run, what), rel=1e-5)
    summary = run.summary()
    assert summary["steps"] == STEPS
    assert max(curves["headspace/step_ms"]) == STEPS
    for name, field in {
        "run/step_ms": "steady_step_mean_ms",
        "run/less_waiting_at_most_pct": "headspace_upper_bound_pct",
        "run/samples_per_s": "throughput_samples_per_s",
        "run/overhead_pct": "overhead_pct",
    }.items():
        last = list(curves[f"headspace/{name}"].values())[-1]
        assert last == pytest.approx(summary[field], rel=1e-5), name
    assert "headspace/stage/decode/p95_ms" in curves
    # Values that were not measured are absent.
    assert "headspace/run/floor_ms" not in curves


def read_tensorboard(folder: Path) -> dict[str, Curve]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    tags = events.Tags()
    curves = {
        tag: {e.step: float(tensor_util.make_ndarray(e.tensor_proto)) for e in events.Tensors(tag)}
        for tag in tags["tensors"]
    }
    for tag in tags["scalars"]:
        curves[tag] = {event.step: event.value for event in events.Scalars(tag)}
    return curves


def test_tensorboard_has_the_values_of_the_records(program: Programs, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = program("tracked.py", "tensorboard", tmp_path / "tb", STEPS, env=ENV)
    check(run, read_tensorboard(tmp_path / "tb"))
    # The forked child wrote nothing.
    assert len(list((tmp_path / "tb").iterdir())) == 1


def test_mlflow_has_the_values_of_the_records(program: Programs, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    run = program("tracked.py", "mlflow", tmp_path / "ml", STEPS, env=ENV)
    # MLflow has a file for each metric. A line is time, value and step.
    curves = {
        "/".join(file.parts[file.parts.index("metrics") + 1 :]): {
            int(line.split()[2]): float(line.split()[1]) for line in file.read_text().splitlines()
        }
        for file in (tmp_path / "ml").rglob("metrics/**/*")
        if file.is_file()
    }
    check(run, curves)


def wandb_rows(folder: Path) -> Iterator[dict[str, float]]:
    """The rows of the only offline run. Its file is a log in LevelDB's format with messages of W&B."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.rglob("*.wandb")
    data, at, message = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<4xHB", data, at)
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # The whole message, or its last part.
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            message = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}


def test_wandb_has_the_values_of_the_records_and_keeps_the_steps_of_the_script(
    program: Programs, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    folder = tmp_path / "wb"
    folder.mkdir()
    run = program("tracked.py", "wandb", folder, STEPS, env=ENV)
    assert run.exit_code == 0, run.stderr

    rows = list(wandb_rows(folder))
    assert [row["_step"] for row in rows if "loss" in row] == [0, 100, 200, 300]
    told = {
        row["headspace/step"]: row["headspace/step_ms"] for row in rows if "headspace/step" in row
    }
    expected = from_ticks(run, "step")
    assert told
    assert told.keys() <= expected.keys()
    for step, value in told.items():
        assert value == pytest.approx(expected[step], rel=1e-5)
    last = rows[-1]
    assert last["headspace/step"] == STEPS
    assert last["headspace/run/step_ms"] == pytest.approx(run.summary()["steady_step_mean_ms"])


def test_a_tracker_that_raises_is_disabled_and_training_continues(
    program: Programs, tmp_path: Path
) -> None:
    run = program("tracked.py", "raises", tmp_path, STEPS)
    assert run.exit_code == 0, run.stderr
    assert run.summary()["steps"] == STEPS
    assert run.notices().count("integration_off") == 1
    (text,) = [n["text"] for n in run.kind("notice") if n["code"] == "integration_off"]
    assert text.startswith("`Raises` is off for this run: ConnectionError: the tracker is gone.")
    assert run.stderr.count("the tracker is gone") == 1


def test_a_tracker_that_hangs_delays_the_end_by_two_seconds_at_most(
    program: Programs, tmp_path: Path
) -> None:
    run = program("tracked.py", "hangs", tmp_path, STEPS)
    assert run.exit_code == 0, run.stderr
    assert run.summary()["steps"] == STEPS
    assert "`Hangs` did not log the last metrics within 2 s" in run.stderr


class Kept(Sink):
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.closed = False

    def log(self, step: int, time: float, values: object) -> None:
        self.steps.append(step)

    def close(self) -> None:
        self.closed = True


def test_a_custom_sink_is_called_during_training_and_closed_at_the_end(
    runs: Runs,
) -> None:
    sink = Kept()
    with headspace.start(to=[sink, runs.path / "elsewhere"], interval=0.05) as session:
        assert str(runs.path / "elsewhere") in session.folder
        list(headspace.wrap(range(10)))
        wait_until(lambda: 10 in sink.steps, "the sink is told of the tenth step")
        assert not sink.closed
    assert sink.closed


class Stuck(Sink):
    """Hangs at the first call until it is released."""

    def __init__(self) -> None:
        self.called, self.let_go = threading.Event(), threading.Event()

    def log(self, step: int, time: float, values: object) -> None:
        self.called.set()
        self.let_go.wait()


def test_a_tracker_that_hangs_delays_no_other_tracker(runs: Runs) -> None:
    stuck, sink = Stuck(), Kept()
    with headspace.start(to=[stuck, sink], interval=0.05):
        list(headspace.wrap(range(10)))
        assert stuck.called.wait(DEADLINE_S)
        wait_until(lambda: 10 in sink.steps, "the other is told of the tenth step")
        told = len(sink.steps)
        wait_until(lambda: len(sink.steps) > told, "and of what comes after it")
    assert sink.closed
    stuck.let_go.set()


def test_the_cost_of_a_tracker_is_part_of_the_reported_overhead(runs: Runs) -> None:
    class Busy(Sink):
        def log(self, step: int, time: float, values: object) -> None:
            while thread_time() < 1:  # CPU time of this thread, which belongs to the sink.
                pass

    with headspace.start(to=Busy(), interval=0.25):
        list(headspace.wrap(range(10)))
        # The rest of headspace takes a few milliseconds of CPU time per second.
        wait_until(lambda: counted(runs) > 1, "what it used is counted", timeout=30)


def counted(runs: Runs) -> float:
    """CPU seconds of the agent in the records."""
    text = (runs.folder / "rank0.jsonl").read_text()
    told = re.findall(r'"headspace\.agent\.cpu\.time":([\d.e+-]+)', text)
    return float(told[-1]) if told else 0.0


class Refusing(Kept):
    def open(self, rank: int) -> bool:
        raise ConnectionError("no tracker is there")


@pytest.mark.parametrize(
    ("more", "error"),
    [(Refusing(), ConnectionError), (headspace.Prometheus(host="no.such.host.invalid"), OSError)],
    ids=["a sink", "a destination"],
)
def test_a_failed_start_closes_what_it_opened_and_leaves_no_folder(
    runs: Runs, more: Any, error: type[Exception]
) -> None:
    sink = Kept()
    with pytest.raises(error):
        headspace.start(to=[sink, more])
    assert sink.closed
    assert not runs.folders
    headspace.start().stop()


def test_the_summary_writer_of_the_user_stays_open(runs: Runs) -> None:
    class Writer:
        closed = False
        told: list[tuple[str, float, int, float]] = []  # noqa: RUF012

        def add_scalar(self, tag: str, value: float, step: int, walltime: float) -> None:
            self.told.append((tag, value, step, walltime))

        def flush(self) -> None: ...

        def close(self) -> None:
            self.closed = True

    writer = Writer()
    with headspace.start(to=TensorBoard(writer), interval=0.05):
        list(headspace.wrap(range(10)))
    assert ("headspace/steps_per_s", 10) in [(tag, step) for tag, _, step, _ in writer.told]
    assert not writer.closed


def test_without_an_active_mlflow_run_the_start_says_what_to_do(runs: Runs) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(ValueError, match=r"call `mlflow\.start_run\(\)` first"):
        headspace.start(to=MLflow())
    assert not runs.folders


@pytest.mark.parametrize(
    ("sink", "library", "package"),
    [
        (lambda: TensorBoard("x"), "tensorboard.summary", "tensorboard"),
        (lambda: Wandb(), "wandb", "wandb"),
        (lambda: MLflow(), "mlflow", "mlflow-skinny"),
    ],
)
def test_a_missing_library_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, sink: object, library: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"run `pip install {package}`"):
        sink()  # type: ignore[operator]


def test_importing_the_integrations_imports_none_of_their_libraries() -> None:
    code = (
        "import sys, headspace.integrations;"
        "print([m for m in ('wandb', 'mlflow', 'tensorboard', 'numpy') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert told.stdout.strip() == "[]"


def test_the_snippet_of_the_documentation_runs(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    text = (Path(__file__).parents[2] / "docs" / "exporting.md").read_text()
    (snippet,) = re.findall(
        r"```python\n(import headspace\nfrom headspace\.integ.*?)```", text, re.S
    )
    monkeypatch.chdir(tmp_path)
    exec(snippet, {"train": lambda: list(headspace.wrap(range(10)))})
    assert "headspace/run/overhead_pct" in read_tensorboard(tmp_path / "runs" / "x")
