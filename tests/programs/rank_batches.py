"""Iterates 40 batches of its rank, or the same ones on every rank: `rank_batches.py own|same`."""

import os
import sys
import time

import headspace


def batches(offset):
    for number in range(40):
        time.sleep(0.001)
        yield {"values": [float(offset + number)], "name": f"batch {number}"}


rank = int(os.environ["RANK"]) if sys.argv[1] == "own" else 0
for _ in headspace.wrap(batches(1000 * rank), name="train"):
    time.sleep(0.002)
