"""Predicted and measured shares of a data set that come from storage, in memory that cannot hold all of it.

    python tests/python/study_page_cache.py [--files 400] [--epochs 9] [--shares 30 55 82.5 95 150] [--doctor]

A control group limits the memory. In it, `headspace doctor --data` predicts the shares, and then a program reads the files
(1 MiB each), whole, in a new random order in each epoch, and in the same order. The share of an epoch is `read_bytes` of
`/proc/self/io`. The first two epochs do not count, because the page cache is not in equilibrium then. A group needs root.
`--doctor` prints only what `headspace doctor` writes for each share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory_groups import memory_group
from running import clean_environment

sys.path.append(str(Path(__file__).parents[2] / "examples" / "python"))

from decode_lab.pagecache import evict

FILE_BYTES = 1 << 20

#: Memory of the group in bytes that the page cache cannot use: the program and the page tables need it.
PROGRAM_BYTES = 24 << 20

READER = """
import os, random, sys

folder, epochs, in_order = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "same"
paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))


def from_storage():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


random.seed(0)
for _ in range(epochs):
    if not in_order:
        random.shuffle(paths)
    before = from_storage()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    print(from_storage() - before)
"""


def write_files(folder: Path, count: int) -> None:
    for number in range(count):
        path = folder / f"{number:05}.bin"
        path.write_bytes(bytes(FILE_BYTES))


def run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=clean_environment()
    )
    return done.stdout


def predicted(launch: list[str], folder: Path) -> dict[str, Any]:
    """The prediction of `headspace doctor` in the control group."""
    found = json.loads(run([*launch, "-m", "headspace", "doctor", "--json", "--data", str(folder)]))
    later: dict[str, Any] = found["data"]["later_epochs"]
    return {**later, "held": found["data"]["memory_bytes"] / found["data"]["bytes"]}


def print_doctor(folder: Path, shares: Sequence[float]) -> None:
    """The output of `headspace doctor` in each control group, as a user reads it."""
    for share in shares:
        evict(folder.iterdir())
        with memory_group(limit_bytes(folder, share)) as launch:
            print(run([*launch, "-m", "headspace", "doctor", "--data", str(folder)]), flush=True)


def limit_bytes(folder: Path, share: float) -> int:
    """The limit of a control group that can hold this percentage of the files."""
    return PROGRAM_BYTES + int(share / 100 * FILE_BYTES * len(list(folder.iterdir())))


def measured(launch: list[str], folder: Path, epochs: int, order: str) -> float:
    """The mean share from storage, from the third epoch on."""
    shares = run([*launch, "-c", READER, str(folder), str(epochs), order]).split()
    total = FILE_BYTES * len(list(folder.iterdir()))
    counted = [int(share) / total for share in shares[2:]]
    return sum(counted) / len(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--shares", type=float, nargs="+", default=[30, 55, 82.5, 95, 150])
    parser.add_argument("--doctor", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, args.files)
        if args.doctor:
            print_doctor(folder, args.shares)
        else:
            print_table(folder, args.shares, args.epochs)


def print_table(folder: Path, shares: Sequence[float], epochs: int) -> None:
    """The predicted and measured shares, as a table in Markdown."""
    print(
        "| memory for the page cache | order | predicted from storage | measured | at least, with any policy |"
    )
    print("|---|---|---|---|---|")
    for share in shares:
        limit = limit_bytes(folder, share)
        for order, key in (
            ("random", "random_storage_share"),
            ("same", "same_order_storage_share"),
        ):
            # A page belongs to the group that read it first, so no page may stay cached for another group.
            evict(folder.iterdir())
            with memory_group(limit) as launch:
                said = predicted(launch, folder)
            evict(folder.iterdir())
            with memory_group(limit) as launch:
                was = measured(launch, folder, epochs, order)
            least = said["least_storage_share"]
            print(
                f"| {said['held']:.0%} of the data | {order} | {said[key]:.0%} | {was:.0%} | {least:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
