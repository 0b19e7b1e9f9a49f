"""If a GPU is lost, hangs or is missing, its readings are missing and the training is not affected.

The tests use the fake driver (tests/fake_nvml) in real time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Programs, Ran

pytest_plugins = ["nvml_fixtures"]

ROOT = Path(__file__).parents[2]
HEALTHY = json.loads((ROOT / "tests" / "fake_nvml" / "src" / "healthy_h100.json").read_text())


Train = Callable[..., Ran]


@pytest.fixture
def train(program: Programs, library: Path) -> Train:
    """Trains for about 4 s, ten ticks a second, on the GPUs of a script."""

    def run(**script: Any) -> Ran:
        return program(
            "loop.py",
            "--steps=200",
            "--compute-ms=20",
            env={
                "HEADSPACE_NVML_LIB": str(library),
                "HEADSPACE_FAKE_NVML": json.dumps({"clock": "real", **script}),
                "HEADSPACE_INTERVAL": "0.1",
            },
        )

    return run


def ended_well(run: Ran) -> None:
    assert run.exit_code == 0, run.stderr
    assert run.stdout == "steps 200\n"
    assert run.summary()["state"] == "finished"


def notices_about(run: Ran, source: str) -> list[str]:
    """The notices about a source that was disabled during the run."""
    texts = [notice["text"] for notice in run.kind("notice")]
    return [text for text in texts if text.startswith(f"`{source}` ")]


@pytest.mark.alone  # If the driver takes over 250 ms to open, each GPU is a part of the source `gpu`.
def test_the_loss_of_one_of_two_gpus_is_reported_once_and_the_other_is_still_read(
    train: Train,
) -> None:
    lost = {"function": "*", "device": 1, "code": 15, "from_time": 1.5}

    run = train(devices=[HEALTHY, HEALTHY], faults=[lost])

    ended_well(run)
    [text] = notices_about(run, "gpu:1")
    assert "fell off the bus" in text
    assert not notices_about(run, "gpu")
    after = [tick["readings"] for tick in run.kind("tick") if tick["at_s"] > 3]
    assert any("gpu:0" in readings for readings in after)
    assert not any("gpu:1" in readings for readings in after)


def test_the_loss_of_the_only_gpu_disables_its_sources(train: Train) -> None:
    run = train(devices=[HEALTHY], faults=[{"function": "*", "code": 15, "from_time": 1.5}])

    ended_well(run)
    [text] = notices_about(run, "gpu")
    assert "`gpu:0` is lost" in text
    assert any("gpu:0" in tick["readings"] for tick in run.kind("tick"))


def test_a_driver_that_hangs_delays_neither_training_nor_the_ticks(train: Train) -> None:
    hang = {"function": "nvmlDeviceGetUtilizationRates", "delay_ms": 60_000, "from_time": 1.5}

    run = train(devices=[HEALTHY], faults=[hang])

    ended_well(run)
    after = [tick["readings"] for tick in run.kind("tick") if tick["at_s"] > 3]
    assert len(after) >= 5
    assert all("process" in readings for readings in after)


@pytest.mark.alone  # If the driver takes over 250 ms to open, the source is on until its first reading.
def test_a_missing_driver_disables_the_source_with_a_reason_and_no_notice(train: Train) -> None:
    run = train(devices=[], faults=[{"function": "nvmlInit_v2", "code": 9}])

    ended_well(run)
    [off] = [source for source in run.kind("run")[-1]["sources"] if source["name"] == "gpu"]
    assert off["state"] == "off"
    assert "not loaded" in off["reason"]
    assert "modprobe nvidia" in off["remedy"]
    assert not any("gpu:0" in tick["readings"] for tick in run.kind("tick"))


def test_gpu_readings_are_in_the_run_record_and_in_the_ticks(train: Train) -> None:
    run = train(devices=[HEALTHY])

    ended_well(run)
    [gpu] = run.kind("run")[-1]["gpus"]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert (gpu["nvdec_engines"], gpu["sm_source"]) == (7, "gpm")
    readings: dict[str, float] = {}
    for tick in run.kind("tick"):
        readings |= tick["readings"].get("gpu:0", {})
    assert readings["headspace.gpu.sm.utilization{source=gpm}"] == 0.7
    assert readings["headspace.gpu.engine.utilization{engine=nvdec3}"] == 0.5
    assert readings["headspace.gpu.memory.owned{owner=own}"] == 15e9


def test_a_driver_that_never_opens_delays_nothing(train: Train) -> None:
    run = train(devices=[HEALTHY], faults=[{"function": "nvmlInit_v2", "delay_ms": 600_000}])

    ended_well(run)
    assert all("gpus" not in record for record in run.kind("run"))
    assert all("gpu:0" not in tick["readings"] for tick in run.kind("tick"))


def test_a_driver_that_opens_late_is_read_from_then_on(train: Train) -> None:
    run = train(devices=[HEALTHY], faults=[{"function": "nvmlInit_v2", "delay_ms": 1_000}])

    ended_well(run)
    first, *_, last = run.kind("run")
    assert "gpus" not in first
    assert [gpu["name"] for gpu in last["gpus"]] == ["NVIDIA H100 80GB HBM3"]
    ticks = run.kind("tick")
    assert "gpu:0" not in ticks[0]["readings"]
    assert any("gpu:0" in tick["readings"] for tick in ticks)
    assert run.kind("notice") == []
