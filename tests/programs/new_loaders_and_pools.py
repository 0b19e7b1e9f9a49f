"""Creates loaders or pools repeatedly and keeps them: `new_loaders_and_pools.py KIND`. Prints the sum of the results."""

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

EPOCHS = 6


def square(number):
    time.sleep(0.002)
    return number * number


def pools():
    import headspace

    # Workers are forked before the loop begins. They must know the trainer at their first call.
    headspace.start()
    timed = headspace.stage("square")(square)
    globals()["square"] = timed
    for epoch in range(EPOCHS):
        # `Pool` ends its workers by a signal. The workers of `ProcessPoolExecutor` exit normally.
        if epoch % 2:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                yield from headspace.wrap(pool.imap(square, range(40)), name="loop")
        else:
            with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
                yield from headspace.wrap(pool.map(square, range(40)), name="loop")


def loaders():
    import torch

    model = torch.nn.Linear(1, 1)
    data = torch.utils.data.TensorDataset(torch.ones(80, 1))
    held_out = torch.utils.data.TensorDataset(torch.ones(16, 1))
    kept = []

    def made(what):
        kept.append(torch.utils.data.DataLoader(what, batch_size=2))
        return kept[-1]

    for _ in range(EPOCHS):
        model.train()
        for (batch,) in made(data):
            yield int(batch.sum())
        model.eval()
        for _ in range(10):
            with torch.no_grad():
                for (batch,) in made(held_out):
                    yield int(batch.sum())


if __name__ == "__main__":
    print(sum({"pools": pools, "loaders": loaders}[sys.argv[1]]()))
