"""The installed command `headspace doctor` lists the sources of a session, with the true state of each."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Runs, thread_names, wait_until

import headspace
from headspace import _native

INSTALLED = [str(Path(sys.executable).with_name("headspace"))]
MODULE = [sys.executable, "-m", "headspace"]


def doctor(*args: str, command: list[str] = INSTALLED, **env: str) -> str:
    done = subprocess.run(
        [*command, "doctor", *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def by_name(text: str) -> dict[str, dict[str, Any]]:
    return {source["name"]: source for source in json.loads(text)["sources"]}


@pytest.mark.parametrize("command", [INSTALLED, MODULE], ids=["installed", "module"])
def test_the_json_of_doctor_has_the_documented_keys(command: list[str]) -> None:
    found = json.loads(doctor("--json", command=command))

    assert list(found) == ["sources", "cost"]
    for source in found["sources"]:
        assert list(source) == ["name", "state", "reads", "reason", "remedy"]
        assert source["state"] in ("on", "off")
        assert (source["reason"] is None) == (source["state"] == "on")
        assert source["remedy"] is None or source["state"] == "off"
    cost = found["cost"]
    assert list(cost) == ["ns_per_batch", "us_per_tick", "own_cpu_us_per_s", "sources"]
    on = [source["name"] for source in found["sources"] if source["state"] == "on"]
    assert [one["name"] for one in cost["sources"]] == on
    for name in ("us_per_tick", "own_cpu_us_per_s"):
        parts = [one[name] for one in cost["sources"] if one[name] is not None]
        assert cost[name] == pytest.approx(sum(parts))
    assert cost["ns_per_batch"] > 0
    assert cost["us_per_tick"] > 0


def test_doctor_lists_the_sources_of_a_session(runs: Runs) -> None:
    with headspace.start() as session:
        assert session.flush(30)
    of_session = runs.records()[0]["sources"]

    found = by_name(doctor("--json"))

    assert list(found) == [source["name"] for source in of_session]
    for source in of_session:
        if source["state"] == "off":
            assert found[source["name"]]["reason"] == source["reason"]
            assert found[source["name"]]["remedy"] == source.get("remedy")


def test_doctor_reads_the_sources_inside_the_interpreter_and_measures_their_cost() -> None:
    found = json.loads(doctor("--json"))

    sources = {source["name"]: source["state"] for source in found["sources"]}
    assert sources["gil"] == sources["gc"] == "on"
    costs = {one["name"]: one for one in found["cost"]["sources"]}
    assert costs["gil"]["own_cpu_us_per_s"] > 0
    assert costs["gc"]["own_cpu_us_per_s"] is None


def test_the_text_names_every_source_and_fits_a_narrow_terminal() -> None:
    text = doctor()
    found = by_name(doctor("--json"))

    lines = text.splitlines()
    on = [name for name, source in found.items() if source["state"] == "on"]
    assert lines[0] == f"headspace doctor: {len(on)} of {len(found)} sources work here"
    heads = [line.split()[:2] for line in lines[2:] if line[:1].strip() and line[:4] != "cost"]
    assert heads == [[name, source["state"]] for name, source in found.items()]
    # A path or a command is not wrapped, so that it can be copied.
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
    # If several sources have the same reason and remedy, the text has them once.
    off = {(s["reason"], s["remedy"]) for s in found.values() if s["state"] == "off"}
    assert text.count("→ ") == sum(remedy is not None for _, remedy in off)


def test_a_python_without_a_gil_disables_the_source_with_a_reason() -> None:
    code = (
        "import sys; sys._is_gil_enabled = lambda: False; sys.argv = ['headspace', *sys.argv[1:]];"
        "from headspace._cli import main; sys.exit(main())"
    )
    gil = by_name(doctor("--json", command=[sys.executable, "-c", code]))["gil"]

    assert (gil["state"], gil["reason"]) == ("off", "this Python runs without a GIL")


def test_a_missing_nvidia_library_is_named() -> None:
    library = "/nowhere/libnvidia-ml.so.1"
    found = by_name(doctor("--json", HEADSPACE_NVML_LIB=library))

    assert found["gpu"]["state"] == "off"
    assert library in found["gpu"]["reason"]
    assert found["gpu"]["remedy"]


def test_doctor_leaves_no_thread_and_no_callback_in_its_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = list(map(id, gc.callbacks))

    assert _native.run_command(["headspace", "doctor"]) == 0
    assert "sources work here" in capfd.readouterr().out
    assert list(map(id, gc.callbacks)) == before
    wait_until(lambda: "hs-gil" not in thread_names(), "the thread is gone")


def test_an_unknown_option_is_refused() -> None:
    done = subprocess.run([*INSTALLED, "doctor", "--cure"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "--cure" in done.stderr


def test_a_data_set_without_a_readable_file_is_exit_code_1(tmp_path: Path) -> None:
    def exit_code(*paths: Path) -> int:
        command = [*INSTALLED, "doctor", "--data", *map(str, paths)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "file").write_text("data")

    assert [exit_code(missing), exit_code(empty)] == [1, 1]
    assert exit_code(tmp_path / "file", missing) == 0
