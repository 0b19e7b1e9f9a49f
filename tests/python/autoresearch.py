"""SPDL's autoresearch engine, run on a copy of the video example with a scripted coding agent."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from running import PROGRAMS, Record, clean_environment

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "python"
WORKFLOW = "spdl.autoresearch.pipeline_optimization:create_workflow"


def entry_point(folder: Path) -> None:
    """Writes the metadata of an installed package into `folder`, with the entry point from `pyproject.toml`."""
    text = (ROOT / "pyproject.toml").read_text()
    group = "spdl.autoresearch.platforms"
    (named,) = re.findall(rf'^\[project.entry-points."{group}"\]\n(.+)$', text, re.MULTILINE)
    name, target = (part.strip(' "') for part in named.split("="))
    info = folder / "headspace_as_installed-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: headspace-as-installed\nVersion: 0\n"
    )
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")


@dataclass
class Search:
    """One run of the engine, in its own folders."""

    folder: Path
    arguments: list[str]

    @property
    def source(self) -> Path:
        """The repository that the engine edits."""
        return self.folder / "source"

    @property
    def workdir(self) -> Path:
        """The folder in which the engine keeps its own files."""
        return self.folder / "search"

    def prepare(self, videos: list[Path]) -> None:
        """Creates a repository with the video example, a small video archive, and `codex` on the path."""
        self.source.mkdir(parents=True)
        shutil.copy(EXAMPLE / "video_classification.py", self.source)
        shutil.copytree(
            EXAMPLE / "video", self.source / "video", ignore=shutil.ignore_patterns("__pycache__")
        )
        (self.source / ".gitignore").write_text("__pycache__/\n")
        films = self.folder / "films"
        films.mkdir()
        for video in videos:
            (films / video.name).symlink_to(video)
        for command in (
            ["git", "init", "--quiet"],
            ["git", "config", "user.email", "search@example.org"],
            ["git", "config", "user.name", "search"],
            ["git", "add", "--all"],
            ["git", "commit", "--quiet", "-m", "the script as it is"],
        ):
            subprocess.run(command, cwd=self.source, check=True)
        commands = self.folder / "commands"
        commands.mkdir()
        agent = commands / "codex"
        agent.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "coding_agent.py"} "$@"\n')
        agent.chmod(0o755)
        entry_point(self.folder / "installed")

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        """Starts the engine. A second call resumes the search."""
        kept = clean_environment()
        paths = [
            *os.environ.get("PYTHONPATH", "").split(os.pathsep),
            str(self.folder / "installed"),
        ]
        script = self.source / "video_classification.py"
        command = [
            sys.executable,
            str(script),
            "--data",
            str(self.folder / "films"),
            *self.arguments,
        ]
        with (self.folder / "engine.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "spdl", "autoresearch", "engine"),
                    *("--workflow", WORKFLOW, "--workdir", str(self.workdir), "--"),
                    *("--platform", "headspace", "--agent", "codex"),
                    *("--pipeline-script", str(script), "--source-dir", str(self.source)),
                    *("--base-launch-command", " ".join(command)),
                    *("--poll-interval", "1", "--job-timeout", "8"),
                ],
                cwd=self.folder,
                env={
                    **kept,
                    **env,
                    "PYTHONPATH": os.pathsep.join(path for path in paths if path),
                    "PATH": os.pathsep.join((str(self.folder / "commands"), os.environ["PATH"])),
                    "OMP_NUM_THREADS": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What the engine printed."""
        return (self.folder / "engine.log").read_text()

    def table(self) -> dict[str, dict[str, str]]:
        """The master table by the experiments' names."""
        path = self.workdir / "master_table.tsv"
        if not path.exists():
            return {}
        with path.open() as file:
            return {row["name"]: row for row in csv.DictReader(file, delimiter="\t")}

    def state(self) -> Record:
        state: Record = json.loads((self.workdir / "state.json").read_text())
        return state

    def nodes(self) -> dict[str, Record]:
        """The hypothesis tree's nodes by name."""
        nodes = json.loads((self.workdir / "engine" / "tree.json").read_text())
        return {node["name"]: node for node in nodes}

    def summary(self, job: str) -> Record:
        """The summary of a job. It is read with `headspace report`, not with the tested platform."""
        (run,) = (self.workdir / "headspace" / job / "records").iterdir()
        done = subprocess.run(
            [sys.executable, "-m", "headspace", "report", "--json", str(run)],
            capture_output=True,
            text=True,
            check=True,
        )
        summary: Record = json.loads(done.stdout)
        return summary

    def evidence(self, run: str) -> str:
        """The evidence in the prompt for the analysis of an experiment."""
        (prompt,) = (self.workdir / "logs").glob(f"*_analyze_{run}_prompt.md")
        return prompt.read_text().split("### System Metrics", 1)[1].split("### Master Table", 1)[0]

    def leftovers(self) -> list[str]:
        """Command lines of running processes that contain the folder of this search."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in words:
                found.append(words)
        return found

    def end(self) -> None:
        """Ends all processes of the search that still run."""
        for pid in (self.workdir / "headspace").glob("*/pid"):
            try:
                os.killpg(int(pid.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
