"""Provides a platform for SPDL's autoresearch engine that measures unedited scripts with headspace.

    spdl autoresearch engine --workflow spdl.autoresearch.pipeline_optimization:create_workflow \\
        --workdir search -- --platform headspace --agent codex --source-dir . \\
        --pipeline-script train.py --base-launch-command 'python train.py'

The engine finds it by the entry point ``headspace`` of the group ``spdl.autoresearch.platforms``.
Experiments are local processes under ``headspace run``. The engine asks its coding agent to add timing to
the script, and to add a cache for a *headspace experiment* (the engine's name for a run with free data). The
platform answers these prompts with the unchanged script and does not call the agent: headspace measures the
unchanged script, and replaces the headspace experiment by a probe.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headspace import _settings
from headspace.spdl.autoresearch._agent import Agent
from headspace.spdl.autoresearch._evidence import Evidence
from headspace.spdl.autoresearch._jobs import Jobs

__all__ = ["Availability", "Provider"]

_log = logging.getLogger(__name__)


class Availability(NamedTuple):
    """Whether the platform can be used, and the reason if it cannot."""

    available: bool
    reason: str = ""


class Provider:
    """The entry point. It creates the platform for one run of the engine."""

    #: As in ``--platform headspace``.
    name = "headspace"
    #: The engine's own ``local`` has 10. ``--platform auto`` takes the highest that is available.
    priority = 20

    def is_available(self, config: dict[str, Any], workdir: Path | None) -> Availability:
        """Available if headspace is on, and the engine runs complete experiments."""
        if not _settings.enabled():
            reason = "the environment variable `HEADSPACE` turns headspace off (unset it)"
            return Availability(False, reason)
        mode = str(config.get("local_execution_mode", "full"))
        if mode != "full":
            reason = f"`local_execution_mode` is `{mode}`, and headspace supports only `full`"
            return Availability(False, reason)
        return Availability(True)

    def create(self, config: dict[str, Any], workdir: Path | None, agent: Any) -> Any:
        """The platform: the engine's own local platform, with the jobs and the evidence of headspace.

        Experiments run one at a time, because two on one machine would affect each other's measurements.
        The engine's own ``--max-concurrency N``, before the ``--``, overrides this.
        """
        from spdl.autoresearch.pipeline_optimization._platform import create_platform

        if "max_concurrency" in config:
            config["max_concurrency"] = 1
            _log.info(
                "headspace: experiments run one at a time, because two would affect each other's "
                "measurements"
            )
        local = create_platform({**config, "platform": "local"}, workdir)
        jobs = Jobs(workdir)
        return replace(local, execution=jobs, evidence=Evidence(jobs), agent=Agent(agent))
