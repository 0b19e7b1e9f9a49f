"""The live view and the example notebook, in a real notebook kernel."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import DEADLINE_S, Runs, clean_environment, remove_settings, wait_until

import headspace
from headspace.integrations import notebook

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

from jupyter_client.manager import start_new_kernel  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebooks" / "first_verdict.ipynb"

#: Code that runs before the cells of the tests.
SETUP = """
import threading
import time

import headspace
from headspace.integrations.notebook import live


def batches(is_enough):
    '''Batches that take a while, until it is enough.'''
    end = time.monotonic() + 60
    while not is_enough():
        assert time.monotonic() < end, "the view shows nothing"
        time.sleep(0.002)
        yield [1]


def some(count=100):
    '''Batches that take a while.'''
    remaining = iter(range(count))
    return batches(lambda: next(remaining, None) is None)


def train(source, name="train"):
    for batch in headspace.wrap(source, name=name):
        time.sleep(0.001)
"""


@dataclass
class Cell:
    """A cell that has ended."""

    reply: dict[str, Any]
    messages: list[dict[str, Any]]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [message["content"] for message in self.messages if message["msg_type"] == kind]

    @property
    def outputs(self) -> list[str]:
        """All states of the view's output, in order."""
        first = self.of_type("display_data")
        later = self.of_type("update_display_data")
        assert len({output["transient"]["display_id"] for output in first + later}) == 1
        return [output["data"]["text/html"] for output in first + later]

    @property
    def printed(self) -> str:
        return "".join(output["text"] for output in self.of_type("stream"))


class Kernel:
    """A notebook kernel."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str) -> Cell:
        """Runs a cell to its end."""
        messages: list[dict[str, Any]] = []
        reply = self._client.execute_interactive(
            code, output_hook=messages.append, timeout=2 * DEADLINE_S, allow_stdin=False
        )
        return Cell(reply["content"], messages)

    def value(self, expression: str) -> str:
        """The value of an expression as text."""
        cell = self.run(f"print({expression})")
        assert cell.reply["status"] == "ok", cell.reply
        return cell.printed.strip()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    places = {name: str(folder / name) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    environment = {**clean_environment(), **places, "HEADSPACE_INTERVAL": "50ms"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", places["JUPYTER_RUNTIME_DIR"])
        manager, client = start_new_kernel(
            kernel_name="python3", cwd=str(folder), env=environment, startup_timeout=120
        )
    try:
        started = Kernel(client)
        assert started.run(SETUP).reply["status"] == "ok"
        yield started
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_view_shows_the_numbers_while_the_cell_trains_and_the_verdict_at_its_end(
    kernel: Kernel,
) -> None:
    cell = kernel.run(
        "with live(every=0.1) as view:\n"
        "    train(batches(lambda: '<svg' in view._shown), name='<b>mine</b>')\n"
    )

    assert cell.reply["status"] == "ok"
    first, *middle, last = cell.outputs
    assert "Waiting for the first batch" in first
    current = [html for html in middle if "<svg" in html]
    assert current
    for html in current:
        assert re.search(r"headspace · &lt;b&gt;mine&lt;/b&gt; · [\d,]+ steps", html)
        assert "Waiting for data" in html
        assert "<b>" not in html
        assert "<script" not in html
    assert 'class="headspace-report"' in last
    assert "<svg viewBox" in last
    assert "<script" not in last
    # The verdict is in the cell only.
    assert cell.printed == ""


def test_a_session_that_begins_in_the_block_ends_with_it(kernel: Kernel) -> None:
    kernel.run(
        "with live() as first:\n    train(some())\nwith live() as second:\n    train(some(50))"
    )

    assert kernel.value("headspace.report()") == "None"
    assert kernel.value("first.report.to_dict()['steps']") == "100"
    assert kernel.value("second.report.to_dict()['steps']") == "50"
    assert kernel.value("second.report.to_dict()['state']") == "finished"


def test_a_session_that_was_running_before_continues(kernel: Kernel) -> None:
    kernel.run("session = headspace.start(quiet=True)\ntrain(some(30))")

    cell = kernel.run("with live() as view:\n    train(some(20))")

    assert 'class="headspace-report"' in cell.outputs[-1]
    assert kernel.value("headspace.report() is not None") == "True"
    assert kernel.value("view.report.to_dict()['steps']") == "50"
    assert kernel.value("session.stop().to_dict()['steps']") == "50"


def test_an_exception_in_the_cell_is_the_same_and_the_verdict_is_shown(kernel: Kernel) -> None:
    cell = kernel.run(
        "with live() as view:\n"
        "    for number, batch in enumerate(headspace.wrap(some())):\n"
        "        if number == 40:\n"
        "            raise ValueError('of the model')\n"
    )

    assert cell.reply["status"] == "error"
    assert (cell.reply["ename"], cell.reply["evalue"]) == ("ValueError", "of the model")
    assert "notebook.py" not in "".join(cell.reply["traceback"])
    assert "The cell ended with ValueError." in cell.outputs[-1]
    assert 'class="headspace-report"' in cell.outputs[-1]
    assert kernel.value("view.report.to_dict()['ended_by']['name']") == "ValueError"
    assert kernel.value("headspace.report()") == "None"


def test_without_a_block_the_view_ends_with_the_cell(kernel: Kernel) -> None:
    cell = kernel.run("view = live()\ntrain(some())")
    failed = kernel.run("view_of_failed = live()\ntrain(some(40))\n1 / 0")

    assert 'class="headspace-report"' in cell.outputs[-1]
    assert kernel.value("view.report.to_dict()['steps']") == "100"
    assert failed.reply["ename"] == "ZeroDivisionError"
    assert "The cell ended with ZeroDivisionError." in failed.outputs[-1]
    kernel.run(
        "end = time.monotonic() + 60\n"
        "while any(thread.name == 'headspace-live' for thread in threading.enumerate()):\n"
        "    assert time.monotonic() < end\n"
        "    time.sleep(0.01)\n"
    )
    assert kernel.value("[t for t in threading.enumerate() if t.name == 'headspace-live']") == "[]"


def test_the_verdict_of_a_session_that_the_cell_ends_itself_is_shown(kernel: Kernel) -> None:
    cell = kernel.run("with live() as view:\n    train(some())\n    mine = headspace.stop()")

    assert 'class="headspace-report"' in cell.outputs[-1]
    assert kernel.value("view.report is mine") == "True"


def test_a_cell_without_a_wrapped_loader_says_that_nothing_was_measured(kernel: Kernel) -> None:
    cell = kernel.run("with live() as view:\n    pass")

    assert "no wrapped loader was iterated here" in cell.outputs[-1]
    assert kernel.value("view.report") == "None"


def test_a_report_is_shown_with_its_chart(kernel: Kernel) -> None:
    kernel.run(
        "with headspace.start(quiet=True):\n    train(some(200))\n    report = headspace.report()"
    )

    (shown,) = kernel.run("report").of_type("execute_result")

    assert "<svg viewBox" in shown["data"]["text/html"]
    assert shown["data"]["text/plain"].startswith("headspace  ")


def run_script(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**clean_environment(), **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )


LOOP = """
from headspace.integrations.notebook import live
import headspace
with live() as view:
    for _ in headspace.wrap(range(24)):
        pass
