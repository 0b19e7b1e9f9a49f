"""Every Python block of the documentation runs as it is printed, with the names that it assumes defined before it.

If this test names a new block, add a `Snippet` for it to `SNIPPETS`, at the place that it has on its page.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import Block, read_blocks
from running import DEADLINE_S, Runs, clean_environment


@dataclass(frozen=True)
class Snippet:
    """The code around a block, and the expected results."""

    has: str
    """Words of the block: they show that the entry belongs to it."""
    before: str = ""
    """Code that defines the names which the block assumes."""
    after: str = ""
    """Code that uses what the block defines, and asserts what it did."""
    steps: int | None = 24
    """Number of steps in the records. None if the block leaves that open."""
    names: tuple[str, ...] = ()
    """Stages and queues in the records."""
    prints: str = ""
    """Words on stdout or stderr."""
    needs: tuple[str, ...] = ()
    """Modules without which the block is skipped."""


TRAIN = """
def train_step(batch):
    pass
"""

LOADER = TRAIN + "loader = [[number] for number in range(24)]\n"

#: Long enough for a steady state.
LONG_LOOP = """
import time

for batch in loader:
    time.sleep(0.001)
"""

VIDEOS = (
    TRAIN
    + """
paths = list(range(24))

def open_video(path):
    return path
"""
)

# From Python 3.14 on, worker processes import the program by default. A block of a page has no main function for that.
TORCH = (
    TRAIN
    + """
import multiprocessing

import torch
from torch.utils.data import DataLoader

import headspace

multiprocessing.set_start_method("fork")

dataset = [torch.tensor([float(number)]) for number in range(24)]
train_loader, val_loader = DataLoader(dataset, batch_size=4), DataLoader(dataset[:4])
"""
)

LIGHTNING = (
    TORCH
    + """
import lightning.pytorch as lightning


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


model = Model()
"""
)

ACCELERATE = (
    TORCH
    + """
import accelerate

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
)

TRANSFORMERS = (
    TORCH
    + """
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x):
        return {"loss": self.layer(x).mean()}
"""
)

TRAIN_BY_TRAINER = """
arguments = transformers.TrainingArguments(
    output_dir="out", num_train_epochs=1, per_device_train_batch_size=4, save_strategy="no",
    report_to=[], use_cpu=True,
)
rows = [{"x": item} for item in dataset]
WatchedTrainer(model=Model(), args=arguments, train_dataset=rows).train()
"""

# Blocks that name a port or a folder of the machine use a free port or a temporary folder instead.

PROMETHEUS_AND_TEXTFILE = """
import socket
from pathlib import Path
from urllib.request import urlopen

import headspace
from headspace import config
from headspace._session import lifecycle

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


def textfile(path):
    assert path == "/var/lib/node_exporter"
    return config.Textfile("node_exporter")


headspace.Prometheus = lambda: config.Prometheus(port=port)
headspace.Textfile = textfile
"""

SCRAPE = """
for _ in headspace.wrap(range(24)):
    pass
lifecycle.current.flush()
with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
    assert b"headspace" in answer.read()
headspace.stop()
assert len(list(Path("node_exporter").glob("headspace_*.prom"))) == 1
"""

PIPES = """
import stat
from pathlib import Path

import headspace
from headspace import config

start = headspace.start


def start_anew(to):
    headspace.stop()
    return start(to=to)


def pipe(path, socket=False):
    assert path == "/tmp/records"
    return config.Pipe("records.socket" if socket else "records.pipe", socket=socket)


headspace.start, headspace.Pipe = start_anew, pipe
"""

CHECK_PIPES = """
assert stat.S_ISFIFO(Path("records.pipe").stat().st_mode)
assert stat.S_ISSOCK(Path("records.socket").stat().st_mode)
"""

COLLECTOR = """
import http.server
import threading

import headspace
from headspace import config

requests = []


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        requests.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()


def exporter(endpoint):
    assert endpoint == "http://collector:4318"
    return config.OpenTelemetry(f"http://127.0.0.1:{server.server_port}")


headspace.OpenTelemetry = exporter
"""

COLLECT = """
for _ in headspace.wrap(range(24)):
    pass
headspace.stop()
assert "/v1/metrics" in requests, requests
"""

