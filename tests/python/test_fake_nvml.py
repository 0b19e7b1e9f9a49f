"""The fake NVML (tests/fake_nvml) has the interface of NVIDIA's library.

Two independent references check it. `nvidia-ml-py`, NVIDIA's Python binding, calls it and must read the
values of the script. `nvml.h`, NVIDIA's header (PyPI `nvidia-nvml-dev`), defines the size of each struct,
the offset of each field, and the values of the constants.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["nvml_fixtures"]

ROOT = Path(__file__).parents[2]
FILE_NAME = "libnvidia-ml.so.1"

# Structs that differ between nvml-wrapper and the header, and why this does no harm.
KNOWN_DIFFERENCES = {
    # The array of metrics at its end grows with the header: 210 entries in nvml-wrapper-sys 0.10, and 477 in
    # the header of 13.5. The version field is 1 in both, so the driver cannot distinguish them. It reads only
    # `numMetrics` entries, and a caller must not request more than 210.
    "nvmlGpmMetricsGet_t",
}


# --- The library, and a program that uses it --------------------------------------------------


def loaded(folder: Path, program: str) -> str:
    """The output of a program that has loaded the library.

    The program runs in its own process. A loaded library stays loaded, and all later tests in this process
    would find its GPUs.
    """
    source = f"import ctypes\nlibrary = ctypes.CDLL({str(folder / FILE_NAME)!r})\n{program}"
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    ).stdout


Ask = Callable[..., Any]

PREAMBLE = """
import ctypes, json, pynvml
from pynvml import *
fake = ctypes.CDLL("libnvidia-ml.so.1")
fake.fake_nvml_advance.argtypes = [ctypes.c_double]
fake.fake_nvml_calls.restype = ctypes.c_uint64
fake.fake_nvml_samples_alive.restype = ctypes.c_uint64
def plain(number):
    return number.value  # some functions hand out a c_uint
def refused(function, *args):
    try:
        function(*args)
    except NVMLError as error:
        return type(error).__name__
    return None
