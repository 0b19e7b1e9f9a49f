"""The destinations that `start(to=)` and `HEADSPACE_EXPORT` accept, and the messages for those that they refuse."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Runs

import headspace


@pytest.fixture
def aloud(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("HEADSPACE_QUIET", "0")
    return runs


@pytest.fixture
def used_port() -> Iterator[int]:
    """A port that is already in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        yield port


@pytest.mark.parametrize("wrong", [5, [5], 1.5, object(), b"runs", {"runs": 1}, [["runs"]]])
def test_an_invalid_destination_raises_a_type_error_that_lists_the_valid_ones(
    runs: Runs, wrong: Any
) -> None:
    with pytest.raises(TypeError, match=r"`to` is not a destination: .*a path.*`Prometheus`"):
        headspace.start(to=wrong)
    assert not runs.folders


def test_a_class_instead_of_a_destination_raises_an_error_with_the_right_spelling(
    runs: Runs,
) -> None:
    wrong: Any = headspace.Prometheus
    with pytest.raises(TypeError, match=r"write `Prometheus\(\.\.\.\)`"):
        headspace.start(to=wrong)


def test_a_second_folder_is_an_error_and_the_same_one_twice_is_not(
    runs: Runs, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with pytest.raises(ValueError, match=r"more than one folder for the run: .*one.* and .*two"):
        headspace.start(to=[one, headspace.JsonLines(two)])
    with pytest.raises(ValueError, match="empty path"):
        headspace.start(to="")
    assert not one.exists()
    with headspace.start(to=[str(one), headspace.JsonLines(one), headspace.JsonLines()]) as session:
        assert session.folder.startswith(str(one))


def test_a_destination_of_both_the_environment_and_the_script_is_reported_once(
    aloud: Runs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADSPACE_EXPORT", "prometheus:9999, :9464")
    headspace.start(to=headspace.Prometheus(port=0)).stop()
    err = capfd.readouterr().err
    assert err.count("`prometheus:9999` is ignored, because the script itself uses") == 1
    assert err.count("`:9464` names no destination") == 1
    assert aloud.notices().count("setting_refused") == 2


def test_each_destination_of_the_environment_that_does_not_open_is_reported(
    aloud: Runs,
    used_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADSPACE_EXPORT", f"smoke=secret,prometheus:{used_port},pipe:")
    headspace.start().stop()
    err = capfd.readouterr().err
    assert err.count("no destination is called `smoke`") == 1
    assert "secret" not in err
    assert err.count(f"cannot listen at port {used_port}") == 1
    assert err.count("`pipe`: it needs a path") == 1
    assert aloud.notices().count("setting_refused") == 3


def test_a_folder_that_cannot_be_created_closes_the_opened_destinations(
    runs: Runs, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    path = tmp_path / "socket"
    with pytest.raises(OSError, match="file"):
        headspace.start(to=[headspace.Pipe(path, socket=True), file / "runs"])
    assert not path.exists()
    assert file.read_text() == "mine"
