"""Reads the driver without headspace: through `nvidia-ml-py` if it is installed, otherwise ctypes.

It also runs `nvidia-smi`. A separate thread reads both while a load runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import compare

#: Time between two readings. The driver's own sampling period is 1/6 s to 1 s.
_EVERY_S = 0.5

_CLOCK_SM, _CLOCK_MEMORY = 1, 2

#: Ids of the performance counters (GPM), by quantity.
_GPM_IDS = {
    "SM utilisation": 2,
    "SM occupancy": 3,
    "tensor cores": 5,
    "DRAM bandwidth": 10,
    "PCIe out": 20,
    "PCIe in": 21,
    **{f"NVDEC {i}": 30 + i for i in range(8)},
}


class NoGpu(Exception):
    """There is no GPU to check. The message says why."""


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _MetricInfo(ctypes.Structure):
    _fields_ = [("short", ctypes.c_char_p), ("long", ctypes.c_char_p), ("unit", ctypes.c_char_p)]


class _Metric(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("info", _MetricInfo),
    ]


class _Metrics(ctypes.Structure):
    # Larger than in any header: the library reads only the first `count`.
    _fields_ = [
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("metrics", _Metric * 512),
    ]


class Ctypes:
    """Reads the driver's library through ctypes."""

    name = "ctypes"

    def __init__(self, path: str, uuid: str) -> None:
        self._library = ctypes.CDLL(path)
        self._call("nvmlInit_v2")
        self._device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device))

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            raise OSError(code, function)

    def _number(self, function: str, *arguments: object, wide: bool = False) -> int:
        number = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        self._call(function, self._device, *arguments, ctypes.byref(number))
        return number.value

    def _engines(self, function: str) -> int:
        percent, period = ctypes.c_uint(), ctypes.c_uint()
        self._call(function, self._device, ctypes.byref(percent), ctypes.byref(period))
        return percent.value

    def _utilization(self) -> int:
        both = _Utilization()
        self._call("nvmlDeviceGetUtilizationRates", self._device, ctypes.byref(both))
        return both.gpu

    def _memory(self) -> _Memory:
        memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        self._call("nvmlDeviceGetMemoryInfo_v2", self._device, ctypes.byref(memory))
        return memory

    def questions(self) -> dict[str, Callable[[], float]]:
        """A function that reads each quantity, in the units of the table."""
        return {
            "general utilisation": self._utilization,
            "decoder utilisation": lambda: self._engines("nvmlDeviceGetDecoderUtilization"),
            "encoder utilisation": lambda: self._engines("nvmlDeviceGetEncoderUtilization"),
            "memory used": lambda: self._memory().used / 2**20,
            "memory limit": lambda: self._memory().total / 2**20,
            "power": lambda: self._number("nvmlDeviceGetPowerUsage") / 1e3,
            "temperature": lambda: self._number("nvmlDeviceGetTemperature", 0),
            "SM clock": lambda: self._number("nvmlDeviceGetClockInfo", _CLOCK_SM),
            "memory clock": lambda: self._number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            "energy": lambda: self._number("nvmlDeviceGetTotalEnergyConsumption", wide=True) / 1e3,
        }

    @contextlib.contextmanager
    def counters(self) -> Iterator[Callable[[], dict[str, float]]]:
        """Samples the performance counters. The yielded function returns their means since the entry."""
        samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        for sample in samples:
            self._call("nvmlGpmSampleAlloc", ctypes.byref(sample))
        try:
            self._call("nvmlGpmSampleGet", self._device, samples[0])

            def between() -> dict[str, float]:
                self._call("nvmlGpmSampleGet", self._device, samples[1])
                request = _Metrics(
                    version=1, count=len(_GPM_IDS), first=samples[0], second=samples[1]
                )
                for slot, number in enumerate(_GPM_IDS.values()):
                    request.metrics[slot].id = number
                self._call("nvmlGpmMetricsGet", ctypes.byref(request))
                answers = zip(_GPM_IDS, request.metrics)
                return {name: metric.value for name, metric in answers if metric.result == 0}

            yield between
        finally:
            for sample in samples:
                self._call("nvmlGpmSampleFree", sample)


class Pynvml(Ctypes):
    """Reads the same values through NVIDIA's `nvidia-ml-py`. The performance counters are still read through ctypes."""

    name = "nvidia-ml-py"

    def __init__(self, path: str, uuid: str) -> None:
        import pynvml

        super().__init__(path, uuid)
        pynvml.nvmlInit()
        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def questions(self) -> dict[str, Callable[[], float]]:
        nvml, device = self._nvml, self._handle

        def memory() -> object:
            return nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)

        return {
            "general utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu,
            "decoder utilisation": lambda: nvml.nvmlDeviceGetDecoderUtilization(device)[0],
            "encoder utilisation": lambda: nvml.nvmlDeviceGetEncoderUtilization(device)[0],
            "memory used": lambda: memory().used / 2**20,
            "memory limit": lambda: memory().total / 2**20,
            "power": lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1e3,
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(device, 0),
            "SM clock": lambda: nvml.nvmlDeviceGetClockInfo(device, _CLOCK_SM),
            "memory clock": lambda: nvml.nvmlDeviceGetClockInfo(device, _CLOCK_MEMORY),
            "energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3,
        }


def open_driver(uuid: str) -> Ctypes:
    """Opens the driver's library at the path that headspace uses."""
    named = os.environ.get("HEADSPACE_NVML_LIB")
    path = named or "libnvidia-ml.so.1"
    try:
        if named is None:
            with contextlib.suppress(ImportError):
                return Pynvml(path, uuid)
        return Ctypes(path, uuid)
    except OSError as error:
        raise NoGpu(f"the driver's library does not answer: {error}") from error


def smi(uuid: str) -> str | None:
    """A line of `nvidia-smi`. None if it is not installed or does not answer."""
    if os.environ.get("HEADSPACE_NVML_LIB") or shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", f"--query-gpu={compare.smi_query()}", "-i", uuid]
    try:
        done = subprocess.run(
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


class Watch:
    """Reads `nvidia-smi` and the library until the end of the block."""

    def __init__(self, driver: Ctypes, uuid: str) -> None:
        self.smi: compare.Series = {}
        self.nvml: compare.Series = {}
        self._driver = driver
        self._uuid = uuid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        questions = self._driver.questions()
        with contextlib.ExitStack() as stack:
            between = None
            with contextlib.suppress(OSError, AttributeError):
                between = stack.enter_context(self._driver.counters())
            begin = time.monotonic()
            while not self._stop.wait(_EVERY_S):
                self._look(questions)
            if between is not None:
                with contextlib.suppress(OSError):
                    self.nvml |= compare.of_means(between(), begin, time.monotonic())

    def _look(self, questions: dict[str, Callable[[], float]]) -> None:
        for name, ask in list(questions.items()):
            try:
                value = float(ask())
            except Exception:  # `nvidia-ml-py` has its own exception classes.
                del questions[name]
                continue
            self.nvml.setdefault(name, []).append((time.monotonic(), value))
        line = smi(self._uuid)
        if line is not None:
            for name, values in compare.of_smi(line, time.monotonic()).items():
                self.smi.setdefault(name, []).extend(values)
