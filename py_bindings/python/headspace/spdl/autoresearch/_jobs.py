"""Runs experiments as local processes under ``headspace run``, each in its own folder.

    <workdir>/headspace/<job>/
    ├── job.json     what was launched
    ├── pid          process ID of the shell that leads the job's process group
    ├── output.log   what the command printed
    ├── exit         its exit code
    ├── cancelled    exists if the engine cancelled the job
    ├── probed       exists if the job was ended because its probe was done
    └── records/     headspace's run folders

A job can outlive the engine. Its whole state is in its folder. So an engine that was killed and
restarted finds the job: running, or ended with its exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headspace._processes.ending import Ending
from headspace._settings import MEASURE, PROBE
from headspace.spdl.autoresearch._records import Progress

__all__ = ["Job", "Jobs"]

#: Environment variable with the job's folder, set in all its processes.
MARK = "HEADSPACE_SPDL_JOB"

# The shell stays, to write the exit code of the command. It traps no signal: until `exec` the child would
# have the shell's handlers, and a signal in between would be lost.
_LEAD = """
folder=$1; shift
echo $$ > "$folder/pid.new" && mv "$folder/pid.new" "$folder/pid"
"$@"
code=$?
echo $code > "$folder/exit.new" && mv "$folder/exit.new" "$folder/exit"
"""


@dataclass(frozen=True)
class Job:
    """One launch of an experiment."""

    job_id: str
    run_id: str
    """The engine's name of the experiment."""
    command: str
    """The command from the engine, unchanged."""
    mode: str
    """`probe` for the engine's headspace experiment, else `measure`."""
    started_at: float
    """Unix time in seconds."""


