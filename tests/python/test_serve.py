"""`headspace serve` during a real training run, in a real browser."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from running import Programs, Started

from headspace.tune.experiment import Kind, Outcome, Proposal, State, Trial
from headspace.tune.output import results
from headspace.tune.output.summary import summarize
from headspace.tune.plan.objective import Objective
from headspace.tune.space.knobs import Space, parse_knob

if TYPE_CHECKING:
    from browser import Browser

pytest_plugins = ["browser_fixtures"]

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts the command on a free port and returns the address of the page."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: object) -> str:
        argv = [sys.executable, "-m", "headspace", "serve", "--port", "0", *map(str, args)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"Serving .+ at (http://127\.0\.0\.1:\d+/)", line)
        assert found, line
        return found[1]

    yield start
    for process in started:
        # Ctrl-C ends it at once, even with open connections.
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")


@pytest.fixture
def training(program: Programs, tmp_path: Path) -> Iterator[Started]:
    """A run that continues until its end is requested."""
    stop = tmp_path / "stop"
    run = program.start("pipeline.py", stop, env={"HEADSPACE_INTERVAL": "0.2"})
    run.wait_for("training")
    yield run
    stop.touch()
    assert run.finish().exit_code == 0


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """The results of a search that has ended."""
    space = Space((parse_knob("decode_threads=1,2,4"), parse_knob("multithreaded_prefetch=no,yes")))
    proposals = [
        Proposal(Kind.BASELINE, space.baseline, "What is now."),
    ]
    for threads in (2, 4):
        knobs = {**space.baseline, "decode_threads": threads}
        proposals.append(Proposal(Kind.REMEDY, knobs, "More threads.", 0, 0.7 * 93))
    summary = {"steady_step_mean_ms": 93.0, "floor_step_ms": 9.0, "floor_ci_ms": [8.5, 9.5]}
    outcomes = [Outcome(State.FINISHED, 93.0, (92.0, 94.0), 100, 9.0, summary=summary)] * 2
    detail = "exit code 1\nFileNotFoundError: /data/imagenet/train/n01440764/n01440764_10026.jpeg"
    outcomes.append(Outcome(State.CRASHED, detail=detail, exit_code=1))
    trials = [
        Trial(number, proposal, outcome=outcome)
        for number, (proposal, outcome) in enumerate(zip(proposals, outcomes, strict=True))
    ]
    folder = tmp_path / "a-folder-with-the-results-of-a-search"
    (folder / "experiments").mkdir(parents=True)
    (folder / "runs").mkdir()
    results.write(folder, summarize(trials, space, Objective.STEP))
    return folder


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def points(browser: Browser) -> int:
    """How many points the chart of steps has."""
    count: int = browser.run(
        "return document.querySelectorAll('section.bottleneck canvas').length === 0 ? 0 : "
        "Number(document.querySelector('.chips').innerText.match(/(\\d+) steps/)?.[1] ?? 0)"
    )
    return count


def test_the_page_shows_a_running_run_and_updates(
    training: Started, serve: Serve, browser: Browser
) -> None:
    url = serve(training.path)
    browser.look(1440, 900)
    browser.open(url)
    browser.wait(lambda: browser.text("#live") == "live", "the page is told what is new")
    browser.wait(lambda: points(browser) > 0, "the steps are drawn")
    before = points(browser)
    browser.wait(lambda: points(browser) > before, "more steps arrive")
    browser.wait(lambda: "decode" in browser.text("#part-stages"), "the stages are told")
    browser.wait(lambda: "Queue depths" in browser.text("section.queues"), "queues are drawn")
    assert browser.errors() == []
    assert browser.requested_hosts() == {"127.0.0.1"}


def test_the_page_shows_the_numbers_of_the_records(
    program: Programs, serve: Serve, browser: Browser
) -> None:
    run = program("loop.py", "--steps", 400, "--load-ms", 3, "--compute-ms", 2, "--batch-size", 4)
    summary = run.summary()
    url = serve(run.folder)
    browser.look(1440, 900)
    browser.open(url)
    browser.wait(lambda: browser.text(".card.step .value") != "", "the verdict is told")
    assert browser.text(".card.step .value") == f"{summary['steady_step_mean_ms']:.1f} ms"
    assert browser.text(".card.wait .value") == f"{summary['wait_ms']:.1f} ms"
    assert browser.text(".card.compute .value") == f"{summary['compute_ms']:.1f} ms"

    argv = [sys.executable, "-m", "headspace", "report", "--json", str(run.folder)]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert get(f"{url}api/summary") == (200, printed)

    code, text = get(f"{url}api/page")
    (rank,) = json.loads(text)["ranks"]
    (steps,) = [chart for chart in rank["charts"] if chart["id"] == "step"]
    told = next(line["values"] for line in steps["lines"] if line["name"] == "wait")
    ticks = [entry for tick in run.kind("tick") for entry in tick["loops"]]
    waits = [entry["wait"] for entry in ticks]
    means = [wait["sum_ms"] / wait["count"] for wait in waits if wait["count"]]
    assert code == 200
    assert [value for value in told if value is not None] == pytest.approx(means, rel=1e-4)

    code, text = get(f"{url}metrics")
    assert code == 200
    assert "headspace_loop_steps_total{" in text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_live_page_has_no_layout_error_at_any_width(
    training: Started, serve: Serve, browser: Browser, dark: bool
) -> None:
    def is_drawn() -> bool:
        return "decode" in browser.text("#part-stages") and points(browser) > 0

    assert browser.faults_by_width(serve(training.path), is_drawn, dark=dark) == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_search_page_has_no_layout_error_at_any_width(
    found: Path, serve: Serve, browser: Browser, dark: bool
) -> None:
    def is_drawn() -> bool:
        sizes: list[int] = browser.run("return [...document.images].map((one) => one.naturalWidth)")
        return len(sizes) == 3 and all(sizes)

    url = f"{serve(found)}tuning"
    assert browser.faults_by_width(url, is_drawn, dark=dark) == {}


def test_the_next_run_is_shown_when_it_begins(
    program: Programs, serve: Serve, browser: Browser, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    first = program("loop.py", "--steps", 50, runs=runs)
    name = first.folder.name
    url = serve(runs)
    browser.look(1440, 900)
    browser.open(url)
    browser.wait(lambda: name in browser.text("h1"), "the first run is shown")
    program("loop.py", "--steps", 60, runs=runs)
    browser.wait(lambda: name not in browser.text("h1"), "the second run is shown")
    browser.wait(lambda: "60 steps" in browser.text(".chips"), "its steps are told")


def test_a_token_grants_access(training: Started, serve: Serve, browser: Browser) -> None:
    token = "a-long-token-0123456789"
    url = serve(training.path, "--token", token)
    assert get(url)[0] == 401
    assert get(f"{url}api/summary", Authorization=f"Bearer {token}")[0] in (200, 404)
    assert get(url, Authorization="Bearer a-long-token-0123456788")[0] == 401
    browser.look(1440, 900)
    browser.open(f"{url}?token={token}")
    browser.wait(lambda: browser.text("#live") == "live", "the page is told what is new")
    assert token not in browser.driver.current_url


def test_a_page_that_is_refused_for_too_many_clients_retries_later(
    training: Started, serve: Serve, browser: Browser
) -> None:
    url = serve(training.path)
    at = urlsplit(url)
    with ExitStack() as others:

        def open_page() -> bool:
            """Opens one more connection and keeps it. Returns whether it was accepted."""
            connection = HTTPConnection(str(at.hostname), at.port, timeout=30)
            connection.request("GET", "/events")
            others.callback(connection.close)
            return connection.getresponse().status == 200

        while open_page():
            pass
        browser.look(1440, 900)
        browser.open(url)
        browser.wait(lambda: "trying again" in browser.text("#live"), "it has no place")
    browser.wait(lambda: browser.text("#live") == "live", "it has one when others are gone")


def test_serving_on_another_address_needs_a_token(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "headspace", "serve", "--host", "0.0.0.0", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "--token" in done.stderr


def test_a_request_with_another_host_name_is_refused(training: Started, serve: Serve) -> None:
    url = serve(training.path)
    code, text = get(url, Host="evil.example")
    assert code == 421
    assert training.folder.name not in text
