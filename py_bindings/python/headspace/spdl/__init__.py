"""Records the stages and queues of SPDL's pipelines, by SPDL's own names.

    import headspace.spdl

    pipeline = builder.build(num_threads=4, **headspace.spdl.hooks())

``build_pipeline`` and ``run_pipeline_in_subprocess`` accept the same arguments. If a library builds the
pipeline (``spdl.dataloader``, the regions of ``PipelineBuilder.to``), call :func:`install`: it makes
these hooks SPDL's default.

The time of a call is defined as in SPDL's own statistics: from the start of a task to its end, including
the wait for a free thread. Queues are measured at each put and get, not sampled. SPDL's own statistics
continue as before.
"""

from __future__ import annotations

try:
    from spdl import pipeline as _spdl  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "spdl":
        raise
    raise ModuleNotFoundError(
        "`headspace.spdl` needs the package `spdl`: run `pip install spdl`",
        name="spdl",
    ) from error

from headspace.spdl._hooks import TaskHook, hooks, install, task_hook
from headspace.spdl._queues import Queue

__all__ = ["Queue", "TaskHook", "hooks", "install", "task_hook"]
