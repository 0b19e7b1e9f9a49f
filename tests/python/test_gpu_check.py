"""The check for machines with a GPU (tests/gpu) finds every disagreement and reports no other.

The tests cover its comparison, and the whole program on the fake driver (tests/fake_nvml). There are
no loads on this driver, but the records, the reference values through ctypes and the table are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "gpu"
HEALTHY = ROOT / "tests" / "fake_nvml" / "src" / "healthy_h100.json"

sys.path.insert(0, str(FOLDER))

import compare  # noqa: E402

pytest_plugins = ["nvml_fixtures"]

BY_NAME = {quantity.name: quantity for quantity in compare.QUANTITIES}


def test_agreement_is_within_either_tolerance() -> None:
    power = BY_NAME["power"]  # ±15 W or 15 %

    assert compare.compare(power, 100.0, 114.0, 90.0).agree is True
    assert compare.compare(power, 400.0, 450.0, None).agree is True
    assert compare.compare(power, 100.0, 131.0, 100.0).agree is False
    assert compare.compare(power, 0.1, 400.0, 400.0).agree is False, "milliwatts for watts"


def test_a_value_that_only_the_reference_reads_is_a_disagreement() -> None:
    assert compare.compare(BY_NAME["power"], None, 100.0, None).agree is False
    assert compare.compare(BY_NAME["power"], 100.0, None, None).agree is None


def test_a_total_is_compared_by_its_growth() -> None:
    assert compare.level([(1.0, 5.0), (3.0, 9.0), (5.0, 45.0)], total=True) == 10.0
    assert compare.level([(1.0, 5.0)], total=True) is None


def test_a_level_counts_for_the_time_since_the_value_before_it() -> None:
    assert compare.level([(0.0, 9.0), (1.0, 5.0), (4.0, 1.0)], total=False) == 2.0
    assert compare.level([(1.0, 5.0)], total=False) == 5.0
    assert compare.level([], total=False) is None


def test_a_mean_of_traffic_becomes_a_total_in_the_unit_of_the_table() -> None:
    series = compare.of_means({"PCIe in": 100.0, "SM utilisation": 40.0}, begin=10.0, end=12.0)

    assert compare.level(series["PCIe in"], total=True) == pytest.approx(104.8576)
    assert series["SM utilisation"] == [(12.0, 40.0)]


def test_a_line_of_nvidia_smi_is_parsed_in_the_order_of_the_query() -> None:
    query = compare.smi_query().split(",")
    words = ["[N/A]"] * len(query)
    words[query.index("power.draw")] = "123.45"
    words[query.index("memory.used")] = "2048"

    series = compare.of_smi(", ".join(words) + "\n", at=7.0)

    assert series == {"power": [(7.0, 123.45)], "memory used": [(7.0, 2048.0)]}


def test_records_are_read_in_the_units_of_the_table() -> None:
    readings = {"hw.gpu.memory.usage": 2.0 * 2**20, "headspace.gpu.clock{domain=sm}": 1.98e9}
    records: list[dict[str, Any]] = [
        {"kind": "run"},
        {"kind": "tick", "at_s": 1.0, "readings": {"gpu:0": readings, "gpu:1": {"hw.power": 1.0}}},
        {"kind": "tick", "at_s": 2.0, "readings": {}},
    ]

    assert compare.of_records(records) == {
        "memory used": [(1.0, 2.0)],
        "SM clock": [(1.0, pytest.approx(1980.0))],
    }


def test_every_compared_metric_is_one_that_headspace_writes() -> None:
    table = (ROOT / "docs" / "metrics.md").read_text()

    for quantity in compare.QUANTITIES:
        assert f"`{quantity.key.split('{')[0]}`" in table, quantity.key


def test_a_load_without_an_effect_on_the_readings_is_a_disagreement() -> None:
    busy = {"SM utilisation": [(1.0, 97.0)]}
    still = {"SM utilisation": [(1.0, 2.0)]}

    assert [row.agree for row in compare.claims("matmul", busy)] == [True]
    assert [row.agree for row in compare.claims("matmul", still)] == [False]
    assert [row.agree for row in compare.claims("half", busy)] == [False]
    assert compare.claims("idle", still)[0].agree is True


# --- The whole program, on the fake driver ---------------------------------------------------


Check = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def check(library: Path, tmp_path: Path) -> Check:
    def run(script: dict[str, Any], seconds: float = 3.0) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HEADSPACE", "CUDA_VISIBLE"))
        } | {
            "HEADSPACE_NVML_LIB": str(library),
            "HEADSPACE_FAKE_NVML": json.dumps({"clock": "real", **script}),
        }
        command = [sys.executable, str(FOLDER / "check.py"), f"--seconds={seconds}", "--loads=idle"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    return run


def h100(**changes: Any) -> dict[str, Any]:
    device = json.loads(HEALTHY.read_text()) | changes
    return {key: value for key, value in device.items() if value is not None}


IDLE_GPM = {
    "sm_util": 1,
    "sm_occupancy": 1,
    "any_tensor_util": 0,
    "dram_bw_util": 1,
    "nvdec_0": 0,
    "pcie_rx": 1900,
    "pcie_tx": 95,
}


def test_all_quantities_agree_when_the_driver_gives_every_reader_the_same_values(
    check: Check,
) -> None:
    done = check({"devices": [h100(gpm=IDLE_GPM)]})

    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line[2:28].strip(): line for line in done.stdout.splitlines()}
    for quantity in ("general utilisation", "power", "energy", "PCIe in", "SM utilisation"):
        assert " yes " in rows[quantity], done.stdout
    assert "400.0" in rows["energy"]
    assert "1992.3" in rows["PCIe in"]  # 1900 MiB/s
    assert "all agree" in done.stdout


def test_an_unexpected_load_on_an_idle_gpu_is_a_disagreement(check: Check) -> None:
    done = check({"devices": [h100()]})

    assert done.returncode == 1, done.stdout + done.stderr
    rows = {line[2:28].strip(): line for line in done.stdout.splitlines()}
    assert " NO " in rows["SMs idle"]
    assert " NO " in rows["decoders idle"]
    assert "DISAGREES" in done.stdout


def test_without_a_gpu_the_check_says_so_and_exits_with_2(check: Check) -> None:
    done = check({"devices": []})

    assert done.returncode == 2
    assert "no GPU to check: the driver finds no GPU" in done.stderr
    assert "Traceback" not in done.stderr
