"""The snippets of docs/integrations.md run, each with the code that it assumes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import DEADLINE_S, Runs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

TRAIN = "def train_step(batch):\n    pass\n"
TORCH = """
import torch
from torch.utils.data import DataLoader

import headspace

dataset = [torch.tensor([float(i)]) for i in range(24)]
train_loader, val_loader = DataLoader(dataset, batch_size=4), DataLoader(dataset[:4])
"""

#: By a word of the snippet: what it needs, what comes after it, the steps and what the records name.
AROUND: dict[str, tuple[str, str, int, set[str]]] = {
    "DataLoader(dataset": (TORCH, "", 6, {"fetch", "collate"}),
    "headspace.spdl": (
        "from spdl.pipeline import PipelineBuilder\n"
        "builder = PipelineBuilder().add_source(range(4000)).pipe(abs).aggregate(4).add_sink(2)\n",
        "",
        1000,
        {"abs", "src_queue", "abs_queue", "sink_queue"},
    ),
    "headspace.queue": (
        "paths = list(range(24))\ndef open_video(path):\n    return path\n",
        "",
        24,
        {"decode"},
    ),
    "StageSpanProcessor": (
        "paths = list(range(24))\ndef open_video(path):\n    return path\n",
        "",
        24,
        {"loader.decode"},
    ),
    "lightning.Trainer": (
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
""",
        "",
        6,
        set(),
    ),
    "accelerate.Accelerator": (
        TORCH
        + "import accelerate\n"
        + "model = torch.nn.Linear(1, 1)\n"
        + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
        "",
        6,
        set(),
    ),
    "transformers.Trainer": (
        TORCH
        + """
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x):
        return {"loss": self.layer(x).mean()}
""",
        """
arguments = transformers.TrainingArguments(
    output_dir="out", num_train_epochs=1, per_device_train_batch_size=4, save_strategy="no",
    report_to=[], use_cpu=True,
)
rows = [{"x": item} for item in dataset]
WatchedTrainer(model=Model(), args=arguments, train_dataset=rows).train()
""",
        6,
        set(),
    ),
}


def of(word: str) -> str:
    (snippet,) = [text for text in SNIPPETS if word in text]
    return str(snippet)


def test_every_snippet_of_the_documentation_is_run() -> None:
    assert sorted(of(word) for word in AROUND) == sorted(SNIPPETS)


@pytest.mark.parametrize("word", AROUND)
def test_a_snippet_of_the_documentation_runs(tmp_path: Path, word: str) -> None:
    before, after, steps, names = AROUND[word]
    for module in re.findall(r"^import (torch|accelerate|transformers|lightning)", before, re.M):
        pytest.importorskip(module)
    (tmp_path / "train.py").write_text(TRAIN + before + of(word) + after)

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )

    assert done.returncode == 0, done.stderr
    runs = Runs(tmp_path / "headspace-runs")
    assert runs.summary()["steps"] == steps
    recorded = {
        entry["name"]
        for tick in runs.kind("tick")
        for entry in [*tick.get("stages", []), *tick.get("queues", [])]
    }
    assert names <= recorded
