"""The options of a probe in the environment."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from running import Runs

import headspace
from headspace import _environment, _settings
from headspace._native import LEAST_PROBE_STEPS


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The list of refused options. The environment sets none at first."""
    for name in (
        "EPOCHS",
        "TOTAL_STEPS",
        "PROBE_STEPS",
        "NUM_CACHES",
        "RETURN_CACHES_AFTER",
        "STOP_AFTER",
        "RUN",
    ):
        monkeypatch.delenv(f"HEADSPACE_{name}", raising=False)
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(_environment, "refused", found)
    return found


@pytest.mark.usefixtures("refused")
def test_options_that_are_not_set_have_their_defaults() -> None:
    assert _settings.probe_steps() is None
    assert (_settings.num_caches(), _settings.return_caches_after()) == (10, 100)
    assert _settings.stop_after() is None
    assert not _settings.stops_after_probe()
    assert not _settings.exactly_once()


@pytest.mark.parametrize(
    ("name", "value", "read", "expected"),
    [
        ("HEADSPACE_EPOCHS", "90", _settings.epochs, 90),
        ("HEADSPACE_TOTAL_STEPS", "5000", _settings.total_steps, 5000),
        ("HEADSPACE_PROBE_STEPS", "500", _settings.probe_steps, 500),
        ("HEADSPACE_NUM_CACHES", " 4 ", _settings.num_caches, 4),
        ("HEADSPACE_RETURN_CACHES_AFTER", "7", _settings.return_caches_after, 7),
        ("HEADSPACE_RETURN_CACHES_AFTER", "7", _settings.num_caches, 7),
        ("HEADSPACE_STOP_AFTER", "1000", _settings.stop_after, 1000),
        ("HEADSPACE_STOP_AFTER_PROBE", "yes", _settings.stops_after_probe, True),
        ("HEADSPACE_EXACTLY_ONCE", "1", _settings.exactly_once, True),
        ("HEADSPACE_EXACTLY_ONCE", "off", _settings.exactly_once, False),
    ],
)
def test_an_option_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    refused: list[tuple[str, str]],
    name: str,
    value: str,
    read: Callable[[], Any],
    expected: object,
) -> None:
    monkeypatch.setenv(name, value)

    assert read() == expected
    assert refused == []


@pytest.mark.parametrize(
    ("name", "value", "read", "default", "said"),
    [
        ("HEADSPACE_EPOCHS", "0", _settings.epochs, None, "of 1 or more"),
        (
            "HEADSPACE_TOTAL_STEPS",
            "1.5",
            _settings.total_steps,
            None,
            "length of the run is unknown",
        ),
        ("HEADSPACE_PROBE_STEPS", "199", _settings.probe_steps, None, "of 200 or more"),
        ("HEADSPACE_PROBE_STEPS", "many", _settings.probe_steps, None, "as the loader needs"),
        ("HEADSPACE_NUM_CACHES", "0", _settings.num_caches, 10, "from 1 to 100; 10 is used"),
        ("HEADSPACE_NUM_CACHES", "1e3", _settings.num_caches, 10, "10 is used"),
        ("HEADSPACE_RETURN_CACHES_AFTER", "-1", _settings.return_caches_after, 100, "100 is used"),
        ("HEADSPACE_STOP_AFTER", "9", _settings.stop_after, None, "of 100 or more"),
        ("HEADSPACE_STOP_AFTER_PROBE", "maybe", _settings.stops_after_probe, False, "continues"),
        ("HEADSPACE_EXACTLY_ONCE", "twice", _settings.exactly_once, False, "keeps its length"),
    ],
)
def test_an_invalid_option_is_reported_once_and_its_default_is_used(
    monkeypatch: pytest.MonkeyPatch,
    refused: list[tuple[str, str]],
    name: str,
    value: str,
    read: Callable[[], Any],
    default: object,
    said: str,
) -> None:
    monkeypatch.setenv(name, value)

    assert [read(), read()] == [default, default]
    ((setting, problem),) = refused
    assert setting == name
    assert f"`{value}`" in problem
    assert said in problem


def test_a_probe_needs_at_least_the_documented_number_of_steps() -> None:
    least = LEAST_PROBE_STEPS
    headspace.wrap([0], mode="probe", probe_steps=least)
    with pytest.raises(ValueError, match=f"at least {least} steps"):
        headspace.wrap([0], mode="probe", probe_steps=least - 1)


@pytest.mark.usefixtures("refused")
def test_the_source_of_the_options_is_the_code_that_sets_the_mode_or_else_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _settings.options_from() == "environment"
    monkeypatch.setenv("HEADSPACE_RUN", "PYTHONPATH")
    assert _settings.options_from() == "run"
    assert _settings.options_from("probe") == "wrap"


def test_a_probe_repeats_the_requested_number_of_batches(runs: Runs) -> None:
    """A regression: only mode `replay` used `num_caches` before."""
    probed = headspace.wrap(
        itertools.count(), mode="probe", num_caches=3, probe_steps=300, stop_after_probe=True
    )
    for _ in probed:
        pass
    headspace.stop()

    assert runs.kind("probe")[0]["cached_batches"] == 3
    assert runs.kind("run")[0]["loader"]["options_from"] == "wrap"


def test_an_option_refused_during_a_session_is_reported(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    headspace.start()
    monkeypatch.setenv("HEADSPACE_MODE", "prob")
    for _ in headspace.wrap([0] * 10):
        pass
    headspace.stop()

    (said,) = [notice for notice in runs.kind("notice") if "HEADSPACE_MODE" in notice["text"]]
    assert "`prob` is not a mode" in said["text"]
