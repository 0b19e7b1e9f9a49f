"""A loop that ends in an exception: `ends_by.py [--steps N] [--how caught|exit|interrupt|with]`."""

import argparse
import sys
import time

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--how", default="uncaught")
args = parser.parse_args()


def train():
    for number, _ in enumerate(headspace.wrap(range(100_000), name="train", probe_steps=200)):
        time.sleep(0.0002)
        if number + 1 == args.steps:
            raise KeyboardInterrupt if args.how == "interrupt" else ValueError("no")


if args.how == "with":
    with headspace.start():
        train()
try:
    train()
except ValueError:
    if args.how == "exit":
        sys.exit(3)
    if args.how != "caught":
        raise