"""


@pytest.fixture
def ask(libraries: dict[str, Path]) -> Ask:
    """Runs a program that uses `nvidia-ml-py`, with a script. Returns its variable `answer`."""

    def run(script: Any, program: str, *, driver: str = "new") -> Any:
        text = script if isinstance(script, str) else json.dumps(script)
        source = (
            PREAMBLE + textwrap.dedent(program) + "\nprint(json.dumps(answer, default=plain))\n"
        )
        environment = dict(
            os.environ, LD_LIBRARY_PATH=str(libraries[driver]), HEADSPACE_FAKE_NVML=text
        )
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", source],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return run


# --- nvidia-ml-py -----------------------------------------------------------------------------


def test_nvidia_ml_py_reads_the_values_of_the_script(ask: Ask) -> None:
    gpu = {
        "name": "Made up 9000",
        "uuid": "GPU-made-up",
        "architecture": "ampere",
        "memory_total": 1000,
        "memory_reserved": 50,
        "memory_used": 300,
        "gpu_utilization": [[0, 10], [2, 70]],
        "memory_utilization": 20,
        "decoder_utilization": 33,
        "encoder_utilization": 44,
        "jpg_utilization": 55,
        "ofa_utilization": 66,
        "sampling_period_us": 1234,
        "pcie_tx": 1000,
        "pcie_rx": [[0, 5], [1, 50]],
        "power": 300.5,
        "power_instant": 310,
        "energy": 300,
        "temperature": 61,
        "clock_sm": 1500,
        "clock_memory": 2600,
        "throttle_reasons": 4,
        "ecc": {"corrected_volatile": 7, "uncorrected_aggregate": 8},
    }
    script = {"driver": "600.1.2", "cuda": 13010, "devices": [{}, gpu]}

    answer = ask(
        script,
        """
        nvmlInit()
        one = nvmlDeviceGetHandleByIndex(1)
        fake.fake_nvml_advance(2.0)
        fields = nvmlDeviceGetFieldValues(one, [197, 198, 186, 83, 138])
        v1, v2 = nvmlDeviceGetMemoryInfo(one), nvmlDeviceGetMemoryInfo(one, nvmlMemory_v2)
        answer = {
            "driver": nvmlSystemGetDriverVersion(),
            "cuda": nvmlSystemGetCudaDriverVersion_v2(),
            "count": nvmlDeviceGetCount(),
            "name": nvmlDeviceGetName(one),
            "index": nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID("GPU-made-up")),
            "ampere": nvmlDeviceGetArchitecture(one) == NVML_DEVICE_ARCH_AMPERE,
            "memory_v1": [v1.total, v1.used, v1.free],
            "memory_v2": [v2.total, v2.reserved, v2.used, v2.free],
            "rates": [nvmlDeviceGetUtilizationRates(one).gpu, nvmlDeviceGetUtilizationRates(one).memory],
            "decoder": nvmlDeviceGetDecoderUtilization(one),
            "encoder": nvmlDeviceGetEncoderUtilization(one),
            "jpg": nvmlDeviceGetJpgUtilization(one),
            "ofa": nvmlDeviceGetOfaUtilization(one),
            "tx_rx": [fields[0].value.ullVal, fields[1].value.ullVal],
            "types": [fields[0].valueType, fields[2].valueType],
            "instant": fields[2].value.uiVal,
            "energy_field": fields[3].value.ullVal,
            "nvlink": fields[4].nvmlReturn,
            "power": nvmlDeviceGetPowerUsage(one),
            "energy": nvmlDeviceGetTotalEnergyConsumption(one),
            "temperature": [nvmlDeviceGetTemperature(one, NVML_TEMPERATURE_GPU),
                            nvmlDeviceGetTemperatureV(one, NVML_TEMPERATURE_GPU)],
            "clocks": [nvmlDeviceGetClockInfo(one, NVML_CLOCK_SM), nvmlDeviceGetClockInfo(one, NVML_CLOCK_MEM)],
            "no_clock": refused(nvmlDeviceGetClockInfo, one, NVML_CLOCK_VIDEO),
            "throttle": [nvmlDeviceGetCurrentClocksThrottleReasons(one),
                         nvmlDeviceGetCurrentClocksEventReasons(one)],
            "ecc": [nvmlDeviceGetTotalEccErrors(one, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC),
                    nvmlDeviceGetTotalEccErrors(one, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC)],
            "no_ecc": refused(nvmlDeviceGetTotalEccErrors, one, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC),
            "calls": fake.fake_nvml_calls(b"nvmlDeviceGetUtilizationRates"),
        }
        nvmlShutdown()
        """,
    )

    assert answer == {
        "driver": "600.1.2",
        "cuda": 13010,
        "count": 2,
        "name": "Made up 9000",
        "index": 1,
        "ampere": True,
        "memory_v1": [1000, 350, 650],
        "memory_v2": [1000, 50, 300, 650],
        "rates": [70, 20],
        "decoder": [33, 1234],
        "encoder": [44, 1234],
        "jpg": [55, 1234],
        "ofa": [66, 1234],
        "tx_rx": [2000, 55],
        "types": [3, 1],
        "instant": 310_000,
        "energy_field": 600_000,
        "nvlink": 3,
        "power": 300_500,
        "energy": 600_000,
        "temperature": [61, 61],
        "clocks": [1500, 2600],
        "no_clock": "NVMLError_NotSupported",
        "throttle": [4, 4],
        "ecc": [7, 8],
        "no_ecc": "NVMLError_NotSupported",
        "calls": 2,
    }


GPM = """
def between(first, second, ids):
    request = c_nvmlGpmMetricsGet_t()
    request.version = NVML_GPM_METRICS_GET_VERSION
    request.sample1, request.sample2, request.numMetrics = first, second, len(ids)
    for place, id in zip(request.metrics, ids):
        place.metricId = id
    nvmlGpmMetricsGet(request)
    return [(m.nvmlReturn, m.value) for m in request.metrics[: len(ids)]]
