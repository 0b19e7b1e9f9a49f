"""`headspace top` in a real terminal, on real runs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Programs, Record, Started, of_kind, read_records, wait_until
from screen import Terminal

TOP = [sys.executable, "-m", "headspace", "top"]
Open = Callable[..., Terminal]


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Open]:
    """Opens `headspace top` in a terminal."""
    opened: list[Terminal] = []

    def start(*args: object, columns: int = 80, lines: int = 24, **env: str) -> Terminal:
        command = [*TOP, *map(str, args)]
        terminal = Terminal(command, columns, lines, env={"NO_COLOR": "", **env}, cwd=tmp_path)
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture
def pipeline(program: Programs, tmp_path: Path) -> Callable[..., Started]:
    """A pipeline that trains until the file `stop` exists."""

    def start(**env: str) -> Started:
        (tmp_path / "stop").unlink(missing_ok=True)
        env = {"HEADSPACE_INTERVAL": "0.2", **env}
        started = program.start("pipeline.py", tmp_path / "stop", runs=tmp_path / "runs", env=env)
        started.wait_for("training")
        return started

    return start


def mean(record: Record) -> float:
    return float(record["sum_ms"] / record["count"])


def shown_ms(text: str, name: str) -> float:
    found = re.search(rf"\b{name} ([\d.]+) ms", text)
    assert found, f"no {name} on the screen:\n{text}"
    return float(found[1])


def test_the_numbers_on_the_screen_are_those_of_the_records(
    pipeline: Callable[..., Started], top: Open
) -> None:
    run = pipeline()
    terminal = top(run.path, columns=120, lines=40)
    terminal.wait_for("decode")
    terminal.type("p")
    text = terminal.wait_for("VIEW PAUSED")
    wait_until(lambda: of_kind(run.records(), "summary"), "a summary")

    assert run.folder.name in text
    found = re.search(r"step ([\d ]+) epoch (\d+)", text)
    assert found, text
    taken = int(found[1].replace(" ", ""))
    ticks = of_kind(run.records(), "tick")
    (entry,) = [
        entry
        for tick in ticks
        for entry in tick["loops"]
        if entry["first_step"] + entry["steps"] == taken
    ]
    (tick,) = [tick for tick in ticks if entry in tick["loops"]]
    now = next(line for line in text.splitlines() if line.startswith(" now"))
    for name in ("step", "wait", "compute"):
        assert shown_ms(now, name) == pytest.approx(mean(entry[name]), abs=0.051)
    assert int(found[2]) == entry["epoch"]
    rate = re.search(r"([\d.]+) samples/s", now)
    assert rate
    assert float(rate[1]) == pytest.approx(entry["samples"] / tick["interval_s"], rel=0.01)
    for queue in tick["queues"]:
        assert re.search(rf"{queue['name']} +{queue['depth']:.1f}/{queue['capacity']} ", text), (
            f"{queue}\n{text}"
        )
    for stage in tick["stages"]:
        line = next(line for line in text.splitlines() if line.startswith(f" {stage['name']} "))
        busy = stage["time"]["sum_ms"] / 10 / (tick["interval_s"] * stage["concurrency"])
        assert float(line.split()[1]) == pytest.approx(min(busy, 100.0), abs=1.0), line


def test_a_paused_view_does_not_change_while_training_continues(
    pipeline: Callable[..., Started], top: Open
) -> None:
    run = pipeline()
    terminal = top(run.path, columns=120)
    terminal.wait_for(" now ")
    terminal.type("p")
    paused = terminal.wait_for("VIEW PAUSED")
    ticks = len(run.kind("tick"))
    wait_until(lambda: len(run.kind("tick")) > ticks + 5, "ticks while paused")
    terminal.read(1.2)
    assert terminal.text == paused

    terminal.type("p")
    wait_until(lambda: terminal.read() or "VIEW PAUSED" not in terminal.text, "going on")
    assert terminal.text.splitlines()[1] != paused.splitlines()[1]


def test_a_killed_run_is_shown_as_silent_and_then_the_next_run_is_shown(
    pipeline: Callable[..., Started], top: Open, tmp_path: Path
) -> None:
    first = pipeline()
    name = first.folder.name
    terminal = top(HEADSPACE_DIR=str(first.path))
    terminal.wait_for(name)
    first.send(signal.SIGKILL)
    first.process.wait()
    terminal.wait_for("silent for")

    second = pipeline()
    (other,) = [folder.name for folder in second.folders if folder.name != name]
    text = terminal.wait_for(f"{other} (run 2)")
    assert name not in text

    (tmp_path / "stop").touch()
    terminal.wait_for("ended")
    assert second.finish().exit_code == 0


def test_top_waits_for_a_run_that_has_not_begun(
    pipeline: Callable[..., Started], top: Open, tmp_path: Path
) -> None:
    terminal = top(HEADSPACE_DIR=str(tmp_path / "runs"))
    terminal.wait_for("Waiting for a run")
    run = pipeline()
    terminal.wait_for(run.folder.name)
    terminal.wait_for("decode")


def test_top_fits_every_terminal_size(pipeline: Callable[..., Started], top: Open) -> None:
    run = pipeline()
    terminal = top(run.path)
    terminal.wait_for("decoded")
    for columns, lines in [(120, 40), (160, 50), (60, 15), (80, 24)]:
        terminal.resize(columns, lines)
        wait_until(
            lambda lines=lines: terminal.read() or "q quit" in terminal.screen.display[lines - 1],
            f"a footer at {columns}x{lines}",
        )
        terminal.wait_for("decoded" if lines > 20 else "step")
        assert terminal.screen.display[0].rstrip().endswith("live"), terminal.text


def test_keys_open_help_and_scroll(pipeline: Callable[..., Started], top: Open) -> None:
    run = pipeline()
    terminal = top(run.path)
    terminal.wait_for("stages")
    terminal.type("?")
    terminal.wait_for("pause the view, or continue")
    terminal.type("?")
    terminal.wait_for("stages")
    terminal.resize(80, 14)
    wait_until(lambda: terminal.read() or "q quit" in terminal.screen.display[13], "14 lines")
    terminal.type("\x1b[F")
    terminal.wait_for("cores")
    terminal.type("q")
    assert terminal.wait() == 0


@pytest.mark.parametrize(
    ("ends", "status"),
    [("q", 0), ("\x03", 0), (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
)
def test_top_restores_the_terminal(
    top: Open, tmp_path: Path, ends: str | signal.Signals, status: int
) -> None:
    terminal = top(HEADSPACE_DIR=str(tmp_path / "none"))
    terminal.wait_for("Waiting for a run")
    assert not terminal.restored
    if isinstance(ends, str):
        terminal.type(ends)
    else:
        terminal.process.send_signal(ends)
    assert terminal.wait() == status
    assert terminal.restored


def test_top_shows_the_ranks_side_by_side(program: Programs, top: Open, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    env = {"WORLD_SIZE": "2", "HEADSPACE_INTERVAL": "0.2"}
    started = [
        program.start(
            "loop.py",
            *("--until", stop, "--load-ms", load, "--compute-ms", 5, "--say", 1),
            runs=tmp_path / "runs",
            env={**env, "RANK": str(rank), "TORCHELASTIC_RUN_ID": "two"},
        )
        for rank, load in ((0, 5), (1, 45))
    ]
    for one in started:
        one.wait_for("ready")
    terminal = top(tmp_path / "runs", columns=120)
    terminal.wait_for("rank 0 of 2")
    terminal.type("a")
    terminal.wait_for("2 live")
    text = terminal.wait_for("◂ slowest")
    (line,) = [line for line in text.splitlines() if "◂ slowest" in line]
    assert line.split()[0] == "1"
    terminal.type("1")
    terminal.wait_for("rank 1 of 2")
    stop.touch()
    for one in started:
        assert one.finish().exit_code == 0
    terminal.wait_for("ended")


def test_top_reads_a_pipe_like_files(
    pipeline: Callable[..., Started], top: Open, tmp_path: Path
) -> None:
    for address in (f"{tmp_path}/records", f"unix:{tmp_path}/socket"):
        run = pipeline(HEADSPACE_EXPORT=f"pipe:{address}")
        terminal = top(address, columns=120)
        text = terminal.wait_for("decode")
        assert run.folders[-1].name in text
        (tmp_path / "stop").touch()
        terminal.wait_for("ended")
        assert run.finish().exit_code == 0
        terminal.type("q")
        assert terminal.wait() == 0


def test_top_uses_no_colour_when_colour_is_disabled(
    pipeline: Callable[..., Started], top: Open
) -> None:
    run = pipeline()
    for wanted, value in ((True, ""), (False, "1")):
        terminal = top(run.path, NO_COLOR=value)
        terminal.wait_for("decoded")
        coloured = re.search(rb"\x1b\[[\d;]*[34]8;5;", terminal.raw) is not None
        assert coloured is wanted


@pytest.mark.parametrize("path", [[], ["/no/such/folder"]])
def test_without_a_terminal_top_names_the_alternative(path: list[str]) -> None:
    done: Any = subprocess.run([*TOP, *path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "headspace report" in done.stderr
    assert done.stdout == ""


def test_a_path_that_does_not_exist_is_named_in_the_error(top: Open) -> None:
    terminal = top("/no/such/folder")
    assert terminal.wait() == 1
    assert "/no/such/folder" in terminal.text
    assert "1049h" not in terminal.raw.decode()


def test_top_reads_no_partial_record_while_a_run_is_written(
    pipeline: Callable[..., Started], top: Open, tmp_path: Path
) -> None:
    run = pipeline(HEADSPACE_INTERVAL="0.005")
    terminal = top(run.path, columns=120, lines=40)
    terminal.wait_for("decode")
    wait_until(lambda: terminal.read() or len(run.kind("tick")) > 500, "500 ticks")
    (tmp_path / "stop").touch()
    assert run.finish().exit_code == 0
    text = terminal.wait_for("ended")
    last = [t for t in of_kind(read_records(run.folder / "rank0.jsonl"), "tick") if t["loops"]][-1]
    taken = last["loops"][0]["first_step"] + last["loops"][0]["steps"]
    shown = re.search(r"step ([\d ]+) epoch", text)
    assert shown
    assert int(shown[1].replace(" ", "")) == taken
