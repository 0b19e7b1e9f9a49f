"""Planted leaks and their healthy twins, at headspace's default settings: which the verdict names.

    python tests/python/study_leaks.py [--seconds 90] [--jobs 2] [--kinds list set ...]

Each program trains with steps of 2 ms. A leak is named if the verdict states its cause, what grows, and the variable that
holds it. The programs run at the same time. This is possible because the study checks bytes and not times.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from planted_leaks import LEAKS, find_missing_words
from running import PROGRAMS, Runs, clean_environment


def resources(kind: str, variant: str, seconds: float) -> tuple[list[str], dict[str, Any]]:
    """The findings about memory that grows, and the resources of the summary."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, str(PROGRAMS / "leaks.py"), kind, variant, str(seconds)],
            env={**clean_environment(), "HEADSPACE_DIR": folder},
            capture_output=True,
            check=True,
        )
        summary = Runs(Path(folder)).summary()
    found = [one["text"] for one in summary["findings"] if one["code"] == "memory_grows"]
    return found, dict(summary["resources"])


def judge(kind: str, variant: str, seconds: float) -> tuple[bool, str]:
    """Whether the verdict is right, and what it says."""
    texts, found = resources(kind, variant, seconds)
    expected = LEAKS[kind] if variant == "leak" else None
    if expected is None:
        return not texts, "no finding" if not texts else " ".join(texts)
    if not texts:
        return False, "no finding"
    cause = found.get("memory_growth_cause", {}).get("cause", "unknown")
    missing = find_missing_words(kind, texts[0])
    lacks = f", without {', '.join(missing)}" if missing else ""
    return cause == expected[0] and not missing, f"{cause}{lacks}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", choices=[*LEAKS], default=[*LEAKS])
    args = parser.parse_args()
    runs = [(kind, variant) for kind in args.kinds for variant in ("leak", "healthy")]
    with ThreadPoolExecutor(args.jobs) as pool:
        judged = dict(zip(runs, pool.map(lambda run: judge(*run, args.seconds), runs)))
    print(f"{'program':14}{'leak':62}{'healthy twin'}")
    for kind in args.kinds:
        print(f"{kind:14}{judged[kind, 'leak'][1]:62}{judged[kind, 'healthy'][1]}")
    planted = [kind for kind in args.kinds if LEAKS[kind] is not None]
    named = sum(judged[kind, "leak"][0] for kind in planted)
    healthy = [run for run in runs if run[1] == "healthy" or LEAKS[run[0]] is None]
    alarms = sum(not judged[run][0] for run in healthy)
    print(f"named: {named} of {len(planted)} leaks; false alarms: {alarms} of {len(healthy)}")


if __name__ == "__main__":
    main()
