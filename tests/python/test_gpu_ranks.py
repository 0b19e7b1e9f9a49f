"""One of eight ranks on a node where each rank may use all eight GPUs. The driver is the scripted one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Programs, Ran

pytest_plugins = ["nvml_fixtures"]

ROOT = Path(__file__).parents[2]
HEALTHY = json.loads((ROOT / "tests" / "fake_nvml" / "src" / "healthy_h100.json").read_text())
#: A GPU without known processes, as in a container, where the driver's process ids differ from those inside.
NO_PROCESSES = {**HEALTHY, "processes": []}
GPUS = 8


def train(
    program: Programs, library: Path, rank: int, *options: str, has_local_rank: bool = True
) -> Ran:
    ran = program(
        "loop.py",
        "--steps=200",
        "--compute-ms=10",
        *options,
        env={
            "RANK": str(rank),
            **({"LOCAL_RANK": str(rank)} if has_local_rank else {}),
            "WORLD_SIZE": str(GPUS),
            "HEADSPACE_NVML_LIB": str(library),
            "HEADSPACE_FAKE_NVML": json.dumps({"clock": "real", "devices": [NO_PROCESSES] * GPUS}),
            "HEADSPACE_INTERVAL": "0.2",
        },
    )
    assert ran.exit_code == 0, ran.stderr
    return ran


def read(ran: Ran, rank: int) -> set[str]:
    """The GPUs that any tick has readings of."""
    scopes = {scope for tick in ran.kind("tick", rank) for scope in tick["readings"]}
    return {scope for scope in scopes if scope.startswith("gpu:")}


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_reads_its_own_gpu_and_the_first_rank_reads_all(
    program: Programs, library: Path, rank: int
) -> None:
    ran = train(program, library, rank)

    resources = ran.summary(rank)["resources"]
    assert resources["compute_gpu"] == {"ordinal": rank, "rule": "local_rank"}
    own = {f"gpu:{rank}"}
    assert read(ran, rank) == (own if rank else {f"gpu:{ordinal}" for ordinal in range(GPUS)})
    assert len(ran.kind("run", rank)[-1]["gpus"]) == GPUS


def test_the_device_that_torch_uses_overrides_the_rank(program: Programs, library: Path) -> None:
    ran = train(program, library, 3, "--torch-device=5")

    resources = ran.summary(3)["resources"]
    assert resources["compute_gpu"] == {"ordinal": 5, "rule": "torch_current_device"}
    assert 5 in {gpu["ordinal"] for gpu in resources["gpus"] if gpu["sm_pct"] is not None}


@pytest.mark.parametrize(("rank", "device"), [(0, 0), (3, 5)])
def test_a_rank_without_a_local_rank_is_bound_by_torchs_device(
    program: Programs, library: Path, rank: int, device: int
) -> None:
    ran = train(program, library, rank, f"--torch-device={device}", has_local_rank=False)

    resources = ran.summary(rank)["resources"]
    assert resources["compute_gpu"] == {"ordinal": device, "rule": "torch_current_device"}
