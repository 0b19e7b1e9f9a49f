"""Lightning, Accelerate and Hugging Face's Trainer: the training loop is one loop and is measured once.

Each framework trains a tiny model and reports its batches, with headspace and without.
"""

from __future__ import annotations

import itertools
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Runs, steps_in_ticks

import headspace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    lightning = pytest.importorskip("lightning.pytorch")
    transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")

#: Number of items, and number of batches with four items each.
ITEMS = 24
BATCHES = 6

Batches = list[list[float]]
Wrap = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    before = dict(os.environ)
    for name in ("lightning.pytorch", "lightning.fabric", "transformers", "accelerate"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.ERROR)
    monkeypatch.chdir(tmp_path)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name in os.environ.keys() - before.keys():  # Variables that launchers have set.
        del os.environ[name]


def items(count: int = ITEMS) -> Any:
    return torch.utils.data.TensorDataset(torch.arange(float(count)).reshape(count, 1))


def loader(count: int = ITEMS, *, shuffle: bool = True, workers: int = 0) -> Any:
    return torch.utils.data.DataLoader(
        items(count), batch_size=4, shuffle=shuffle, num_workers=workers
    )


def steps(runs: Runs) -> dict[str, int]:
    """Steps by loop."""
    headspace.stop()
    names = {entry["name"] for tick in runs.kind("tick") for entry in tick["loops"]}
    return {name: steps_in_ticks(runs.records(), name) for name in names}


