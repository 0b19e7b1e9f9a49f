"""`headspace` alone, and `headspace demo`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import clean_environment


def headspace(*words: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headspace", *words],
        cwd=folder,
        env={**clean_environment(), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def summary_of(folder: Path) -> dict[str, Any]:
    (records,) = folder.glob("headspace-runs/*/rank0.jsonl")
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    return dict([line for line in lines if line["kind"] == "summary"][-1])


def test_without_a_command_the_first_steps_are_printed(tmp_path: Path) -> None:
    ran = headspace(folder=tmp_path)

    assert (ran.returncode, ran.stderr) == (0, "")
    for command in ("demo", "run -- python train.py", "report", "doctor", "--help"):
        assert f"headspace {command}" in ran.stdout


@pytest.mark.slow
@pytest.mark.alone  # If other tests use the cores, more threads may gain less than cheaper calls.
def test_the_demo_names_the_slow_store_and_what_more_threads_give(tmp_path: Path) -> None:
    ran = headspace("demo", folder=tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "headspace-demo" / "train.py").exists()
    summary = summary_of(tmp_path)
    assert summary["bottleneck"]["name"] == "fetch", ran.stderr
    assert summary["headspace_pct"] > 50
    remedies = [remedy["code"] for remedy in summary["remedies"]]
    assert remedies[0] == "more_workers"
    # The next step is the first remedy.
    calls = summary["remedies"][0]["change"]["to"]
    assert f"\nRun {calls} concurrent calls of `fetch` instead of 1. Measure it:\n" in ran.stdout
    assert f"    headspace demo --threads {calls}\n" in ran.stdout
    assert "--stop-after-probe -- python YOUR_TRAINING.py\n" in ran.stdout
    assert "as `headspace-demo/train.py` does" in ran.stdout


@pytest.mark.slow
def test_the_demo_proposes_another_folder_if_the_user_named_one(tmp_path: Path) -> None:
    ran = headspace("demo", "--steps", "100", folder=tmp_path, HEADSPACE_DIR="one-thread")

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "one-thread").is_dir()
    # If other tests use the cores, the first remedy may be another one than more threads.
    assert re.search("Measure it.*, with another folder for its run:\n", ran.stdout), ran.stdout
    command = r"^    HEADSPACE_DIR=(\d+)-threads headspace demo --threads \1$"
    assert re.search(command, ran.stdout, re.MULTILINE), ran.stdout


def test_the_demo_proposes_more_steps_if_it_has_no_verdict(tmp_path: Path) -> None:
    ran = headspace("demo", "--steps", "5", folder=tmp_path, HEADSPACE_DIR="my runs")

    assert ran.returncode == 0, ran.stderr
    assert "This run has no verdict" in ran.stdout
    assert "\n    HEADSPACE_DIR='my runs' headspace demo --steps 2400\n" in ran.stdout
    assert "Measure it" not in ran.stdout
    assert "--stop-after-probe -- python YOUR_TRAINING.py\n" in ran.stdout


@pytest.mark.slow
def test_the_demo_decodes_videos(tmp_path: Path) -> None:
    pytest.importorskip("av")

    ran = headspace("demo", "--video", "--threads", "2", "--steps", "300", folder=tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert "decodes them with PyAV" in ran.stdout
    assert "loads on 2 threads" in ran.stdout
    assert {stage["name"] for stage in summary_of(tmp_path)["stages"]} == {"fetch", "decode"}


def test_a_wrong_option_of_the_demo_is_named(tmp_path: Path) -> None:
    ran = headspace("demo", "--threads", "0", folder=tmp_path)

    assert ran.returncode == 2
    assert "must be at least 1, and is `0`" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_the_demo_says_why_it_cannot_begin(tmp_path: Path) -> None:
    off = headspace("demo", folder=tmp_path, HEADSPACE="0")
    assert (off.returncode, off.stdout) == (2, "")
    assert "`HEADSPACE` turns headspace off" in off.stderr

    (tmp_path / "headspace-demo").write_text("a file of the user")
    taken = headspace("demo", folder=tmp_path)
    assert (taken.returncode, taken.stdout) == (2, "")
    assert "cannot use `headspace-demo` in this folder" in taken.stderr


def test_the_demo_runs_the_program_that_the_user_has_changed(tmp_path: Path) -> None:
    changed = tmp_path / "headspace-demo" / "train.py"
    changed.parent.mkdir()
    changed.write_text("print('mine')")

    ran = headspace("demo", folder=tmp_path)
    assert "mine\n" in ran.stdout, ran.stderr
    assert "`--reset` restores it" in ran.stdout

    headspace("demo", "--reset", "--steps", "1", folder=tmp_path)
    assert "headspace.wrap(loader)" in changed.read_text()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("link", "`headspace-demo/train.py` is a link, or not a file"),
        ("linked folder", "`headspace-demo` is a link, or not a folder"),
        ("open folder", "`headspace-demo` can be written by every user"),
        ("open file", "`headspace-demo/train.py` can be written by every user"),
        ("folder of another user", "`headspace-demo` belongs to another user"),
    ],
)
def test_a_program_of_another_user_or_open_to_every_user_is_refused(
    tmp_path: Path, kind: str, reason: str
) -> None:
    folder = tmp_path / "headspace-demo"
    folder.mkdir()
    program = folder / "train.py"
    other = tmp_path / "other.py"
    other.write_text("print('not mine')")
    if kind == "link":
        program.symlink_to(other)
    else:
        program.write_text("print('not mine')")
    if kind == "linked folder":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    if kind == "open folder":
        folder.chmod(0o777)
    if kind == "open file":
        program.chmod(0o666)
    if kind == "folder of another user":
        if os.geteuid() != 0:
            pytest.skip("platform: only root can give a folder to another user")
        os.chown(folder, 65534, 65534)

    for more in ([], ["--reset"]):
        ran = headspace("demo", *more, folder=tmp_path)
        assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
        assert reason in ran.stderr
    assert other.read_text() == "print('not mine')"
