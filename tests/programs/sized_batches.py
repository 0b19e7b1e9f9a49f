"""Iterates 400 batches. Every few batches, one is four times as large, and takes ten times as long to load."""

import random
import time

import headspace


def batches():
    draw = random.Random(5)
    for _ in range(400):
        is_large = draw.random() < 0.06
        time.sleep(0.05 if is_large else 0.005)
        yield {"text": "a" * (40_000 if is_large else 10_000)}


for _ in headspace.wrap(batches(), name="train"):
    time.sleep(0.001)
