"""`headspace report --html` and reports in notebooks, in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from running import Programs, Ran

if TYPE_CHECKING:
    from browser import Browser

pytest_plugins = ["browser_fixtures"]

STAGE = "decode </script><b>"


@pytest.fixture
def ran(program: Programs) -> Ran:
    """A run that is long enough for a verdict."""
    run = program("loop.py", "--steps", 400, "--load-ms", 3, "--compute-ms", 2, "--batch-size", 4)
    assert run.exit_code == 0, run.stderr
    return run


def command(*args: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "headspace", *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def milliseconds(number: float) -> str:
    return f"{number:.1f} ms"


def numbers_of(browser: Browser) -> dict[str, str]:
    """The number of each card, by the card's title."""
    cards: dict[str, str] = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('.card')].map((card) => ["
        "card.querySelector('dt').innerText, card.querySelector('.value').innerText]))"
    )
    return cards


def test_an_html_report_shows_the_numbers_of_the_records(
    ran: Ran, tmp_path: Path, browser: Browser
) -> None:
    page = tmp_path / "page.html"
    done = command("report", ran.folder, "--html", page)
    assert (done.returncode, done.stderr) == (0, "")
    summary = ran.summary()

    browser.look(1440, 900)
    browser.open(page.as_uri())
    cards = numbers_of(browser)
    assert cards["Step"] == milliseconds(summary["steady_step_mean_ms"])
    assert cards["Waiting for data"] == milliseconds(summary["wait_ms"])
    assert cards["Compute"] == milliseconds(summary["compute_ms"])
    assert cards["Less waiting saves"] == f"at most {summary['headspace_upper_bound_pct']:.1f} %"
    browser.wait(
        lambda: (
            browser.run("return document.querySelectorAll('section.bottleneck canvas').length") == 1
        ),
        "the steps are drawn",
    )
    assert browser.errors() == []
    assert browser.requested_hosts() == set()


def test_arrow_keys_show_the_numbers_of_a_point(ran: Ran, tmp_path: Path, browser: Browser) -> None:
    page = tmp_path / "page.html"
    command("report", ran.folder, "--html", page)
    browser.look(1440, 900)
    browser.open(page.as_uri())
    browser.wait(browser.has_chart, "it is drawn")
    ticks = ran.kind("tick")
    # The run is so short that each tick is a point of the chart.
    at, first = next((at, tick) for at, tick in enumerate(ticks) if tick["loops"])
    browser.run(
        "const plot = document.querySelector('section.bottleneck .plot'); plot.focus();"
        f"for (let at = 0; at <= {at}; at += 1)"
        " plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));"
    )
    browser.wait(
        lambda: "wait" in browser.text("section.bottleneck .tip"),
        "the numbers of the point are shown",
    )
    wait = first["loops"][0]["wait"]
    shown = re.search(r"wait ([\d.]+) ms", browser.text("section.bottleneck .tip"))
    assert shown is not None
    assert float(shown[1]) == pytest.approx(wait["sum_ms"] / wait["count"], abs=0.06)
    label = browser.run(
        "return document.querySelector('section.bottleneck .plot').getAttribute('aria-label')"
    )
    assert "wait" in label
    assert " ms" in label


def test_the_report_shows_its_facts_without_javascript(
    ran: Ran, tmp_path: Path, browser: Browser
) -> None:
    page = tmp_path / "page.html"
    command("report", ran.folder, "--html", page)
    browser.look(1440, 900, scripts=False)
    try:
        browser.open(page.as_uri())
        assert browser.text("section.verdict").startswith("Verdict Step")
        assert "The charts need JavaScript" in browser.text("section.bottleneck")
    finally:
        browser.look(1440, 900)


def test_the_check_of_layout_finds_a_broken_word_but_lets_a_long_path_break(
    tmp_path: Path, browser: Browser
) -> None:
    page = tmp_path / "page.html"
    narrow = "overflow-wrap: anywhere; width: 60px"
    page.write_text(
        f"<!doctype html><p style='{narrow}'>bottleneck<p style='{narrow}'><code>a/loader.py</code>"
        f"<p style='{narrow}'>/data/imagenet/train/n01440764/n01440764_10026.jpeg"
    )
    browser.look(1440, 900)
    browser.open(page.as_uri())
    assert browser.faults() == ["broken: bottleneck", "broken: a/loader.py"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_report_has_no_layout_error_at_any_width(
    ran: Ran, tmp_path: Path, browser: Browser, dark: bool
) -> None:
    page = tmp_path / "page.html"
    command("report", ran.folder, "--html", page)

    assert browser.faults_by_width(page.as_uri(), browser.has_chart, dark=dark) == {}


def test_the_report_of_several_ranks_has_no_layout_error_at_any_width(
    program: Programs, tmp_path: Path, browser: Browser
) -> None:
    for rank in range(2):
        environment = {"WORLD_SIZE": "2", "RANK": str(rank), "TORCHELASTIC_RUN_ID": "two"}
        ran = program(
            "loop.py",
            *("--steps", 400, "--load-ms", 4, "--compute-ms", 2),
            runs=tmp_path / "runs",
            env=environment,
        )
    page = tmp_path / "page.html"
    command("report", ran.folder, "--html", page)

    assert browser.faults_by_width(page.as_uri(), browser.has_chart, dark=False) == {}


def test_a_report_shows_one_run_and_names_what_it_cannot_read(ran: Ran, tmp_path: Path) -> None:
    none = command("report", tmp_path / "none", "--html", tmp_path / "page.html")
    assert none.returncode == 1
    assert "none" in none.stderr
    two = command("report", ran.folder, ran.folder, "--html", tmp_path / "page.html")
    assert two.returncode == 2
    assert "give one run folder" in two.stderr
    full = command("report", ran.folder, "--html", tmp_path / "no" / "page.html")
    assert full.returncode == 1
    assert "cannot write" in full.stderr
    assert not (tmp_path / "page.html").exists()


def test_names_from_the_records_are_escaped_as_text(
    ran: Ran, tmp_path: Path, browser: Browser
) -> None:
    folder = tmp_path / "a-run"
    folder.mkdir()
    records = (ran.folder / "rank0.jsonl").read_text()
    escaped = STAGE.replace("/", "\\/")
    records = records.replace('"name":"train"', f'"name":"{escaped}"')
    records = re.sub('"loop":"train"', lambda _: f'"loop":"{escaped}"', records)
    (folder / "rank0.jsonl").write_text(records)
    page = tmp_path / "page.html"
    assert command("report", folder, "--html", page).returncode == 0

    browser.look(1440, 900)
    browser.open(page.as_uri())
    assert f"loop {STAGE}" in browser.text(".chips")
    browser.wait(browser.has_chart, "it is drawn")
    assert browser.run("return document.querySelectorAll('b').length") == browser.run(
        "return document.querySelectorAll('b.label, .legend b').length"
    )
    assert browser.errors() == []


def test_a_notebook_shows_the_same_facts(runs: Any, tmp_path: Path, browser: Browser) -> None:
    import time

    import headspace

    with headspace.start():
        for _ in headspace.wrap(range(200), name="train"):
            time.sleep(0.001)
        report = headspace.report()
    assert report is not None
    page = tmp_path / "cell.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{report._repr_html_()}")

    browser.look(1000, 800)
    browser.open(page.as_uri())
    shown = report.to_dict()
    assert numbers_of(browser)["Step"] == milliseconds(shown["steady_step_mean_ms"])
    assert "script" not in report._repr_html_()
    assert browser.errors() == []

    def is_drawn() -> object:
        return browser.run("return document.body.innerText")

    assert browser.faults_by_width(page.as_uri(), is_drawn, dark=False) == {}
