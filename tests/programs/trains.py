"""Trains a small torch model. It does not use headspace.

`trains.py [--workers N] [--start METHOD] [--epochs N] [--batches N] [--eval-every N] [--no-modes]
[--late-modes] [--end HOW]`. Prints what it saw of its loader.
"""

import argparse
import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.0002)
        return torch.tensor([float(index)])


class Broken(Numbers):
    def __getitem__(self, index):
        if index == 90:
            raise LookupError("no item 90")
        return super().__getitem__(index)


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--no-modes", action="store_true")
    parser.add_argument("--late-modes", action="store_true")
    parser.add_argument("--end", default="")
    return parser.parse_args()


def evaluate(model, loader, args):
    if not args.no_modes:
        model.eval()
    with torch.no_grad():
        for batch in loader:
            model(batch)
            time.sleep(0.02)
    if not (args.no_modes or args.late_modes):
        model.train()


def main():
    args = parsed()
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Linear(4, 1))
    kind = Broken if args.end == "worker error" else Numbers
    loader = DataLoader(
        kind(2 * args.batches),
        batch_size=2,
        num_workers=args.workers,
        multiprocessing_context=args.start,
    )
    held_out = DataLoader(Numbers(20), batch_size=2)
    if not args.no_modes:
        model.train(not args.late_modes)
    seen = 0
    for _ in range(args.epochs):
        for step, batch in enumerate(loader):
            if args.late_modes:
                model.train()
            model(batch).sum().backward()
            time.sleep(0.001)
            seen += len(batch)
            if args.eval_every and step % args.eval_every == args.eval_every - 1:
                evaluate(model, held_out, args)
            if seen == 2 * args.batches - 10 and args.end:
                finish(args.end)
        evaluate(model, held_out, args)
    print(seen, type(loader).__name__, isinstance(loader, DataLoader), len(loader))


def finish(how):
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise ValueError("the loss is not a number")
    if how in ("SIGTERM", "SIGKILL"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(60)
    if how == "interrupt":
        raise KeyboardInterrupt


if __name__ == "__main__":
    main()
