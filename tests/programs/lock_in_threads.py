"""Loads batches in four threads. Most of a call is under a lock that all calls share: `lock_in_threads.py STEPS`."""

import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import headspace

lock = threading.Lock()


@headspace.stage("read")
def read(number):
    times = random.Random(number)
    time.sleep(times.uniform(0.0005, 0.0015))
    with lock:
        time.sleep(times.uniform(0.005, 0.015))
    return number


with ThreadPoolExecutor(4) as pool:
    for _ in headspace.wrap(pool.map(read, range(int(sys.argv[1])))):
        time.sleep(0.001)
