"""The README and docs/commands.md are true: what their commands print, the variables, the targets and the links.

`test_snippets.py` runs their Python, and `test_documented_commands.py` their commands, as they are printed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, read_blocks

README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs/commands.md").read_text()

#: Enough ticks in a second for an interval.
OFTEN = {"HEADSPACE_INTERVAL": "50ms", "HEADSPACE_QUIET": "1"}


def run(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        args,
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The README's snippet with a loader and a training step around it."""
    snippet = next(block.text for block in read_blocks("python") if block.page == "README.md")
    path = tmp_path / "train.py"
    path.write_text(
        "import time\n"
        "loader = [[i] for i in range(1200)]\n"
        "def train_step(batch):\n"
        "    time.sleep(0.001)\n" + snippet
    )
    return path


def test_the_snippet_measures_a_loop(script: Path) -> None:
    done = run(sys.executable, script.name, cwd=script.parent)

    assert done.stdout == ""
    assert "1,200 steps" in done.stderr or "1200 steps" in done.stderr
    assert "less waiting saves at most" in done.stderr


def test_the_unchanged_script_measures_the_floor(script: Path) -> None:
    done = run(sys.executable, script.name, cwd=script.parent, HEADSPACE_MODE="probe")

    assert "floor" in done.stderr
    (summary,) = (script.parent / "headspace-runs").glob("*/rank0.jsonl")
    last = json.loads(summary.read_text().splitlines()[-1])
    assert last["kind"] == "summary"
    assert last["mode"] == "probe"


def test_the_report_command_prints_text_and_json(script: Path) -> None:
    run(sys.executable, script.name, cwd=script.parent)

    text = run(sys.executable, "-m", "headspace", "report", cwd=script.parent).stdout
    (folder,) = (script.parent / "headspace-runs").iterdir()
    command = Path(sys.executable).with_name("headspace")
    summary = json.loads(run(str(command), "report", "--json", str(folder), cwd=ROOT).stdout)

    assert folder.name in text
    assert summary["run_id"] == folder.name
    # Replayed steps come on top.
    assert summary["steps"] >= 1200


def test_two_folders_of_runs_are_compared(script: Path) -> None:
    for side in ("before", "after"):
        run(sys.executable, script.name, cwd=script.parent, HEADSPACE_DIR=side, **OFTEN)

    command = (sys.executable, "-m", "headspace", "compare", "before", "after")
    text = run(*command, cwd=script.parent).stdout
    found = json.loads(run(*command, "--json", cwd=script.parent).stdout)
    # The step is seven times as long, far more than noise.
    slow = script.with_name("slow.py")
    slow.write_text(script.read_text().replace("sleep(0.001)", "sleep(0.008)"))
    run(sys.executable, slow.name, cwd=script.parent, HEADSPACE_DIR="slow", **OFTEN)
    judged = subprocess.run(
        [*command[:-1], "slow", "--fail-if-slower", "5%"],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert text.startswith("headspace compare\n")
    assert found["step_ms"]["difference_pct"]["low"] < found["step_ms"]["difference_pct"]["high"]
    assert {change["name"] for change in found["changed"]} <= {"argv"}
    assert judged.returncode == 1, judged.stdout + judged.stderr


def test_doctor_prints_what_the_readme_shows() -> None:
    texts = [block.text for block in read_blocks("text") if block.page == "docs/commands.md"]
    (shown,) = [text for text in texts if text.startswith("headspace doctor")]
    command = Path(sys.executable).with_name("headspace")

    told = run(str(command), "doctor", cwd=ROOT).stdout
    found = json.loads(run(str(command), "doctor", "--json", cwd=ROOT).stdout)

    assert told.startswith("headspace doctor: ")
    reads = {source["name"]: source["reads"] for source in found["sources"]}
    assert re.search(r"\d+ of (\d+) sources work here", shown)[1] == str(len(reads))
    # The page leaves out some sources. The texts that it shows are those of the sources.
    for name, words in re.findall(
        r"^(\w+) +(?:on|off) +(.*(?:\n {20,}[^→\s].*)*)", shown, re.MULTILINE
    ):
        assert reads[name].split()[:6] == words.split()[:6], name


def test_with_headspace_0_nothing_is_written_or_printed(script: Path) -> None:
    done = run(sys.executable, script.name, cwd=script.parent, HEADSPACE="0")

    assert done.stderr == ""
    assert not (script.parent / "headspace-runs").exists()


def test_the_package_reads_the_variables_that_the_readme_lists() -> None:
    cells = re.findall(r"^\| (`HEADSPACE[^|]*)\|", COMMANDS, re.MULTILINE)
    told = {name for cell in cells for name in re.findall(r"HEADSPACE\w*", cell)}
    package = "".join(
        (ROOT / "py_bindings/python/headspace" / name).read_text()
        for name in ("_settings.py", "_environment.py", "_session/run_id.py")
    )
    places = [ROOT / "cli/src/lib.rs", ROOT / "py_bindings/src/session/log.rs"]
    command = "".join(place.read_text() for place in places)

    read = re.findall(
        r'(?:environ\.get|environ\.pop|_choice|_count|_switch)\(\s*"(HEADSPACE\w*)"', package
    )
    options = re.findall(r'env = "(HEADSPACE\w*)"', (ROOT / "cli/src/args.rs").read_text())
    read += re.findall(r'env::var(?:_os)?\("(HEADSPACE\w*)"', command)
    # The command sets this variable itself.
    assert told == {*read, *options} - {"HEADSPACE_RUN_PID"}


def test_every_make_target_and_every_link_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", README):
        assert f"\n{target}:" in makefile, target
    for page, folder in ((README, ROOT), (COMMANDS, ROOT / "docs")):
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", page):
            assert (folder / link).exists(), link


def test_a_script_without_a_line_of_headspace_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("spdl")
    (tmp_path / "train.py").write_text(
        "import time\n"
        "from spdl.pipeline import PipelineBuilder\n"
        "for _ in range(2):\n"
        "    pipeline = PipelineBuilder().add_source(range(600)).add_sink(3).build(num_threads=1)\n"
        "    for batch in pipeline:\n"
        "        time.sleep(0.001)\n"
    )
    command = ["-m", "headspace", "run", "--mode", "probe", "--", sys.executable, "train.py"]
    run(sys.executable, *command, cwd=tmp_path, **OFTEN)

    done = run(sys.executable, "-m", "headspace", "report", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert (summary["mode"], summary["loop"]) == ("probe", "Pipeline")
    # Replayed steps come on top.
    assert summary["steps"] >= 1200
