"""The chart of the steps in a notebook, and the history from which it is drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from running import Programs, Ran

import headspace
from headspace._native import duration_ms
from headspace._session.step_chart import draw_steps
from headspace._session.step_history import MAX_POINTS, Interval, StepHistory


def tick(at_s: float, step_ms: float | None, wait_ms: float = 1.0, phase: str = "live") -> Any:
    """A tick of the loop `train` with ten steps, or without a step."""
    if step_ms is None:
        return {"at_s": at_s, "loops": []}
    step = {"count": 10, "sum_ms": 10 * step_ms}
    wait = {"count": 10, "sum_ms": 10 * wait_ms}
    return {
        "at_s": at_s,
        "loops": [{"name": "train", "phase": phase, "steps": 10, "step": step, "wait": wait}],
    }


def chart(steps: list[float | None], floor_ms: float | None = None) -> ElementTree.Element:
    intervals = [Interval(tick(float(at), step)) for at, step in enumerate(steps)]
    return ElementTree.fromstring(draw_steps(intervals, "train", floor_ms))


def heights(path: str) -> list[float]:
    """Heights of the points of a line."""
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]


def curves(svg: ElementTree.Element) -> dict[str, str]:
    """The lines of the chart by their colour."""
    return {path.attrib["stroke"]: path.attrib["d"] for path in svg.iter("path")}


def test_the_floor_is_a_line_at_the_height_of_its_value() -> None:
    svg = chart([20.0, 20.0, 10.0], floor_ms=10.0)

    (floor,) = [line for line in svg.iter("line") if "stroke-dasharray" in line.attrib]
    steps = heights(curves(svg)["currentColor"])
    assert floor.attrib["y1"] == floor.attrib["y2"]
    assert float(floor.attrib["y1"]) == pytest.approx(steps[2], abs=0.1)
    assert steps[0] < steps[2]
    assert "floor 10.0 ms" in "".join(svg.itertext())


def test_without_a_floor_no_line_is_drawn_for_it() -> None:
    svg = chart([20.0, 20.0, 10.0])

    assert not [line for line in svg.iter("line") if "stroke-dasharray" in line.attrib]
    assert "floor" not in ElementTree.tostring(svg, "unicode")


def test_a_tick_without_steps_is_a_gap() -> None:
    step = curves(chart([20.0, 20.0, None, 20.0]))["currentColor"]

    assert step.count("M") == 2
    assert len(heights(step)) == 3


def test_a_long_first_step_is_cut_off_and_named() -> None:
    svg = chart([2000.0, 20.0, 20.0, 20.0])

    first, *rest = heights(curves(svg)["currentColor"])
    assert rest[0] - first > 50
    assert "cut off: up to 2.00 s" in "".join(svg.itertext())
    assert "cut off" not in "".join(chart([21.0, 20.0, 20.0]).itertext())


def test_fewer_than_two_points_are_no_chart() -> None:
    assert draw_steps([], "train", 1.0) == ""
    assert draw_steps([Interval(tick(1.0, 20.0))], "train", 1.0) == ""
    assert draw_steps([Interval(tick(at, 20.0)) for at in (1.0, 2.0)], "other", 1.0) == ""


def test_the_chart_has_no_script_and_loads_nothing() -> None:
    source = ElementTree.tostring(chart([20.0, 20.0], 10.0), "unicode")

    for word in ("script", "href", "url(", "<style", "http:"):
        assert word not in source.replace("http://www.w3.org", "")


def test_steps_on_repeated_batches_are_left_out() -> None:
    interval = Interval(tick(1.0, 20.0))
    interval.add(Interval(tick(2.0, 5.0, phase="replay")))
    interval.add(Interval(tick(3.0, 40.0, wait_ms=3.0)))

    assert interval.step_ms("train") == 30.0
    assert interval.wait_ms("train") == 2.0
    assert (interval.end_s, interval.ticks) == (3.0, 3)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.85, "850 µs"),
        (30.04, "30.0 ms"),
        (250.0, "250 ms"),
        (1520.0, "1.52 s"),
        (12_340.0, "12.3 s"),
    ],
)
def test_durations_have_the_units_of_the_verdict(ms: float, text: str) -> None:
    assert duration_ms(ms) == text


def test_the_history_of_a_long_run_is_bounded_and_loses_no_tick(tmp_path: Path) -> None:
    history = StepHistory(tmp_path)
    count = 5 * MAX_POINTS + 7

    history._add_records({**tick(float(at), 20.0), "kind": "tick"} for at in range(count))

    assert MAX_POINTS / 2 <= len(history.whole) <= MAX_POINTS
    assert sum(interval.ticks for interval in history.whole) == count
    assert history.whole[-1].end_s == count - 1
    *equal, _ = [interval.ticks for interval in history.whole]
    assert set(equal) == {8}


def run_loop(program: Programs, *, load_ms: int, compute_ms: int) -> Ran:
    """A run of 200 steps with a tick each 50 ms."""
    times = ("--load-ms", load_ms, "--compute-ms", compute_ms)
    return program("loop.py", "--steps", 200, *times, env={"HEADSPACE_INTERVAL": "50ms"})


def test_the_history_has_the_steps_of_the_records(program: Programs) -> None:
    run = run_loop(program, load_ms=2, compute_ms=2)

    history = StepHistory(run.folder / "rank0.jsonl")
    assert history.read()
    assert not history.read()

    summary = run.summary()
    assert (history.loop, history.steps) == (summary["loop"], 200)
    assert history.summary == summary
    means = [interval.step_ms(history.loop) for interval in history.whole]
    assert min(mean for mean in means if mean is not None) > 3.5


def test_a_report_has_its_chart_below_the_numbers_and_reads_the_files_when_it_is_shown(
    program: Programs, tmp_path: Path
) -> None:
    run = run_loop(program, load_ms=3, compute_ms=1)
    html = '<section class="verdict">Step</section><section class="bottleneck">fetch</section>'
    loop = run.summary()["loop"]
    summary = json.dumps({"loop": loop, "mode": "measure", "floor_step_ms": 1.0})

    shown = headspace.Report(summary, "", html, str(run.folder / "rank0.jsonl"))._repr_html_()
    without = headspace.Report(summary, "", html, str(tmp_path / "none.jsonl"))._repr_html_()

    assert shown.index("Step</section>") < shown.index("<svg") < shown.index("fetch")
    assert "floor 1.0 ms" in shown
    assert without == html
    assert headspace.Report(summary, "", html)._repr_html_() == html