"""


def test_nvidia_ml_py_reads_the_means_of_gpm(ask: Ask) -> None:
    gpm = {
        "sm_util": [[0, 90], [2, 10]],
        "nvdec_0": 55,
        "nvjpg_7": 5,
        "nvofa_1": 6,
        "pcie_rx": 1200,
    }

    answer = ask(
        {"devices": [{"gpm": gpm}, {}]},
        GPM
        + textwrap.dedent(
            """
            nvmlInit()
            one, mute = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
            samples = [nvmlGpmSampleAlloc() for _ in range(3)]
            fake.fake_nvml_advance(1.0)
            nvmlGpmSampleGet(one, samples[0])
            fake.fake_nvml_advance(4.0)
            nvmlGpmSampleGet(one, samples[1])
            fake.fake_nvml_advance(0.05)
            nvmlGpmSampleGet(one, samples[2])
            ids = [NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_NVDEC_0_UTIL, NVML_GPM_METRIC_NVJPG_7_UTIL,
                   NVML_GPM_METRIC_NVOFA_1_UTIL, NVML_GPM_METRIC_PCIE_RX_PER_SEC, NVML_GPM_METRIC_NVDEC_1_UTIL]
            answer = {
                "supported": [nvmlGpmQueryDeviceSupport(d).isSupportedDevice for d in (one, mute)],
                "mute": refused(nvmlGpmSampleGet, mute, samples[0]),
                "means": between(samples[0], samples[1], ids),
                "too_close": refused(between, samples[1], samples[2], ids),
                "alive": fake.fake_nvml_samples_alive(),
            }
            for sample in samples:
                nvmlGpmSampleFree(sample)
            answer["alive_after"] = fake.fake_nvml_samples_alive()
            """
        ),
    )

    assert answer == {
        "supported": [1, 0],
        "mute": "NVMLError_NotSupported",
        "means": [[0, 30.0], [0, 55.0], [0, 5.0], [0, 6.0], [0, 1200.0], [3, 0.0]],
        "too_close": "NVMLError_InvalidArgument",
        "alive": 3,
        "alive_after": 0,
    }


def test_nvidia_ml_py_finds_the_mig_devices_of_a_gpu(ask: Ask) -> None:
    mig = {
        "enabled": True,
        "devices": [
            {"uuid": "MIG-a", "gpu_instance": 3, "profile": 0, "gpm": {"sm_util": 20}},
            {"uuid": "MIG-b", "gpu_instance": 5, "compute_instance": 1, "profile": 0},
        ],
    }
    profile = {"profile": 0, "slices": 1, "sms": 16, "decoders": 1, "memory_mb": 9856}
    gpu = {"gpu_utilization": 90, "gpm": {"sm_util": 50}, "mig": mig, "profiles": [profile]}

    answer = ask(
        {"devices": [gpu]},
        GPM
        + textwrap.dedent(
            """
            nvmlInit()
            gpu = nvmlDeviceGetHandleByIndex(0)
            part = nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
            first, second = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
            nvmlGpmMigSampleGet(gpu, 3, first)
            fake.fake_nvml_advance(1.0)
            nvmlGpmMigSampleGet(gpu, 3, second)
            attributes = nvmlDeviceGetAttributes(part)
            info = nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0, version=1)
            instance = nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(gpu, 5))
            answer = {
                "mode": nvmlDeviceGetMigMode(gpu),
                "max": nvmlDeviceGetMaxMigDeviceCount(gpu),
                "uuid": nvmlDeviceGetUUID(part),
                "is_mig": [nvmlDeviceIsMigDeviceHandle(d) for d in (gpu, part)],
                "ids": [nvmlDeviceGetGpuInstanceId(part), nvmlDeviceGetComputeInstanceId(part)],
                "parent": nvmlDeviceGetUUID(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part))
                          == nvmlDeviceGetUUID(gpu),
                "rates": refused(nvmlDeviceGetUtilizationRates, gpu),
                "no_such_part": refused(nvmlDeviceGetMigDeviceHandleByIndex, gpu, 4),
                "gpm": between(first, second, [NVML_GPM_METRIC_SM_UTIL]),
                "attributes": [attributes.multiprocessorCount, attributes.sharedDecoderCount],
                "profile": [info.sliceCount, info.decoderCount, info.memorySizeMB],
                "instance": [instance.id, instance.profileId],
            }
            """
        ),
    )

    assert answer == {
        "mode": [1, 1],
        "max": 7,
        "uuid": "MIG-b",
        "is_mig": [0, 1],
        "ids": [5, 1],
        "parent": True,
        "rates": "NVMLError_NotSupported",
        "no_such_part": "NVMLError_NotFound",
        "gpm": [[0, 20.0]],
        "attributes": [16, 1],
        "profile": [1, 1, 9856],
        "instance": [5, 0],
    }


def test_nvidia_ml_py_lists_the_processes_on_the_gpu(ask: Ask) -> None:
    processes = [
        {"pid": "self", "memory": 500, "sm": 60, "dec": 20, "jpg": 3},
        {"pid": 11, "sm": 30, "from": 1},
        {"pid": 12, "kind": "graphics", "memory": 7},
    ]

    answer = ask(
        {"devices": [{"processes": processes}]},
        """
        import os
        nvmlInit()
        one = nvmlDeviceGetHandleByIndex(0)
        running = lambda function: [(p.pid if p.pid != os.getpid() else "self", p.usedGpuMemory) for p in function(one)]
        answer = {
            "compute": running(nvmlDeviceGetComputeRunningProcesses_v3),
            "compute_v2": running(nvmlDeviceGetComputeRunningProcesses_v2),
            "graphics": running(nvmlDeviceGetGraphicsRunningProcesses_v3),
            "mps": running(nvmlDeviceGetMPSComputeRunningProcesses_v3),
        }
        fake.fake_nvml_advance(1.0)
        samples = nvmlDeviceGetProcessUtilization(one, 0)
        answer["samples"] = [(s.smUtil, s.decUtil, s.timeStamp) for s in samples]
        answer["again"] = refused(nvmlDeviceGetProcessUtilization, one, 2_000_000)
        infos = nvmlDeviceGetProcessesUtilizationInfo(one, 0)
        answer["infos"] = [(i.smUtil, i.decUtil, i.jpgUtil, i.timeStamp) for i in infos]
        """,
    )

    assert answer == {
        "compute": [["self", 500]],
        "compute_v2": [["self", 500]],
        "graphics": [[12, 7]],
        "mps": [],
        "samples": [[60, 20, 2_000_000], [30, 0, 2_000_000]],
        "again": "NVMLError_NotFound",
        "infos": [[60, 20, 3, 2_000_000], [30, 0, 0, 2_000_000]],
    }


def test_nvidia_ml_py_names_the_injected_error(ask: Ask) -> None:
    answer = ask(
        {
            "devices": [{"power": 1}],
            "faults": [{"function": "*", "code": 15, "from_time": 1}],
        },
        """
        nvmlInit()
        one = nvmlDeviceGetHandleByIndex(0)
        answer = [refused(nvmlDeviceGetPowerUsage, one)]
        fake.fake_nvml_advance(1.0)
        answer.append(refused(nvmlDeviceGetPowerUsage, one))
        answer.append(refused(nvmlShutdown))
        answer.append(refused(nvmlDeviceGetCount))
        """,
    )

    assert answer == [None, "NVMLError_GpuIsLost", None, "NVMLError_GpuIsLost"]


def test_a_script_may_be_a_file_and_an_invalid_one_fails_init(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"devices": []}')
    count = "nvmlInit(); answer = nvmlDeviceGetCount()"
    init = "answer = refused(nvmlInit)"

    assert ask(f"@{path}", count) == 0
    assert ask(f"@{tmp_path / 'none.json'}", init) == "NVMLError_Unknown"
    assert ask('{"devises": []}', init) == "NVMLError_Unknown"


def test_a_real_clock_advances(ask: Ask) -> None:
    answer = ask(
        {"clock": "real", "devices": [{"temperature": [[0, 40], [0.05, 50]]}]},
        """
        import time
        nvmlInit()
        one = nvmlDeviceGetHandleByIndex(0)
        deadline = time.monotonic() + 30
        while nvmlDeviceGetTemperature(one, NVML_TEMPERATURE_GPU) != 50:
            assert time.monotonic() < deadline
        answer = "reached"
        """,
    )

    assert answer == "reached"


def test_nvidia_ml_py_reports_missing_functions_of_an_old_driver(ask: Ask) -> None:
    answer = ask(
        "{}",
        """
        nvmlInit()
        one = nvmlDeviceGetHandleByIndex(0)
        answer = [
            nvmlDeviceGetUtilizationRates(one).gpu,
            refused(nvmlGpmSampleAlloc),
            refused(nvmlDeviceGetMigMode, one),
            refused(nvmlDeviceGetFieldValues, one, [197]),
        ]
        """,
        driver="old",
    )

    assert answer == [90] + ["NVMLError_FunctionNotFound"] * 3


# --- nvml.h -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def header() -> Path:
    for file in importlib.metadata.files("nvidia-nvml-dev") or []:
        if file.name == "nvml.h":
            return Path(str(file.locate()))
    pytest.fail("nvidia-nvml-dev has no nvml.h")


@pytest.fixture(scope="session")
def layout(libraries: dict[str, Path]) -> dict[str, Any]:
    """Structs and constants of the library, which are those of nvml-wrapper-sys."""
    program = """
