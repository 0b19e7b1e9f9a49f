"""Real training loops compared with themselves: how often does `headspace compare` raise an alarm?

    python tests/python/study_compare.py [--pairs 20] [--seconds 15]

Each pair is two runs of one and the same loop, one after the other; each run has a partner before and
after it. As many pairs with a loop that is really slower by a tenth follow. A program and no test:
it takes minutes, and what it finds is also what else the machine does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LOOP = """
import sys, time, headspace

factor, seconds = float(sys.argv[1]), float(sys.argv[2])

def batches():
    while True:
        time.sleep(0.004)
        yield 0

def compute(count):
    total = 0
    for value in range(count):
        total += value * value

begin = time.perf_counter()
for _ in headspace.wrap(batches(), name="train"):
    compute(int(100_000 * factor))
    if time.perf_counter() - begin > seconds:
        break
"""


def run(folder: Path, name: str, factor: float, seconds: float) -> Path:
    environment = {"PATH": "/usr/bin:/bin", "HEADSPACE_DIR": str(folder / name)}
    command = [sys.executable, "-c", LOOP, str(factor), str(seconds)]
    subprocess.run(
        command, env={**environment, "HEADSPACE_QUIET": "1"}, check=True, capture_output=True
    )
    [made] = (folder / name).iterdir()
    return made


def compare(a: Path, b: Path) -> tuple[dict[str, float], bool]:
    """The difference in percent, and whether `--fail-if-slower 5%` fails."""
    command = [sys.executable, "-m", "headspace", "compare", str(a), str(b), "--json"]
    done = subprocess.run(
        [*command, "--fail-if-slower", "5%"], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["step_ms"]["difference_pct"], done.returncode == 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        runs = [run(folder, f"same{k}", 1.0, args.seconds) for k in range(args.pairs + 1)]
        slow = [run(folder, f"slow{k}", 1.15, args.seconds) for k in range(args.pairs)]
        same = [compare(a, b) for a, b in itertools.pairwise(runs)]
        slower = [compare(a, b) for a, b in zip(runs, slow)]
    for name, pairs in (("the same loop", same), ("a slower loop", slower)):
        told = sum(interval["low"] > 0 or interval["high"] < 0 for interval, _ in pairs)
        alarms = sum(failed for _, failed in pairs)
        middle = sorted(interval["value"] for interval, _ in pairs)[len(pairs) // 2]
        width = sorted(interval["high"] - interval["low"] for interval, _ in pairs)[len(pairs) // 2]
        print(
            f"{name}: {len(pairs)} pairs, {told} called different, {alarms} alarms at 5 %; "
            f"median difference {middle:+.1f} %, median interval {width:.1f} points wide"
        )


if __name__ == "__main__":
    main()
