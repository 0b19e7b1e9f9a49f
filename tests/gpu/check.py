"""Compares headspace's GPU readings with `nvidia-smi` and the driver's library, under known load.

    python tests/gpu/check.py [--seconds N] [--loads idle,matmul,half,decode]

For a machine with an NVIDIA GPU. The exit code is 0 if all readings agree, 1 if one disagrees, and 2 if
there is no GPU to check. README.md describes the requirements and the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import compare
import driver
import loads

Records = list[dict[str, Any]]


def watched(run: str, folder: Path, seconds: float, load: str) -> Records:
    """The records of a headspace session during the load."""
    import headspace

    session = headspace.start(to=folder, interval=0.2, run_id=run, quiet=True)
    try:
        loads.LOADS[load](seconds)
    finally:
        headspace.stop()
    lines = (Path(session.folder) / "rank0.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def the_gpu(folder: Path) -> dict[str, Any]:
    """headspace's description of the first GPU that the process may use."""
    # The driver may answer after the first `run` record, which is then repeated.
    records = watched("look", folder, 1.0, "idle")
    run = [record for record in records if record["kind"] == "run"][-1]
    source = next((s for s in run["sources"] if s["name"] == "gpu"), None)
    if source is None:
        raise driver.NoGpu("this build of headspace has no source `gpu`")
    if source["state"] != "on":
        remedy = f" ({source['remedy']})" if source.get("remedy") else ""
        raise driver.NoGpu(f"{source['reason']}{remedy}")
    gpu = run["gpus"][0]
    if gpu.get("mig"):
        raise driver.NoGpu("the process has a slice (MIG), which nvidia-smi tells little of")
    return dict(gpu)


def check(gpu: dict[str, Any], folder: Path, seconds: float, wanted: list[str]) -> bool:
    """Prints a table for each load. Returns whether all values agree."""
    nvml = driver.open_driver(gpu["uuid"])
    print(
        f"# {gpu['name']}, driver {gpu['driver']}, {platform.system()} {platform.release()}, {date.today()}"
    )
    print(
        f"# NVDEC engines {gpu.get('nvdec_engines')} (from {gpu.get('nvdec_engines_from')}),",
        end=" ",
    )
    print(f"SM figures from {gpu.get('sm_source') or 'nowhere'}; NVML read through {nvml.name}")
    agreed = True
    for load in wanted:
        try:
            loads.LOADS[load](0.0)  # imports the libraries and allocates the memory
            with driver.Watch(nvml, gpu["uuid"]) as watch:
                records = watched(load, folder, seconds, load)
        except loads.Missing as error:
            print(f"\n{load}\n  left out: {error}")
            continue
        ours = compare.of_records(records)
        table = compare.rows(ours, watch.smi, watch.nvml) + compare.claims(load, ours)
        print(f"\n{compare.text(load, table)}")
        agreed &= all(row.agree is not False for row in table)
    return agreed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load (default: 30)")
    parser.add_argument("--loads", default=",".join(loads.LOADS), help="which loads, in order")
    arguments = parser.parse_args()
    wanted = [load for load in arguments.loads.split(",") if load]
    unknown = [load for load in wanted if load not in loads.LOADS]
    if unknown:
        parser.error(f"unknown loads: {', '.join(unknown)} (there are {', '.join(loads.LOADS)})")
    with tempfile.TemporaryDirectory(prefix="headspace-gpu-check-") as folder:
        try:
            agreed = check(the_gpu(Path(folder)), Path(folder), arguments.seconds, wanted)
        except driver.NoGpu as error:
            print(f"no GPU to check: {error}", file=sys.stderr)
            return 2
    print(f"\n{'all agree' if agreed else 'something DISAGREES'}")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
