"""Predicted and measured steps of programs whose worker processes wait for one another's lock.

    python tests/python/study_shared_lock.py [--steps 600]

Each program runs under `headspace run`. Then it runs without headspace: as it is, with a lock for each worker, and
with the number of workers that headspace proposes, or else with twice as many. The study prints the predicted and the
measured steps. It is not a test, because it takes minutes and its result depends on other load of the machine.
"""

from __future__ import annotations

import argparse

from study_programs import step_ms, summary

PROGRAM = "shared_lock.py"

CASES = [
    {"how": how, "hold_ms": hold_ms, "other_ms": other_ms, "workers": workers}
    for how in ("file", "semaphore")
    for hold_ms, other_ms, workers in [(20, 2, 4), (12, 12, 4), (8, 24, 4), (12, 24, 8), (2, 40, 4)]
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    print(f"{'program':32}{'change':>14}{'now':>8}{'predicted':>11}{'measured':>10}{'error':>8}")
    for case in CASES:
        spec = {**case, "compute_ms": 3, "steps": args.steps, "separate": False}
        found = summary(PROGRAM, spec)
        remedies = {remedy["code"]: remedy for remedy in found["remedies"]}
        now = step_ms(PROGRAM, spec)
        more = remedies.get("more_workers")
        workers = int(more["change"]["to"]) if more else 2 * spec["workers"]
        name = f"{spec['how']} {spec['hold_ms']}+{spec['other_ms']} ms, {spec['workers']} workers"
        for change, changed, remedy in [
            ("own locks", {"separate": True}, remedies.get("separate_locks")),
            (f"{workers} workers", {"workers": workers}, more),
        ]:
            measured = step_ms(PROGRAM, {**spec, **changed})
            # A change that is not proposed has no gain.
            predicted = remedy["predicted_step_ms"] if remedy else found["steady_step_mean_ms"]
            predicted *= now / found["steady_step_mean_ms"]
            error = 100 * (predicted / measured - 1)
            print(f"{name:32}{change:>14}{now:8.1f}{predicted:11.1f}{measured:10.1f}{error:+7.0f}%")


if __name__ == "__main__":
    main()