library.fake_nvml_layout.restype = ctypes.c_char_p
print(library.fake_nvml_layout().decode())
"""
    return json.loads(loaded(libraries["new"], program))


@pytest.fixture(scope="session")
def official(header: Path, layout: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same structs and constants from NVIDIA's header, read by a C compiler."""
    lines = []
    for struct, ours in layout["structs"].items():
        lines.append(f'P("{struct}", "", sizeof({struct}));')
        lines += [f'P("{struct}", "{f}", offsetof({struct}, {f}));' for f in ours["fields"]]
    lines += [f'P("{number}", "", {number});' for number in layout["numbers"]]
    lines.append('P("metrics_max", "", NVML_GPM_METRIC_MAX);')
    folder = tmp_path_factory.mktemp("header")
    (folder / "layout.c").write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "nvml.h"\n'
        '#define P(what, field, value) printf("%s %s %lu\\n", what, field, (unsigned long)(value))\n'
        "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
    )
    compiled = subprocess.run(
        ["cc", f"-I{header.parent}", "-o", "layout", "layout.c"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    printed = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout
    answer: dict[str, dict[str, int]] = {}
    for line in printed.splitlines():
        what, field, value = line.split(" ")
        answer.setdefault(what, {})[field] = int(value)
    return answer


def test_every_struct_has_the_size_and_offsets_of_the_header(
    layout: dict[str, Any], official: dict[str, dict[str, int]]
) -> None:
    differing = set()
    for struct, ours in layout["structs"].items():
        theirs = dict(official[struct])
        size = theirs.pop("")
        assert ours["fields"] == theirs, struct
        if ours["size"] != size:
            differing.add(struct)

    assert differing == KNOWN_DIFFERENCES


def test_the_only_struct_that_differs_has_more_metrics_in_the_header(
    layout: dict[str, Any], official: dict[str, dict[str, int]]
) -> None:
    ours = layout["structs"]["nvmlGpmMetricsGet_t"]
    metric = layout["structs"]["nvmlGpmMetric_t"]["size"]
    head = ours["fields"]["metrics"]

    assert (official["nvmlGpmMetricsGet_t"][""] - head) / metric == official["metrics_max"][""]
    assert (ours["size"] - head) / metric == 210
    assert official["metrics_max"][""] >= 210


def test_every_constant_equals_that_of_the_header(
    layout: dict[str, Any], official: dict[str, dict[str, int]]
) -> None:
    theirs = {name: official[name][""] for name in layout["numbers"]}

    assert layout["numbers"] == theirs
    assert sum(name.startswith("NVML_GPM_METRIC_") for name in theirs) == 10 + 8 + 8 + 2


# --- The exported functions -------------------------------------------------------------------


def exported(folder: Path) -> set[str]:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", folder / FILE_NAME],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name for line in listed.splitlines() if (name := line.split()[-1]).startswith("nvml")}


def test_every_exported_function_is_in_the_header(libraries: dict[str, Path], header: Path) -> None:
    declared = set(re.findall(r"\bDECLDIR\b[\w\s*]*?\b(nvml\w+)\(", header.read_text()))

    new = exported(libraries["new"])

    # These old names exist for old callers. The header declares only the newest ones.
    assert new - declared <= {
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
    }
    assert len(new) > 50


def test_the_old_driver_exports_a_subset_of_the_new_one(libraries: dict[str, Path]) -> None:
    new, old = exported(libraries["new"]), exported(libraries["old"])

    assert old < new
    assert {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetUtilizationRates"} <= old
    assert not any("Gpm" in name or "Mig" in name for name in old)


def test_every_function_counts_its_calls_under_its_own_name(libraries: dict[str, Path]) -> None:
    names = sorted(exported(libraries["new"]))
    program = f"""
library.fake_nvml_calls.restype = ctypes.c_uint64
null = ctypes.c_void_p(None)
for name in {names}:
    before = library.fake_nvml_calls(name.encode())
    getattr(library, name)(null, null, null, null)
    print(name, library.fake_nvml_calls(name.encode()) - before)
"""

    counted = loaded(libraries["new"], program)

    assert counted.splitlines() == [f"{name} 1" for name in names]
