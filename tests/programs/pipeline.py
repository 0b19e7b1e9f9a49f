"""Trains on a pipeline of two stages in threads until STOP_FILE exists: `pipeline.py STOP_FILE`.

Prints `training` once it has begun. Reading takes 4 ms. Decoding takes 32 ms in each of two threads, so
the loop waits for it. The loop itself takes 8 ms.
"""

import os
import queue
import sys
import threading
import time

import headspace

STEPS_AN_EPOCH = 100
stop = sys.argv[1]

encoded = headspace.queue("encoded", queue.Queue(16))
decoded = headspace.queue("decoded", queue.Queue(8))


def read():
    while True:
        with headspace.stage("read", concurrency=1):
            time.sleep(0.004)
        encoded.put(bytes(8))


def decode():
    while True:
        frame = encoded.get()
        with headspace.stage("decode", concurrency=2):
            time.sleep(0.032)
        decoded.put(frame)


class Batches:
    def __len__(self):
        return STEPS_AN_EPOCH

    def __iter__(self):
        return (decoded.get() for _ in range(STEPS_AN_EPOCH))


for work in (read, decode, decode):
    threading.Thread(target=work, daemon=True).start()
loader = headspace.wrap(Batches(), name="train", batch_size=8)
said = False
while True:
    for _ in loader:
        time.sleep(0.008)
    if not said:
        print("training", flush=True)
        said = True
    if os.path.exists(stop):
        break
