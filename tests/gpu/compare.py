"""Compares the values of headspace, `nvidia-smi` and the driver's library over the same time.

The functions are pure, so they can be tested without a GPU.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Values by quantity. Each value has the time of its reading, in seconds.
Series = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Quantity:
    """A quantity that headspace reads, and the driver's library or `nvidia-smi` too."""

    #: The name in the table.
    name: str
    #: The unit in the table.
    unit: str
    #: The key in headspace's records.
    key: str
    #: Factor from the unit of the records to the unit of the table.
    factor: float
    #: The name in `nvidia-smi --query-gpu`. None if `nvidia-smi` has no such value.
    smi: str | None
    #: Allowed difference in the unit of the table. The larger of the two limits counts.
    absolute: float
    #: Allowed difference as a share of the larger value.
    relative: float
    #: Whether the quantity is a total, so that its growth per second is compared.
    total: bool = False


def _utilization(task: str, smi: str | None) -> Quantity:
    key = f"hw.gpu.utilization{{hw.gpu.task={task}}}"
    return Quantity(f"{task} utilisation", "%", key, 100.0, smi, 15.0, 0.1)


def _gpm(name: str, key: str) -> Quantity:
    return Quantity(name, "%", key, 100.0, None, 10.0, 0.1)


_ENGINE = "headspace.gpu.engine.utilization"

#: All compared quantities. Quantities that change quickly have wide tolerances: the three readers sample at
#: different moments.
QUANTITIES = [
    _utilization("general", "utilization.gpu"),
    _utilization("decoder", "utilization.decoder"),
    _utilization("encoder", "utilization.encoder"),
    Quantity("memory used", "MiB", "hw.gpu.memory.usage", 1 / 2**20, "memory.used", 64.0, 0.05),
    Quantity("memory limit", "MiB", "hw.gpu.memory.limit", 1 / 2**20, "memory.total", 1.0, 0.001),
    Quantity("power", "W", "hw.power", 1.0, "power.draw", 15.0, 0.15),
    Quantity("temperature", "°C", "hw.temperature", 1.0, "temperature.gpu", 5.0, 0.1),
    Quantity("SM clock", "MHz", "headspace.gpu.clock{domain=sm}", 1e-6, "clocks.sm", 60.0, 0.15),
    Quantity(
        "memory clock", "MHz", "headspace.gpu.clock{domain=memory}", 1e-6, "clocks.mem", 60.0, 0.15
    ),
    Quantity("energy", "W", "hw.energy", 1.0, None, 15.0, 0.15, total=True),
    Quantity(
        "PCIe in", "MB/s", "hw.gpu.io{network.io.direction=receive}", 1e-6, None, 50.0, 0.25, True
    ),
    Quantity(
        "PCIe out", "MB/s", "hw.gpu.io{network.io.direction=transmit}", 1e-6, None, 50.0, 0.25, True
    ),
    _gpm("SM utilisation", "headspace.gpu.sm.utilization{source=gpm}"),
    _gpm("SM occupancy", "headspace.gpu.sm.occupancy"),
    _gpm("tensor cores", "headspace.gpu.tensor.utilization"),
    _gpm("DRAM bandwidth", "headspace.gpu.dram.utilization"),
    *(_gpm(f"NVDEC {i}", f"{_ENGINE}{{engine=nvdec{i}}}") for i in range(8)),
]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    quantity: str
    unit: str
    ours: float | None
    smi: float | None
    nvml: float | None
    agree: bool | None
    tolerance: str


def of_records(records: Iterable[Mapping[str, Any]], ordinal: int = 0) -> Series:
    """headspace's readings of a GPU, in the units of the table."""
    series: Series = {}
    for record in records:
        if record.get("kind") != "tick":
            continue
        readings = record["readings"].get(f"gpu:{ordinal}", {})
        for quantity in QUANTITIES:
            if quantity.key in readings:
                value = readings[quantity.key] * quantity.factor
                series.setdefault(quantity.name, []).append((record["at_s"], value))
    return series


def of_smi(text: str, at: float) -> Series:
    """The values in a line of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`."""
    series: Series = {}
    asked = [quantity for quantity in QUANTITIES if quantity.smi is not None]
    for line in csv.reader(io.StringIO(text)):
        for quantity, word in zip(asked, line):
            try:
                value = float(word)
            except ValueError:  # `[N/A]`, `[Not Supported]`
                continue
            series.setdefault(quantity.name, []).append((at, value))
    return series


