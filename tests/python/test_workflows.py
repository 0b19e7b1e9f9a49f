"""The workflows of GitHub: they are valid YAML, and their commands exist in this repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(workflow).values():
        yield from job.get("steps", [])


def commands(workflow: Path) -> list[str]:
    return [step["run"] for step in steps(workflow) if "run" in step]


def test_there_are_a_workflow_for_ci_and_one_for_releases() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]
    assert "bash .ci/run" in commands(WORKFLOWS[0])
    assert "make wheels" in commands(WORKFLOWS[1])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_make_target_and_script_of_a_workflow_exists(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = "\n".join(commands(workflow))
    targets = [
        target
        for words in re.findall(r"\bmake ((?:[a-z-]+(?: |\b))+)", text)
        for target in words.split()
    ]
    files = re.findall(r"\b(?:bash|python) (\S+/\S+)", text)

    assert [target for target in targets if f"\n{target}:" not in makefile] == []
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert targets + files != []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_has_steps_and_every_step_runs_or_uses_something(workflow: Path) -> None:
    for name, job in jobs(workflow).items():
        # A job without steps is another workflow.
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file(), name
            continue
        assert job["steps"], name
        for step in job["steps"]:
            assert len({"run", "uses"} & step.keys()) == 1, (name, step)
        for needed in job.get("needs", []):
            assert needed in jobs(workflow), (name, needed)


def test_every_uploaded_artifact_is_downloaded_and_published() -> None:
    used = [step for step in steps(WORKFLOWS[1]) if "-artifact@" in step.get("uses", "")]
    uploaded = {
        step["with"]["name"].replace("${{ matrix.architecture }}", "x86_64")
        for step in used
        if "upload" in step["uses"]
    }
    # `{a,b}` of a pattern is not known to `fnmatch`.
    patterns = [
        pattern
        for step in used
        if "download" in step["uses"]
        for pattern in step["with"].get("pattern", step["with"].get("name")).strip("{}").split(",")
    ]
    published = next(line for line in commands(WORKFLOWS[1]) if line.startswith("gh release"))

    assert uploaded == {"wheels-x86_64", "sources", "crates"}
    assert [name for name in uploaded if not any(fnmatch(name, one) for one in patterns)] == []
    for files in ("dist/*.whl", "dist/*.tar.gz", "crates/*.crate", "SHA256SUMS"):
        assert files in published


def test_the_options_of_the_wheels_exist() -> None:
    script = (ROOT / ".ci/wheels.py").read_text()
    used = [
        step["env"]["WHEELS_ARGS"]
        for step in steps(WORKFLOWS[1])
        if "wheels" in step.get("run", "")
    ]

    options = re.findall(r"--[a-z-]+", " ".join(used))

    assert "--require" in options
    assert [option for option in options if f'"{option}"' not in script] == []


def test_only_the_job_that_publishes_may_write() -> None:
    """This job runs for tags only."""
    for workflow in WORKFLOWS:
        assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}
    allowed = {name: job for name, job in jobs(WORKFLOWS[1]).items() if "permissions" in job}

    assert list(allowed) == ["publish"]
    assert allowed["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"


def test_the_wheels_are_tried_with_every_supported_python() -> None:
    (setup,) = [step for step in steps(WORKFLOWS[1]) if "setup-python" in step.get("uses", "")]
    supported = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())

    assert set(supported) <= set(setup["with"]["python-version"].split())
