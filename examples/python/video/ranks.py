"""Starts the ranks of a distributed training on this machine, and connects them over gloo.

The ranks find each other through a file. gloo uses the loopback interface, so no port is open to the network. If
another launcher, such as `torchrun`, starts the ranks, they use its environment variables instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Number of ranks that a program starts if there is no other launcher.
DDP_RANKS = 2

_RENDEZVOUS = "VIDEO_RENDEZVOUS"


def started_by_launcher() -> bool:
    """Whether this process is a rank."""
    return "RANK" in os.environ


def run_ranks(count: int) -> int:
    """Runs this program `count` times, as ranks of one training. Returns the first exit code that is not 0.

    If a rank fails, the others are terminated, because they would wait for it.
    """
    with tempfile.TemporaryDirectory() as folder:
        shared = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "GLOO_SOCKET_IFNAME": "lo",
            _RENDEZVOUS: (Path(folder) / "store").as_uri(),
        }
        ranks = [
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(count)
        ]
        try:
            while all(rank.poll() in (None, 0) for rank in ranks):
                if all(rank.poll() == 0 for rank in ranks):
                    return 0
                time.sleep(0.1)
            return next(rank.returncode for rank in ranks if rank.poll() not in (None, 0))
        finally:
            for rank in ranks:
                rank.terminate()
            for rank in ranks:
                rank.wait()


@contextmanager
def joined() -> Iterator[tuple[int, int]]:
    """Connects this rank with the others. Yields its number and the number of ranks."""
    import torch.distributed as dist

    number, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    method = os.environ.get(_RENDEZVOUS, "env://")
    dist.init_process_group("gloo", init_method=method, rank=number, world_size=count)
    try:
        yield number, count
    finally:
        dist.destroy_process_group()