#: By page, in the order of the blocks.
SNIPPETS: dict[str, list[Snippet]] = {
    "py_bindings/PACKAGE.md": [
        Snippet("loader = headspace.wrap(loader)", LOADER, prints="24 steps"),
    ],
    "README.md": [
        Snippet("loader = headspace.wrap(loader)", LOADER, prints="24 steps"),
        Snippet(
            'headspace.queue("decoded"',
            VIDEOS,
            """
def batches():
    for path in paths:
        decode(path)
        yield decoded.get()

for _ in headspace.wrap(batches()):
    pass
""",
            names=("decode",),
        ),
    ],
    "docs/exporting.md": [
        Snippet("headspace.Textfile(", PROMETHEUS_AND_TEXTFILE, SCRAPE),
        Snippet(
            'TensorBoard("runs/x")',
            "def train():\n    for _ in headspace.wrap(range(24)):\n        pass\n",
            "from pathlib import Path\nassert list(Path('runs/x').glob('events.*'))\n",
            needs=("tensorboard",),
        ),
        Snippet("headspace.Pipe(", PIPES, CHECK_PIPES, steps=None),
    ],
    "docs/integrations.md": [
        Snippet("DataLoader(dataset", TORCH, steps=6, names=("fetch", "collate"), needs=("torch",)),
        Snippet(
            "headspace.spdl.hooks()",
            TRAIN
            + "from spdl.pipeline import PipelineBuilder\n"
            + "builder = PipelineBuilder().add_source(range(4000)).pipe(abs).aggregate(4).add_sink(2)\n",
            steps=1000,
            names=("abs", "src_queue", "abs_queue", "sink_queue"),
            needs=("spdl",),
        ),
        Snippet("ThreadPoolExecutor(4)", VIDEOS, names=("decode",)),
        Snippet(
            "StageSpanProcessor(", VIDEOS, names=("loader.decode",), needs=("opentelemetry.sdk",)
        ),
        Snippet("lightning.Trainer", LIGHTNING, steps=6, needs=("torch", "lightning")),
        Snippet("accelerate.Accelerator", ACCELERATE, steps=6, needs=("torch", "accelerate")),
        Snippet(
            "transformers.Trainer",
            TRANSFORMERS,
            TRAIN_BY_TRAINER,
            steps=6,
            needs=("torch", "transformers"),
        ),
    ],
    "docs/notebooks.md": [
        Snippet("with live() as view", LOADER, prints="there is no live view"),
        Snippet(
            "headspace.start(quiet=True)",
            LOADER + "import headspace\n",
            'assert "24 steps" in str(report)\n',
        ),
        Snippet(
            "report.to_dict()",
            LOADER
            + "import headspace\n"
            + "for batch in headspace.wrap(loader):\n    pass\n"
            + "report = headspace.stop()\n",
            'assert summary["steps"] == 24\n',
        ),
    ],
    "docs/opentelemetry.md": [
        Snippet("http://collector:4318", COLLECTOR, COLLECT),
        Snippet(
            "provider.add_span_processor",
            "from opentelemetry.sdk.trace import TracerProvider\nprovider = TracerProvider()\n",
            """
import headspace

def batches():
    for number in range(24):
        with provider.get_tracer("train").start_as_current_span("loader.decode"):
            pass
        yield number

for _ in headspace.wrap(batches()):
    pass
""",
            names=("loader.decode",),
            needs=("opentelemetry.sdk",),
        ),
    ],
    "docs/run.md": [
        Snippet(
            'unit="frames"',
            "import headspace\nimport numpy\n"
            "loader = [{'frames': numpy.zeros((16, 2))} for _ in range(200)]\n",
            LONG_LOOP + 'assert headspace.stop().to_dict()["unit"] == "frames"\n',
            steps=200,
            needs=("numpy",),
        ),
    ],
    "docs/tutorial.md": [
        Snippet("in headspace.wrap(loader)", LOADER, prints="24 steps"),
    ],
    "examples/README.md": [
        Snippet(
            "batch_size=args.batch_size",
            "import argparse\nimport headspace\n"
            "args = argparse.Namespace(batch_size=3)\nsource = range(200)\n",
            LONG_LOOP + 'assert headspace.stop().to_dict()["throughput_samples_per_s"] > 0\n',
            steps=200,
        ),
    ],
}

BLOCKS = read_blocks("python")


def snippet_of(block: Block) -> Snippet | None:
    """The entry of a block, by its page and its place on the page."""
    of_page = SNIPPETS.get(block.page, [])
    found = of_page[block.number] if block.number < len(of_page) else None
    return found if found is not None and found.has in block.text else None


def test_every_python_block_of_the_documentation_has_an_entry() -> None:
    new = [block.where for block in BLOCKS if snippet_of(block) is None]
    assert not new, (
        f"No entry of `SNIPPETS` (tests/python/test_snippets.py) belongs to these blocks: {', '.join(new)}. "
        "Add a `Snippet` at the place that the block has on its page: `has` are words of the block, `before` "
        "defines the names that it assumes, `after` uses what it defines. If a block was moved or removed, move or "
        "remove its entry."
    )
    on_pages = Counter(block.page for block in BLOCKS)
    unused = {page for page, snippets in SNIPPETS.items() if len(snippets) != on_pages[page]}
    assert not unused, f"`SNIPPETS` has entries without a block: {unused}"


def case_of(block: Block) -> Any:
    """A test of one block. The import of torch takes seconds."""
    snippet = snippet_of(block)
    is_slow = snippet is not None and "torch" in snippet.needs
    return pytest.param(
        block,
        id=f"{block.page}-{block.number}",
        marks=[pytest.mark.slow] if is_slow else [],
    )


@pytest.mark.parametrize("block", list(map(case_of, BLOCKS)))
def test_a_python_block_of_the_documentation_runs(tmp_path: Path, block: Block) -> None:
    snippet = snippet_of(block)
    if snippet is None:
        pytest.fail(f"{block.where} has no entry in `SNIPPETS`")
    for module in snippet.needs:
        pytest.importorskip(module)
    (tmp_path / "train.py").write_text(f"{snippet.before}\n{block.text}\n{snippet.after}")

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "train.py"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )

    assert done.returncode == 0, done.stderr
    assert snippet.prints in done.stdout + done.stderr
    folders = Runs(tmp_path / "headspace-runs")
    assert folders.folders, "the block left no records"
    if snippet.steps is not None:
        assert folders.summary()["steps"] == snippet.steps
        recorded = {
            entry["name"]
            for tick in folders.kind("tick")
            for entry in [*tick.get("stages", []), *tick.get("queues", [])]
        }
        assert set(snippet.names) <= recorded