print("report", view.report)
"""


def test_outside_of_a_notebook_one_line_says_why_nothing_is_shown(tmp_path: Path) -> None:
    done = run_script(LOOP, tmp_path)
    with_ipython = run_script("import IPython\n" + LOOP, tmp_path)
    off = run_script(LOOP, tmp_path, HEADSPACE="0")

    assert "there is no live view, because this is not a notebook" in done.stdout
    assert with_ipython.stdout == done.stdout
    assert "because `HEADSPACE` turns headspace off" in off.stdout
    for one in (done, with_ipython, off):
        assert len(one.stdout.splitlines()) == 2
        assert one.stdout.splitlines()[1] == "report None"
    # The session continues, and prints its verdict at the end of the program.
    assert "24 steps" in done.stderr
    assert Runs(tmp_path / "headspace-runs").folders


def test_an_interval_that_is_too_short_is_refused() -> None:
    for every in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"`every` must be at least 0\.1 s"):
            notebook.live(every=every)


class FakeOutput:
    """The output of a cell in a notebook that does not answer."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()

    def update(self, html: object) -> None:
        self.asked.set()
        self.answer.wait(DEADLINE_S)


def test_a_notebook_that_hangs_delays_neither_the_loop_nor_the_end_for_long(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = FakeOutput()
    events = types.SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)
    shell = types.SimpleNamespace(kernel=object(), events=events)
    display = types.SimpleNamespace(HTML=str, display=lambda *_, **__: output)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook, "LAST_S", 0.05)
    monkeypatch.setenv("HEADSPACE_INTERVAL", "50ms")
    steps = 0

    with notebook.live(every=0.1) as view:
        for _ in headspace.wrap(iter(int, 1)):
            steps += 1
            time.sleep(0.001)
            if output.asked.is_set():
                break
    output.answer.set()

    assert view.report is not None
    assert view.report.to_dict()["steps"] == steps
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name == "headspace-live"],
        "the thread of the view ends",
    )


@pytest.mark.slow
@pytest.mark.alone  # Compares the times of two runs.
def test_the_example_notebook_runs_and_its_first_remedy_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_settings(monkeypatch)
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    book = nbformat.read(EXAMPLE, as_version=4)
    # Outputs contain times and paths of a machine, and would change with each run.
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(book))

    client = nbclient.NotebookClient(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()

    live_cells = [cell for cell in code_cells(book) if "with live()" in cell.source]
    assert len(live_cells) == 2
    for cell in live_cells:
        (output,) = [output for output in cell.outputs if output.output_type == "display_data"]
        html = output.data["text/html"]
        assert 'class="headspace-report"' in html
        assert "<svg viewBox" in html
    printed = "".join(
        output.text
        for cell in code_cells(book)
        for output in cell.outputs
        if output.output_type == "stream"
    )
    assert re.search(r"ms +Run \d+ concurrent calls of `fetch` instead of 1", printed), printed
    step = re.search(r"step +([\d.]+) ms → ([\d.]+) ms", printed)
    assert step is not None, printed
    assert float(step[2]) < 0.8 * float(step[1])


def code_cells(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]
