"""Reads shards one after the other, each for 1.4 s: `shards.py FOLDER FIRST`, beginning with the shard FIRST."""

import sys
import time
from pathlib import Path

import headspace

read = headspace.stage("read")


def batches(folder, first):
    time.sleep(1)  # The first sample of the stacks is taken some time after the start.
    shards = sorted(folder.iterdir())
    for shard in shards[first:] + shards[:first]:
        with shard.open("rb") as file:
            for _ in range(150):
                with read:
                    time.sleep(0.009)
                    data = file.read(64)
                yield data


for _ in headspace.wrap(batches(Path(sys.argv[1]), int(sys.argv[2])), name="train"):
    pass
