"""Trains on batches that threads of its own load into a queue: `own_queue.py [OPTIONS]`. It knows nothing of headspace.

Prints the share of the time in which it waited for the queue."""

import argparse
import itertools
import multiprocessing
import queue
import threading
import time

import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=12)
parser.add_argument("--processes", action="store_true", help="load in a process, not in a thread")
args = parser.parse_args()


def decode(number):
    return np.sort(np.random.default_rng(number).random(400_000))[:64]


def load(batches):
    for number in itertools.count():
        batches.put(decode(number))


def next_batch():
    return batches.get()


torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.processes:
    batches = multiprocessing.Queue(4)
    loader = multiprocessing.Process(target=load, args=(batches,), daemon=True)
else:
    batches = queue.Queue(4)
    loader = threading.Thread(target=load, args=(batches,), daemon=True)
loader.start()
waited, begin = 0.0, time.perf_counter()
while time.perf_counter() < begin + args.seconds:
    asked = time.perf_counter()
    batch = next_batch()
    waited += time.perf_counter() - asked
    model(torch.from_numpy(batch).float()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(round(waited / (time.perf_counter() - begin), 3))
