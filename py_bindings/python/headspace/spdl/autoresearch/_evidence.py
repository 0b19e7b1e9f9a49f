"""Collects the evidence of an experiment for the engine's analysis, from the records.

- The JSON block that the analysis must return, filled in, so that the agent estimates nothing.
- The verdict, and the pipeline's events under the names that SPDL's stages log.
- The traceback of a failure. A job that failed has no metrics here: the engine could take the best of
  them as a result.

The engine distinguishes failures at start-up from later ones by the text of the evidence. The name of a
metric means that the work had begun. So if there was no batch, the text has the word `startup` and no
name of a metric.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from headspace._settings import MEASURE
from headspace.spdl.autoresearch._events import events, log_lines, system
from headspace.spdl.autoresearch._jobs import Job, Jobs
from headspace.spdl.autoresearch._metrics import block
from headspace.spdl.autoresearch._records import Measured, measured

__all__ = ["Evidence"]

#: Words that mean to the engine that an experiment had begun its work (`_failures.py`, spdl 0.8).
_MARKERS = ("step_time", "ttfb", "data_readiness", "sm_util", "[autoresearch]")
_TRACEBACK = "Traceback (most recent call last):"
#: Maximum number of lines of a traceback, and of a log without a traceback.
_TRACEBACK_LINES = 60
_LOG_LINES = 40


class Evidence:
    """The engine's evidence capability."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def collect(self, job_id: str, metrics_dir: Path) -> Any:
        """The evidence of a job that has ended. Its files are written to ``metrics_dir``."""
        from spdl.autoresearch.pipeline_optimization._platform import _MetricsEvidence

        metrics_dir.mkdir(parents=True, exist_ok=True)
        folder = self._jobs.folder(job_id)
        found = measured(folder / "records")
        log = folder / "output.log"
        exit_code = self._jobs.exit_code(job_id)
        how = _ending(exit_code, was_cancelled=self._jobs.was_cancelled(job_id))
        has_failed = self._jobs.status(job_id) != "SUCCEEDED"
        tail = _tail(log, tell_metrics=found.steps > 0)
        startup = "during startup, before its first batch"
        when = f"after {found.steps} batches" if found.steps else startup
        error = f"The job failed {when}: {how}.\n{tail}" if has_failed else None
        answer = self._answer(self._jobs.job(job_id), found, error)
        _keep(metrics_dir, found, answer)
        return _MetricsEvidence(
            system_metrics=system(found) if found.steps else "nothing was measured",
            pipeline_stats_log="\n".join((*log_lines(found), f"## {log}", tail)),
            metrics_summary=_summary(found, answer, error),
            log_paths=[str(log)],
            exit_code=exit_code,
            error_summary=error,
            progress_seen=found.steps > 0,
        )

    def _answer(self, job: Job | None, found: Measured, error: str | None) -> dict[str, Any]:
        """The JSON block for the analysis. The metrics of a successful job are stored for comparisons."""
        if error is not None or job is None:
            return block(found, mode="failed", error=error or "")
        others = {
            other.run_id: metrics
            for other in self._jobs.ended()
            if other.mode == MEASURE and (metrics := self._kept(other.job_id))
        }
        duration = self._jobs.duration(job.job_id)
        answer = block(found, mode=job.mode, others=others, run_id=job.run_id, duration_s=duration)
        _write_json(self._jobs.folder(job.job_id) / "metrics.json", answer["metrics"])
        return answer

    def _kept(self, job_id: str) -> dict[str, Any] | None:
        try:
            kept = json.loads((self._jobs.folder(job_id) / "metrics.json").read_text())
        except (OSError, ValueError):
            return None
        return kept if isinstance(kept, dict) else None


def _summary(found: Measured, answer: dict[str, Any], error: str | None) -> str:
    parts = [
        "## Measured by headspace\n",
        "The JSON block of the answer, filled from the records:\n",
        f"```json\n{json.dumps(answer, indent=2)}\n```\n",
    ]
    if error is not None:
        parts.append(f"## The job failed\n\n```\n{error}\n```\n")
    if found.steps and found.verdict:
        parts.append(f"## Verdict\n\n```\n{found.verdict.rstrip()}\n```\n")
    rows = events(found)
    if rows:
        lines = "\n".join(f"{name}\t{value:.6g}" for name, value in rows)
        parts.append(f"## Pipeline events\n\n```\nevent\tvalue\n{lines}\n```\n")
    return "\n".join(parts)


def _keep(metrics_dir: Path, found: Measured, answer: dict[str, Any]) -> None:
    _write_json(metrics_dir / "answer.json", answer)
    if found.summary:
        _write_json(metrics_dir / "summary.json", found.summary)
    rows = events(found)
    if rows:
        lines = (f"{name}\t{value:.9g}\n" for name, value in rows)
        (metrics_dir / "pipeline_stats.tsv").write_text("event\tvalue\n" + "".join(lines))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _tail(log: Path, *, tell_metrics: bool) -> str:
    """The last traceback and the lines after it. Without a traceback, the last lines."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "(the log cannot be read)"
    if not tell_metrics:
        kept = [line for line in lines if not any(word in line.lower() for word in _MARKERS)]
        left_out = len(lines) - len(kept)
        lines = [*kept, f"({left_out} lines left out)"] if left_out else kept
    starts = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if starts:
        return "\n".join(lines[starts[-1] :][:_TRACEBACK_LINES])
    return "\n".join(lines[-_LOG_LINES:]) or "(the log is empty)"


def _ending(exit_code: int | None, *, was_cancelled: bool) -> str:
    if was_cancelled:
        return "there was no further batch, and the engine cancelled the job"
    if exit_code is None:
        return "killed"
    if exit_code > 128 and exit_code - 128 in set(signal.Signals):
        return f"killed by {signal.Signals(exit_code - 128).name}"
    return f"exit code {exit_code}"
