"""Loads each batch with four threads of a pool, which wait for a slow store."""

import time
from concurrent.futures import ThreadPoolExecutor

import headspace

load = headspace.stage("load")


def read_part(number):
    time.sleep(0.02)  # read
    return number


def batches():
    with ThreadPoolExecutor(4) as pool:
        for _ in range(450):
            with load:
                parts = list(pool.map(read_part, range(4)))
            yield parts


for _ in headspace.wrap(batches(), name="train"):
    pass
