"""Programs with unusual objects, settings and threads get no error from headspace."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from running import DEADLINE_S, Programs, Runs

import headspace
from headspace import _environment
from headspace._loops import observe_torch
from headspace._memory.variables import frame_variables
from headspace._session import own_errors


class Loader:
    """A loader without a dictionary, whose attributes are in one of its own."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return self.parts[name]

    def __iter__(self) -> Iterator[int]:
        return iter(range(20))


def test_a_path_of_modules_that_is_no_text_is_ignored(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/x"), b"/y"])

    assert len(list(headspace.wrap(Loader()))) == 20
    headspace.stop()
    assert runs.summary()["steps"] == 20


def test_an_argument_that_is_not_utf_8_is_recorded_with_replacements(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "data-\udcff"])
    with headspace.start():
        pass

    assert runs.kind("run")[0]["argv"] == ["train.py", "data-?"]


def test_a_stream_that_accepts_no_text_is_no_error(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADSPACE_QUIET")
    monkeypatch.setattr(sys, "stderr", io.BytesIO())

    headspace.start().stop()

    assert runs.summary()["state"] == "finished"


def test_an_error_without_a_text_is_reported_by_its_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Untold(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise Untold

    monkeypatch.setattr(own_errors, "has_reported", False)

    assert own_errors.call_safely(fail) is None
    assert "not everything is measured: Untold. Training continues" in capsys.readouterr().err


def test_settings_that_another_thread_has_recorded_are_no_error(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Taken(list[Any]):
        """Seems to have an entry until it is read."""

        def __bool__(self) -> bool:
            return True

    monkeypatch.setattr(_environment, "refused", Taken())

    with headspace.start():
        pass


def test_a_model_that_raises_does_not_show_the_role_of_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Model:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("the model is being changed")

    model = Model()
    monkeypatch.setattr(own_errors, "has_reported", True)
    monkeypatch.setattr(observe_torch, "_models", [])
    nothing_known = observe_torch.role_by_modes()
    monkeypatch.setattr(observe_torch, "_models", [observe_torch._Model(model)])

    assert observe_torch.role_by_modes() == nothing_known


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="platform: Python copies no local variables back"
)
def test_the_local_variables_of_a_function_with_a_debugger_are_left_alone() -> None:
    def function() -> Iterator[FrameType]:
        number = 1
        yield sys._getframe()
        print(number)

    running = function()
    frame = next(running)
    assert dict(frame_variables(frame))["number"] == 1

    frame.f_trace = lambda *_: None

    assert frame_variables(frame) == []


def test_the_error_of_a_worker_that_finds_its_trainer_reaches_the_program(
    program: Programs,
) -> None:
    ran = program("late_worker.py")

    assert (ran.exit_code, ran.stdout) == (0, "ValueError\n"), ran.stderr


@pytest.mark.parametrize("then", ["blocks", "ends"])
def test_a_program_whose_stderr_nobody_reads_ends(program: Programs, then: str) -> None:
    started = program.start("unread_stderr.py", then)
    started.wait_for("ready")
    if then == "blocks":
        started.send(signal.SIGTERM)

    code = started.process.wait(timeout=DEADLINE_S)

    assert code == (-signal.SIGTERM if then == "blocks" else 0)
