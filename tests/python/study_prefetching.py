"""Steps and memory of the prefetching example with the queue that the verdict calls enough, and with its own.

    python tests/python/study_prefetching.py [--ahead 200] [--steps 400] [--pairs 4]

The program first runs with `--ahead` batches, and the verdict proposes a smaller queue. Then runs with the proposed and with
the first number alternate, so that other load of the machine affects both alike, and the ratio of each pair counts. It is not
a test, because it takes minutes and its result depends on other load.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from running import Runs, clean_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "prefetching.py"

#: Half of a 95 % interval in standard errors, by the degrees of freedom (Student's t).
T = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}


def run(ahead: int, steps: int) -> tuple[dict[str, Any], float]:
    """The summary of a run, and its peak memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--ahead", str(ahead), "--steps", str(steps)],
            env={**clean_environment(), "OMP_NUM_THREADS": "1", "HEADSPACE_DIR": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, process.returncode
        return dict(Runs(Path(folder)).summary()), usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ahead", type=int, default=200)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=4)
    args = parser.parse_args()
    found, _ = run(args.ahead, args.steps)
    buffer = found.get("smaller_buffer")
    if buffer is None:
        print(f"the verdict proposes no smaller queue than {args.ahead}")
        return
    print(buffer["text"])
    enough = int(buffer["change"]["to"])
    print(f"{'ahead':>8}{'step':>12}{'wait':>8}{'peak memory':>14}")
    ratios: list[float] = []
    peaks: dict[int, list[float]] = {args.ahead: [], enough: []}
    for _ in range(args.pairs):
        steps: list[float] = []
        for ahead in (args.ahead, enough):
            summary, peak = run(ahead, args.steps)
            steps.append(summary["steady_step_mean_ms"])
            peaks[ahead].append(peak)
            print(f"{ahead:8}{steps[-1]:9.1f} ms{summary['wait_pct']:6.1f} %{peak:10.0f} MiB")
        ratios.append(math.log(steps[1] / steps[0]))
    mean = statistics.mean(ratios)
    half = T[len(ratios) - 1] * statistics.stdev(ratios) / math.sqrt(len(ratios))
    low, middle, high = (100 * math.expm1(ratio) for ratio in (mean - half, mean, mean + half))
    saved = statistics.mean(peaks[args.ahead]) - statistics.mean(peaks[enough])
    print(f"the step changes by {middle:+.1f} % (95 % interval {low:+.1f} to {high:+.1f})")
    print(f"the peak memory falls by {saved:.0f} MiB")


if __name__ == "__main__":
    main()
