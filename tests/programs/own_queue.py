"""Trains on batches that threads of its own load into a queue: `own_queue.py [OPTIONS]`. It does not use headspace.

Prints the share of the time that it waited for the queue."""

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
parser.add_argument(
    "--values", type=int, default=400_000, help="numbers that are sorted for a batch"
)
parser.add_argument("--objects", type=int, default=0, help="further objects in a batch")
parser.add_argument("--evaluate", action="store_true", help="start a process with a queue of tasks")
args = parser.parse_args()


def decode(number):
    return np.sort(np.random.default_rng(number).random(args.values))[:64]


def load(batches):
    for number in itertools.count():
        batches.put((decode(number), [{"label": n} for n in range(args.objects)]))


def evaluate(tasks):
    while (task := tasks.get()) is not None:
        np.sort(decode(task))


def next_batch():
    return get()


if __name__ == "__main__":
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
    get = batches.get
    waited, begin, steps, evaluation = 0.0, time.perf_counter(), 0, None
    while time.perf_counter() < begin + args.seconds:
        asked = time.perf_counter()
        batch, _ = next_batch()
        waited += time.perf_counter() - asked
        model(torch.from_numpy(batch).float()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        if args.evaluate and steps == 6:
            tasks = multiprocessing.Queue()
            for task in [*range(40), None]:
                tasks.put(task)
            evaluation = multiprocessing.Process(target=evaluate, args=(tasks,))
            evaluation.start()
    if evaluation is not None:
        evaluation.join()
    print(round(waited / (time.perf_counter() - begin), 3))