def of_means(means: Mapping[str, float], begin: float, end: float) -> Series:
    """Series of means between two times. Traffic in MiB/s becomes a total in MB."""
    totals = {quantity.name for quantity in QUANTITIES if quantity.total}
    return {
        name: [(begin, 0.0), (end, mean * 2**20 / 1e6 * (end - begin))]
        if name in totals
        else [(end, mean)]
        for name, mean in means.items()
    }


def smi_query() -> str:
    """The query for `nvidia-smi`, in the order in which `of_smi` reads the values."""
    return ",".join(quantity.smi for quantity in QUANTITIES if quantity.smi is not None)


def level(values: Sequence[tuple[float, float]], *, total: bool) -> float | None:
    """The mean of a level over time, or the growth per second of a total. None without enough values.

    A value counts for the time since the one before it: headspace reads less often after the first seconds.
    """
    if len(values) < 2:
        return values[0][1] if values and not total else None
    (begin, first), (end, last) = values[0], values[-1]
    if end <= begin:
        return None
    if total:
        return (last - first) / (end - begin)
    pairs = itertools.pairwise(values)
    return sum(value * (at - before) for (before, _), (at, value) in pairs) / (end - begin)


def rows(ours: Series, smi: Series, nvml: Series) -> list[Row]:
    """The table. It leaves out quantities without any value."""
    table = []
    for quantity in QUANTITIES:
        values = [
            level(series.get(quantity.name, []), total=quantity.total)
            for series in (ours, smi, nvml)
        ]
        if any(value is not None for value in values):
            table.append(compare(quantity, *values))
    return table


def compare(quantity: Quantity, ours: float | None, smi: float | None, nvml: float | None) -> Row:
    """A row that says whether our value agrees with each reference value. None if there is no reference value. If
    only a reference has a value, they disagree."""
    others = [other for other in (smi, nvml) if other is not None]
    agree: bool | None = None
    if ours is None:
        agree = False
    elif others:
        agree = all(
            abs(ours - other)
            <= max(quantity.absolute, quantity.relative * max(abs(ours), abs(other)))
            for other in others
        )
    tolerance = f"±{quantity.absolute:g} {quantity.unit} or {quantity.relative:.1%}"
    return Row(quantity.name, quantity.unit, ours, smi, nvml, agree, tolerance)


def claim(name: str, value: float | None, low: float, high: float) -> Row:
    """A check that follows from the load itself: our value lies between two bounds."""
    agree = None if value is None else low <= value <= high
    return Row(name, "%", value, None, None, agree, f"{low:g} to {high:g}")


def claims(load: str, ours: Series) -> list[Row]:
    """Checks of the known effects of a load, independent of the driver."""
    sm = level(ours.get("SM utilisation", []), total=False)
    decoders = [level(ours.get(f"NVDEC {i}", []), total=False) for i in range(8)]
    known = [busy for busy in decoders if busy is not None]
    busiest = max(known) if known else None
    return {
        "idle": [claim("SMs idle", sm, 0.0, 10.0), claim("decoders idle", busiest, 0.0, 5.0)],
        "matmul": [claim("SMs busy", sm, 80.0, 100.0)],
        "half": [claim("SMs busy half of the time", sm, 30.0, 75.0)],
        "decode": [claim("a decoder busy", busiest, 1.0, 100.0)],
    }.get(load, [])


def text(load: str, table: Sequence[Row]) -> str:
    """The table for people."""
    lines = [
        f"{load}",
        f"  {'quantity':<26} {'headspace':>12} {'nvidia-smi':>12} {'nvml':>12} {'':<5} {'agree':<6} tolerance",
    ]
    for row in table:
        numbers = " ".join(
            f"{'-' if value is None else format(value, '.1f'):>12}"
            for value in (row.ours, row.smi, row.nvml)
        )
        agree = {True: "yes", False: "NO", None: "-"}[row.agree]
        lines.append(f"  {row.quantity:<26} {numbers} {row.unit:<5} {agree:<6} {row.tolerance}")
    return "\n".join(lines)
