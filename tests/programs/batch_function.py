"""Trains with a function that returns a batch: `batch_function.py KIND STEPS`. It does not use headspace.

Prints the number and the sum of the batches."""

import sys
import time

KIND, STEPS = sys.argv[1], int(sys.argv[2])
drawn = {"train": 0, "val": 0}


def get_batch(split, wait=0.004):
    """The next batch of a split."""
    time.sleep(wait)
    drawn[split] += 1
    if KIND == "ends" and drawn[split] > STEPS:
        raise StopIteration
    if KIND == "raises" and drawn[split] == 5:
        raise ValueError("on purpose")
    return drawn[split]


def stream(count):
    for number in range(count):
        time.sleep(0.004)
        yield number


class Data:
    @staticmethod
    def next():
        return get_batch("train")


def plain():
    for _ in range(STEPS):
        yield get_batch("train")


def evaluating():
    import torch

    model = torch.nn.Linear(1, 1)
    model.train()
    for number in range(STEPS):
        yield get_batch("train")
        if number % 20 == 19:
            model.eval()
            with torch.no_grad():
                for _ in range(3):
                    yield get_batch("val", wait=0.1)
            model.train()


def ends():
    while True:
        try:
            yield get_batch("train")
        except StopIteration:
            return


def raises():
    for _ in range(STEPS):
        try:
            yield get_batch("train")
        except ValueError as error:
            print(error, error.__traceback__ is not None)


def static():
    for _ in range(STEPS):
        yield Data.next()


def generator():
    for _ in range(3):
        yield from stream(STEPS)


def never():
    yield from ()


if __name__ == "__main__":
    total = count = 0
    kinds = (plain, evaluating, ends, raises, static, generator, never)
    for batch in {kind.__name__: kind for kind in kinds}[KIND]():
        total, count = total + batch, count + 1
        time.sleep(0.002)
    print(count, total, get_batch.__doc__)