def as_it_is(loader: Any) -> Any:
    return loader


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A loop name that no other test uses, because frameworks keep loaders alive for long."""
    return f"loop of {request.node.name}"


@pytest.fixture
def wrap(name: str) -> Wrap:
    return lambda loader: headspace.wrap(loader, name=name)


# Lightning.


class Lit(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.batches_seen: Batches = []
        self.validated = 0

    def training_step(self, batch: Any, index: int) -> Any:
        self.batches_seen.append(batch[0].flatten().tolist())
        return self.layer(batch[0]).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated += 1

    def predict_step(self, batch: Any, index: int) -> Any:
        return batch[0].flatten().tolist()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class LitWithLoaders(Lit):
    def __init__(self, wrap: Wrap) -> None:
        super().__init__()
        self.wrap = wrap

    def train_dataloader(self) -> Any:
        return self.wrap(loader())

    def val_dataloader(self) -> Any:
        return loader(8, shuffle=False)


def trainer(**how: Any) -> Any:
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 2, **how},
    )


DDP = {"strategy": "ddp", "devices": 1}


def fit(wrap: Wrap, **how: Any) -> Lit:
    torch.manual_seed(0)
    model = Lit()
    trainer(**how).fit(model, wrap(loader()), loader(8, shuffle=False))
    return model


def fit_with_hooks(wrap: Wrap, **how: Any) -> Lit:
    torch.manual_seed(0)
    model = LitWithLoaders(wrap)
    trainer(**how).fit(model)
    return model


@pytest.mark.parametrize("train", [fit, fit_with_hooks])
@pytest.mark.parametrize(
    ("how", "count"),
    [
        ({}, 2 * BATCHES),
        # The loop leaves each epoch before its end.
        ({"limit_train_batches": 4}, 8),
        # Validation within the epoch.
        ({"val_check_interval": 2}, 2 * BATCHES),
        # The loader is created again, with another sampler.
        (DDP, 2 * BATCHES),
        ({"overfit_batches": 3}, 6),
    ],
    ids=str,
)
def test_lightning_is_timed_once_and_sees_the_same_batches(
    runs: Runs,
    wrap: Wrap,
    name: str,
    train: Callable[..., Lit],
    how: dict[str, Any],
    count: int,
) -> None:
    plain = train(as_it_is, **how)
    assert not runs.folders

    watched = train(wrap, **how)

    assert watched.batches_seen == plain.batches_seen
    assert watched.validated == plain.validated
    assert len(watched.batches_seen) == count
    assert steps(runs) == {name: count}
    assert {epoch["loop"] for epoch in runs.kind("epoch")} == {name}


def test_the_wrapped_validation_loader_of_lightning_is_a_separate_loop(
    runs: Runs, wrap: Wrap, name: str
) -> None:
    val = headspace.wrap(loader(8, shuffle=False), name=f"val {name}")
    trainer().fit(Lit(), wrap(loader()), val)

    # The evaluation includes the sanity check before the training.
    assert steps(runs) == {name: 2 * BATCHES, f"val {name}": 2 + 2 * 2}


def test_lightning_can_predict_from_a_wrapped_loader(runs: Runs, wrap: Wrap, name: str) -> None:
    def predict(wrap: Wrap) -> Any:
        return trainer().predict(Lit(), wrap(loader(shuffle=False)))

    assert predict(wrap) == predict(as_it_is)
    assert steps(runs) == {name: BATCHES}


def test_lightning_fits_again_in_the_same_loop(runs: Runs, wrap: Wrap, name: str) -> None:
    wrapped = wrap(loader())
    for _ in range(2):
        trainer(**DDP).fit(Lit(), wrapped)

    assert steps(runs) == {name: 4 * BATCHES}


# Accelerate.


@pytest.fixture
def accelerator() -> Any:
    accelerate.state.AcceleratorState._reset_state(True)
    return accelerate.Accelerator(cpu=True)


@pytest.fixture
def dispatcher() -> Any:
    accelerate.state.AcceleratorState._reset_state(True)
    how = accelerate.DataLoaderConfiguration(dispatch_batches=True)
    return accelerate.Accelerator(cpu=True, dataloader_config=how)


PREPARED: dict[str, Callable[[Any, Any, Wrap], Any]] = {
    "wrapped before": lambda a, loader, wrap: a.prepare(wrap(loader)),
    "wrapped after": lambda a, loader, wrap: wrap(a.prepare(loader)),
    "wrapped before and after": lambda a, loader, wrap: wrap(a.prepare(wrap(loader))),
    "prepared twice": lambda a, loader, wrap: a.prepare(a.prepare(wrap(loader))),
}


def epochs(loader: Any, count: int = 2) -> Batches:
    torch.manual_seed(0)
    return [batch[0].flatten().tolist() for _ in range(count) for batch in loader]


@pytest.mark.parametrize("which", ["accelerator", "dispatcher"])
@pytest.mark.parametrize("order", PREPARED)
def test_accelerate_is_timed_once_and_gives_the_same_batches(
    runs: Runs, wrap: Wrap, request: pytest.FixtureRequest, order: str, which: str
) -> None:
    accelerator = request.getfixturevalue(which)
    prepare = PREPARED[order]
    plain = prepare(accelerator, loader(), as_it_is)
    expected = epochs(plain)
    assert not runs.folders

    watched = prepare(accelerator, loader(), wrap)

    assert epochs(watched) == expected
    assert (len(watched), type(watched).__name__) == (len(plain), type(plain).__name__)
    assert list(steps(runs).values()) == [2 * BATCHES]


def test_accelerate_still_detects_the_end_of_an_epoch(runs: Runs, accelerator: Any) -> None:
    watched = accelerator.prepare(headspace.wrap(loader()))

    ends = [watched.end_of_dataloader for _ in watched]

    assert ends == [False] * (BATCHES - 1) + [True]


def test_an_epoch_that_accelerate_resumes_is_the_same_loop(
    runs: Runs, wrap: Wrap, name: str, accelerator: Any
) -> None:
    watched = wrap(accelerator.prepare(loader(shuffle=False)))

    rest = epochs(accelerator.skip_first_batches(watched, 2), 1)
    whole = epochs(watched, 1)

    assert whole[2:] == rest
    assert steps(runs) == {name: 2 * BATCHES - 2}


def test_accelerate_prepares_other_loaders_as_before(runs: Runs, accelerator: Any) -> None:
    accelerator.prepare(headspace.wrap(loader()))

    other = accelerator.prepare(loader())

    assert type(other) is accelerate.data_loader.DataLoaderShard
    skipped = accelerate.skip_first_batches(other, 1)
    assert type(skipped) is accelerate.data_loader.DataLoaderShard
    assert accelerate.skip_first_batches.__name__ == "skip_first_batches"


def test_the_workers_of_a_prepared_loader_are_measured(
    runs: Runs, wrap: Wrap, name: str, accelerator: Any
) -> None:
    watched = accelerator.prepare(wrap(loader(workers=1)))
    epochs(watched, 1)
    headspace.stop()

    stages = {s["name"] for tick in runs.kind("tick") for s in tick.get("stages", [])}
    assert f"{name} fetch" in stages


# Hugging Face's Trainer.


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.batches_seen: Batches = []

    def forward(self, x: Any, labels: Any) -> Any:
        if self.training:
            self.batches_seen.append(x.flatten().tolist())
        logits = self.layer(x)
        return {"loss": logits.mean(), "logits": logits}


class After(transformers.Trainer):  # type: ignore[misc]
    """The subclass of the documentation: it wraps the loader after the Trainer has prepared it."""

    wrap: Wrap

    def get_train_dataloader(self) -> Any:
        return self.wrap(super().get_train_dataloader())


class Before(After):
    def get_train_dataloader(self) -> Any:
        return self.accelerator.prepare(self.wrap(self.plain()))

    def plain(self) -> Any:
        return torch.utils.data.DataLoader(
            self.train_dataset, batch_size=4, shuffle=True, collate_fn=self.data_collator
        )


class Unprepared(Before):
    def get_train_dataloader(self) -> Any:
        return self.wrap(self.plain())


def hugging(kind: type[After], wrap: Wrap, **how: Any) -> Net:
    accelerate.state.AcceleratorState._reset_state(True)
    rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor(0.0)} for i in range(ITEMS)]
    arguments = transformers.TrainingArguments(
        output_dir="out",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        **how,
    )
    net = Net()
    trainer = kind(model=net, args=arguments, train_dataset=rows, eval_dataset=rows[:8])
    trainer.wrap = wrap
    trainer.train()
    return net


@pytest.mark.parametrize("kind", [After, Before, Unprepared])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_hugging_faces_trainer_is_timed_once_and_sees_the_same_batches(
    runs: Runs, wrap: Wrap, name: str, kind: type[After], accumulate: int
) -> None:
    how = {"gradient_accumulation_steps": accumulate}
    plain = hugging(kind, as_it_is, **how)
    assert not runs.folders

    watched = hugging(kind, wrap, **how)

    assert watched.batches_seen == plain.batches_seen
    assert len(watched.batches_seen) == 2 * BATCHES
    # Evaluation, every second step, is not among them.
    assert steps(runs) == {name: 2 * BATCHES}


def test_a_probed_epoch_of_lightning_keeps_its_length(runs: Runs, name: str) -> None:
    watched = headspace.wrap(loader(1600), mode="probe", name=name)
    model = Lit()
    trainer(max_epochs=1, **DDP).fit(model, watched)

    assert len(model.batches_seen) == 400
    assert steps(runs) == {name: 400}
    assert "probe_begins" in runs.notices()
    items = list(itertools.chain.from_iterable(model.batches_seen))
    assert len(set(items)) < len(items), "some batches came again"
