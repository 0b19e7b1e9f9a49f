"""Compares the driver's utilisation and traffic with what a program does on the GPU.

    python tests/gpu/busy_share.py [--seconds N]

For a machine with an NVIDIA GPU of the Hopper generation or later, torch and nvidia-ml-py. Each load works and then
pauses, in turn. CUDA events measure the share of time in which the GPU works. Beside it are the driver's answers:
GPU-Util, and SM activity and PCIe traffic by GPM.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from statistics import fmean

import driver
import pynvml
import torch

PAUSES_S = (0.0, 0.01, 0.03)
COPIED_MIB = 256


class Utilization(threading.Thread):
    """Reads GPU-Util twice a second."""

    def __init__(self, device: object) -> None:
        super().__init__(daemon=True)
        self.device = device
        self.values: list[int] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            self.values.append(pynvml.nvmlDeviceGetUtilizationRates(self.device).gpu)


def loads() -> dict[str, Callable[[], object]]:
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)
    on_host = torch.empty(COPIED_MIB << 20, dtype=torch.uint8, pin_memory=True)
    on_gpu = torch.empty_like(on_host, device="cuda")
    return {
        "matrix products": lambda: [torch.mm(a, b, out=out) for _ in range(40)],
        "kernel of one thread": lambda: torch.cuda._sleep(20_000_000),
        "200 short kernels": lambda: [torch.cuda._sleep(50_000) for _ in range(200)],
        "copies to the GPU": lambda: on_gpu.copy_(on_host, non_blocking=True),
        "copies from the GPU": lambda: on_host.copy_(on_gpu, non_blocking=True),
    }


def measure(load: Callable[[], object], pause_s: float, seconds: float) -> tuple[float, float]:
    """Share of time in which the GPU works by CUDA events, and how often the load ran per second."""
    busy_ms, count, begin = 0.0, 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        load()
        last.record()
        last.synchronize()
        busy_ms += first.elapsed_time(last)
        count += 1
        time.sleep(pause_s)
    elapsed = time.perf_counter() - begin
    return busy_ms / 1000 / elapsed, count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load (default: 3)")
    seconds = parser.parse_args().seconds
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    counters = driver.open_driver(pynvml.nvmlDeviceGetUUID(device))
    print(f"# {torch.cuda.get_device_name()}, driver {pynvml.nvmlSystemGetDriverVersion()}")
    print(
        "| load | pause | busy by CUDA events | GPU-Util | SMs by GPM | copied | PCIe in | PCIe out |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, load in loads().items():
        load()
        torch.cuda.synchronize()
        for pause_s in PAUSES_S:
            reader = Utilization(device)
            with counters.counters() as between:
                reader.start()
                busy, per_s = measure(load, pause_s, seconds)
                gpm = between()
            reader.done.set()
            reader.join()
            # The first value may be from before the load.
            util = fmean(reader.values[1:])
            copied = f"{COPIED_MIB * per_s:.0f} MiB/s" if name.startswith("copies") else ""
            traffic = " | ".join(f"{gpm[way]:.0f} MiB/s" for way in ("PCIe in", "PCIe out"))
            print(
                f"| {name} | {1000 * pause_s:.0f} ms | {busy:.1%} | {util:.1f} % | {gpm['SM utilisation']:.1f} % "
                f"| {copied} | {traffic} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
