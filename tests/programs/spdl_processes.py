"""Trains on an SPDL pipeline whose stages run in other processes.

Usage: spdl_processes.py METHOD WHERE

METHOD is `fork`, `spawn` or `forkserver`; WHERE `pipeline` (all of it in one process) or `region`
(one stage in two).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import spdl.pipeline.defs as defs
from spdl.pipeline import PipelineBuilder, run_pipeline_in_subprocess

import headspace
import headspace.spdl

ITEMS = 60


def decode(item: int) -> int:
    if item % 10 == 3:
        raise ValueError(item)
    return item


def build(method: str, where: str) -> tuple[object, object]:
    builder = PipelineBuilder().add_source(range(ITEMS))
    if where == "pipeline":
        config = builder.pipe(decode, concurrency=2).aggregate(4).add_sink(3).get_config()
        loader = run_pipeline_in_subprocess(
            config, num_threads=2, mp_context=method, **headspace.spdl.hooks()
        )
        return loader, nothing()
    headspace.spdl.install()
    pool = defs.ProcessPoolExecutorConfig(
        max_workers=2, mp_context=method, initializer=headspace.spdl.install
    )
    builder = builder.to(pool).pipe(decode, concurrency=2).to(defs.MAIN_PROCESS)
    pipeline = builder.aggregate(4).add_sink(3).build(num_threads=1)
    return pipeline, pipeline.auto_stop()


@contextmanager
def nothing() -> Iterator[None]:
    yield


def main() -> None:
    warnings.simplefilter("ignore")
    headspace.start(interval=0.1)
    loader, going_on = build(*sys.argv[1:])
    with going_on:  # type: ignore[attr-defined]
        batches = [list(batch) for batch in headspace.wrap(loader)]  # type: ignore[call-overload]
    headspace.stop()
    print(sorted(item for batch in batches for item in batch) == expected())


def expected() -> list[int]:
    return [item for item in range(ITEMS) if item % 10 != 3]


if __name__ == "__main__":
    main()