class Jobs:
    """The engine's execution capability: launch, status, progress, cancel, duration.

    Args:
        workdir: The workdir of the engine, if it is known already.
    """

    def __init__(self, workdir: Path | None) -> None:
        # Absolute, because the path of its folder identifies a job.
        self._workdir = None if workdir is None else workdir.absolute()
        #: The jobs that this process started, and must reap.
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._progress: dict[str, Progress] = {}

    def folder(self, job_id: str) -> Path:
        """The folder of a job."""
        if self._workdir is None:
            raise RuntimeError(
                "the workdir is unknown: the engine passed none, and launched no job"
            )
        return self._workdir / "headspace" / job_id

    def job(self, job_id: str) -> Job | None:
        """The job with this id; None if there is none."""
        try:
            return Job(**json.loads((self.folder(job_id) / "job.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def ended(self) -> list[Job]:
        """The jobs that succeeded, ordered by start."""
        jobs = [job for job in self._all() if self._has_succeeded(job.job_id)]
        return sorted(jobs, key=lambda job: job.started_at)

    def _all(self) -> list[Job]:
        if self._workdir is None:
            return []
        names = [path.parent.name for path in (self._workdir / "headspace").glob("*/job.json")]
        return [job for job in map(self.job, names) if job is not None]

    def launch(self, command: str, workdir: Path) -> str:
        """Starts ``command``, a line for the shell, in ``workdir``, and returns the id of the job."""
        self._workdir = workdir = workdir.absolute()
        run_id, experiment = _prepared(workdir)
        # Jobs of an engine that was killed after a launch and before it recorded the launch.
        for orphan in self._all():
            if orphan.run_id == run_id:
                self._end(orphan.job_id)
        mode = PROBE if experiment.get("_is_headspace") else MEASURE
        job_id, folder = self._new_folder(run_id)
        job = Job(job_id, run_id, command, mode, time.time())
        new = folder / "job.json.new"
        new.write_text(json.dumps(asdict(job), indent=2) + "\n")
        new.replace(folder / "job.json")
        watched = [
            *(sys.executable, "-m", "headspace", "run", "--mode", mode, "--quiet"),
            *("--dir", str(folder / "records"), "--", "/bin/sh", "-c", command),
        ]
        with (folder / "output.log").open("wb") as log:
            self._children[job_id] = subprocess.Popen(
                ["/bin/sh", "-c", _LEAD, "headspace-job", str(folder), *watched],
                cwd=workdir,
                env={**os.environ, MARK: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return job_id

    def status(self, job_id: str) -> str:
        """``RUNNING``, ``SUCCEEDED`` or ``FAILED``. Waits only while it ends a job whose probe is done."""
        job = self.job(job_id)
        if job is None:
            return "FAILED"
        if self.exit_code(job_id) is None and self._is_alive(job_id):
            if job.mode != PROBE or not self._read_progress(job_id).is_probed:
                return "RUNNING"
            # After its probe a run gives no further information.
            (self.folder(job_id) / "probed").touch()
            if not self._end(job_id):
                return "RUNNING"
        return "SUCCEEDED" if self._has_succeeded(job_id) else "FAILED"

    def progress(self, job_id: str) -> str | None:
        """A text that changes whenever a loop takes another batch; None before the first batch."""
        return self._read_progress(job_id).text

    def cancel(self, job_id: str) -> bool:
        """Ends a job and all its processes. Returns whether none of them is left."""
        if self._is_alive(job_id):
            (self.folder(job_id) / "cancelled").touch()
        return self._end(job_id)

    def duration(self, job_id: str) -> float | None:
        """Seconds that an experiment ran.

        None for a probe and for a failed job, because the engine marks the shortest duration as the best.
        """
        job = self.job(job_id)
        if job is None or job.mode == PROBE:
            return None
        if self.exit_code(job_id) is None and self._is_alive(job_id):
            return time.time() - job.started_at
        if not self._has_succeeded(job_id):
            return None
        return (self.folder(job_id) / "exit").stat().st_mtime - job.started_at

    def exit_code(self, job_id: str) -> int | None:
        """The command's exit code in a shell; None while it runs, and if the shell was killed."""
        return _read_number(self.folder(job_id) / "exit")

    def was_cancelled(self, job_id: str) -> bool:
        """Whether the engine cancelled the job. It cancels jobs that stall."""
        return (self.folder(job_id) / "cancelled").exists()

    def _has_succeeded(self, job_id: str) -> bool:
        """Whether a job that has ended succeeded, or was ended after its probe."""
        if (self.folder(job_id) / "probed").exists():
            return True
        return self.exit_code(job_id) == 0 and not self.was_cancelled(job_id)

    def _read_progress(self, job_id: str) -> Progress:
        progress = self._progress.get(job_id)
        if progress is None:
            progress = self._progress[job_id] = Progress(self.folder(job_id) / "records")
        progress.read()
        return progress

    def _pid(self, job_id: str) -> int | None:
        if job_id in self._children:
            return self._children[job_id].pid
        return _read_number(self.folder(job_id) / "pid")

    def _is_alive(self, job_id: str) -> bool:
        child = self._children.get(job_id)
        if child is not None:
            return child.poll() is None
        pid = self._pid(job_id)
        return pid is not None and _runs(pid, self.folder(job_id))

    def _end(self, job_id: str) -> bool:
        pid = self._pid(job_id)
        if pid is not None and self._is_alive(job_id):
            # The shell may exit at once while the command is still writing its records.
            Ending(pid, (MARK, str(self.folder(job_id)))).wait()
        return not self._is_alive(job_id)

    def _new_folder(self, run_id: str) -> tuple[str, Path]:
        number = 1
        while True:
            job_id = run_id if number == 1 else f"{run_id}.{number}"
            folder = self.folder(job_id)
            try:
                folder.mkdir(parents=True)
                return job_id, folder
            except FileExistsError:
                number += 1


def _prepared(workdir: Path) -> tuple[str, dict[str, Any]]:
    """The experiment that the engine has just prepared, and its specification.

    The engine passes only the command to a launch. But preparing an experiment ends with writing
    ``meta.json``, and after the launch the engine first writes ``job_id.txt``. So the experiment is the
    one that has the first file and not yet the second. Launches follow the order of preparation.
    """
    waiting = []
    for meta in workdir.glob("runs/*/meta.json"):
        launched, prepared = meta.with_name("job_id.txt"), meta.stat().st_mtime_ns
        if not launched.exists() or launched.stat().st_mtime_ns < prepared:
            waiting.append((prepared, meta))
    for _, meta in sorted(waiting):
        try:
            experiment = json.loads(meta.read_text())
        except ValueError:
            continue
        if isinstance(experiment, dict):
            return meta.parent.name, experiment
    return "job", {}


def _runs(pid: int, folder: Path) -> bool:
    """Whether that process belongs to the job. A process ID can be reused, but not a folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(folder) in words


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
