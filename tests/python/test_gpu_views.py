"""`headspace top` and the page show the GPUs and their engines with the numbers of the records.

The run has two GPUs of the fake NVML (`tests/fake_nvml`): a current one, whose engines have
different loads, and an older one, which has only one value for all decoders.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from running import Programs, Record, Started, of_kind, wait_until
from screen import Terminal

if TYPE_CHECKING:
    from browser import Browser

pytest_plugins = ["browser_fixtures", "nvml_fixtures"]

HEADSPACE = [sys.executable, "-m", "headspace"]
HEALTHY = json.loads(
    (Path(__file__).parents[1] / "fake_nvml" / "src" / "healthy_h100.json").read_text()
)
#: Percent of each NVDEC engine of the first GPU.
ENGINES = [11, 22, 33, 44, 55, 66, 77]
TODAY = {**HEALTHY, "gpm": {**HEALTHY["gpm"], **{f"nvdec_{i}": e for i, e in enumerate(ENGINES)}}}
OLDER = {
    **{key: value for key, value in HEALTHY.items() if key not in ("gpm", "profiles", "mig")},
    "name": "NVIDIA A10",
    "architecture": "ampere",
    "decoder_utilization": 37,
    "gpu_utilization": 81,
}


@pytest.fixture
def run(program: Programs, library: Path, tmp_path: Path) -> Iterator[Started]:
    """A run that has read both GPUs and continues until its end is requested."""
    stop = tmp_path / "stop"
    run = program.start(
        "pipeline.py",
        stop,
        env={
            "HEADSPACE_INTERVAL": "0.25",
            "HEADSPACE_NVML_LIB": str(library),
            "HEADSPACE_FAKE_NVML": json.dumps({"clock": "real", "devices": [TODAY, OLDER]}),
        },
    )
    run.wait_for("training")
    wait_until(lambda: engines(run.records()), "the engines are read")
    yield run
    stop.touch()
    assert run.finish().exit_code == 0


def engines(records: list[Record]) -> dict[str, float]:
    """Busy percent of each NVDEC engine of the first GPU, from the last tick that has these readings."""
    for tick in reversed(of_kind(records, "tick")):
        readings: dict[str, Any] = tick["readings"].get("gpu:0", {})
        found = {
            engine[1]: 100 * value
            for key, value in readings.items()
            if (engine := re.search(r"engine\.utilization\{engine=(nvdec\d)\}", key))
        }
        if found:
            return found
    return {}


#: For the first GPU's chart: the largest share of a pixel row that has the colour of the first line.
WIDEST = """
const figure = [...document.querySelectorAll('figure')].find((one) => one.innerText.startsWith('GPU 0'));
const wanted = getComputedStyle(figure.querySelector('.legend i')).backgroundColor.match(/\\d+/g);
const canvas = figure.querySelector('canvas');
const { width, height } = canvas;
const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
let widest = 0;
for (let y = 0; y < height; y += 1) {
  let here = 0;
  for (let x = 0; x < width; x += 1) {
    const at = 4 * (y * width + x);
    if ([0, 1, 2].every((i) => Math.abs(pixels[at + i] - wanted[i]) < 8) && pixels[at + 3] > 200)
      here += 1;
  }
  widest = Math.max(widest, here);
}
return widest / width;
"""


def test_top_shows_each_gpu_and_each_engine(run: Started, tmp_path: Path) -> None:
    levels = engines(run.records())
    assert levels == pytest.approx({f"nvdec{i}": e for i, e in enumerate(ENGINES)})
    terminal = Terminal(
        [*HEADSPACE, "top", str(run.path)],
        columns=100,
        lines=60,
        env={"NO_COLOR": ""},
        cwd=tmp_path,
    )
    try:
        # The lines of the screen may arrive in several pieces.
        terminal.wait_for(" gpu 1  NVIDIA A10 ")
        terminal.wait_for("all decoders")
        first, second = re.split(r"\n gpu 1 ", terminal.text)
        first = first[first.index("\n gpu 0 ") :]
        assert "NVIDIA H100 80GB HBM3   400 W  55 °C" in first
        decoders = {f"NVDEC {engine[-1]}": level for engine, level in levels.items()}
        for label, level in {"SMs": 70, "GPU busy": 90, **decoders}.items():
            bar = "█" * round(level / 10)
            assert re.search(rf"^ +{label} +{level:.0f} %  {bar}·*$", first, re.M), terminal.text
        assert "18.6 GiB of 80.0 GiB" in first
        # The screen omits values that this GPU does not have.
        assert re.search(r"^ +all decoders +37 %", second, re.M), terminal.text
        assert re.search(r"^ +GPU busy +81 %", second, re.M), terminal.text
        assert "NVDEC" not in second
        assert "SMs" not in second
        # On a small terminal the GPUs are further down, and the user can scroll to them.
        terminal.resize(80, 24)
        wait_until(lambda: terminal.read() or "q quit" in terminal.screen.display[23], "24 lines")
        terminal.type("\x1b[F")
        terminal.wait_for("NVDEC 6")
        terminal.wait_for(" gpu 1  NVIDIA A10 ")
    finally:
        terminal.close()


def test_the_page_shows_each_gpu_and_each_engine(
    run: Started, tmp_path: Path, browser: Browser
) -> None:
    levels = engines(run.records())
    wait_until(lambda: run.kind("summary"), "a summary")
    # GPUs are read once a second, so not every tick has readings.
    wait_until(
        lambda: sum("gpu:0" in tick["readings"] for tick in run.kind("tick")) > 3, "four readings"
    )
    page = tmp_path / "page.html"
    command = [*HEADSPACE, "report", str(run.folder), "--html", str(page)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)

    browser.look(390, 844)
    browser.open(page.as_uri())
    browser.wait(browser.has_chart, "it is drawn")
    shown = browser.run("return document.body.innerText")
    (today,) = re.findall(r"GPU 0, NVIDIA H100 80GB HBM3 in %\n((?:.+\n.+ %\n)+)", shown)
    lines = today.splitlines()
    drawn = dict(zip(lines[::2], lines[1::2], strict=True))
    assert drawn["SMs"] == "70 %"
    for engine, level in levels.items():
        assert drawn[f"NVDEC {engine[-1]}"] == f"{level:.0f} %"
    assert "GPU 1, NVIDIA A10 in %" in shown
    gpus: list[list[str]] = browser.run(
        "return [...document.querySelectorAll('table')].map((table) => [...table.rows])"
        ".find((rows) => rows[0].cells[0].innerText.startsWith('GPU'))"
        ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    cells = {row[0]: row for row in gpus}
    assert cells["0"][1:3] == ["70 %", "90 %"]
    assert cells["0"][3] == f"{sum(ENGINES) / 100:.1f} of 7 engines"
    assert "37 %" in cells["1"][3]
    # The chart has lines, not one dot per reading.
    assert browser.run(WIDEST) > 0.3

    assert browser.faults_by_width(page.as_uri(), browser.has_chart, dark=False) == {}
