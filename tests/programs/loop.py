"""A training loop with known sleeps: `loop.py [--steps N] [--epochs N] [--load-ms X] ...`."""

import argparse
import itertools
import os
import sys
import time
import types

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--load-ms", type=float, default=0.0)
parser.add_argument("--compute-ms", type=float, default=0.0)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--say", type=int, help="say `ready` after so many steps")
parser.add_argument("--until", help="go on, whatever `--steps`, until this file exists")
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--torch-device", type=int, help="as if torch computed on that GPU")
args = parser.parse_args()

if args.torch_device is not None:
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: args.torch_device
    )
    sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)


class Loader:
    def __len__(self):
        return args.steps

    def __iter__(self):
        for i in itertools.count():
            if os.path.exists(args.until) if args.until else i == args.steps:
                return
            time.sleep(args.load_ms / 1e3)
            yield i


loader = headspace.wrap(Loader(), name="train", batch_size=args.batch_size)
steps = 0
for _ in range(args.epochs):
    for _ in loader:
        time.sleep(args.compute_ms / 1e3)
        steps += 1
        if steps == args.say:
            print("ready", flush=True)
print("steps", steps)
sys.exit(args.exit)
