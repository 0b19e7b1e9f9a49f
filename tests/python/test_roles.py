"""Distinction of training and evaluation by gradients and by the modes of models, and its effect on `wrap`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running import Runs

import headspace
from headspace._loops import observe_torch
from headspace._loops.training_or_evaluation import (
    BACKGROUND,
    EVALUATION,
    LIKELY_EVALUATION,
    TRAINING,
    UNKNOWN,
    RoleHistory,
)

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Observes calls of `train` and `eval`, as `headspace run` does."""
    original = nn.Module.train
    monkeypatch.setattr(observe_torch, "_models", [])
    observe_torch.watch_modes(nn.Module)
    yield
    nn.Module.train = original


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(1, 1), nn.Dropout())
        self.head = nn.Linear(1, 1)


class Wrapper(nn.Module):  # type: ignore[misc]
    """A module around a model, as data parallelism and `torch.compile` create it."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


@pytest.mark.usefixtures("modes")
def test_the_mode_of_the_model_separates_training_from_evaluation() -> None:
    assert observe_torch.observe_role().role is None
    model = Model()
    assert observe_torch.observe_role().role is None

    model.train()
    assert observe_torch.observe_role().role == "training"
    model.eval()
    assert observe_torch.observe_role().role == "evaluation"
    model.train(True)
    assert observe_torch.observe_role().role == "training"


@pytest.mark.usefixtures("modes")
def test_disabled_gradients_mark_an_evaluation_in_any_mode() -> None:
    model = Model().train()
    with torch.no_grad():
        assert observe_torch.observe_role().role == "evaluation"
    with torch.inference_mode():
        assert observe_torch.observe_role().role == "evaluation"
    assert observe_torch.observe_role().role == "training"
    assert model.training


@pytest.mark.usefixtures("modes")
def test_the_mode_of_a_submodule_does_not_change_the_role() -> None:
    model = Model().train()
    model.backbone.eval()
    assert observe_torch.observe_role().role == "training"
    assert not model.backbone.training

    model.eval()
    model.head.train()
    assert observe_torch.observe_role().role == "evaluation"


@pytest.mark.usefixtures("modes")
def test_a_model_and_its_wrapper_have_the_same_role() -> None:
    model = Model()
    wrapped = Wrapper(Wrapper(model))
    wrapped.train()
    model.eval()
    assert observe_torch.observe_role().role == "evaluation"
    wrapped.train()
    assert observe_torch.observe_role().role == "training"


@pytest.mark.usefixtures("modes")
def test_a_teacher_in_evaluation_mode_does_not_end_the_training() -> None:
    student, teacher = Model().train(), Model().eval()
    assert observe_torch.observe_role().role == "training"
    student.eval()
    assert observe_torch.observe_role().role == "evaluation"
    student.train()
    del teacher
    assert observe_torch.observe_role().role == "training"
    del student
    assert observe_torch.observe_role().role is None


@pytest.mark.usefixtures("modes")
def test_a_training_flag_restored_without_a_call_counts() -> None:
    model = Model().eval()
    for part in model.modules():
        part.training = True
    assert observe_torch.observe_role().role == "training"


@pytest.mark.usefixtures("modes")
def test_a_thread_that_sets_no_mode_has_the_role_of_the_training_thread() -> None:
    found: list[str | None] = []

    def in_a_thread(function: Callable[[], object]) -> None:
        thread = threading.Thread(
            target=lambda: (function(), found.append(observe_torch.observe_role().role))
        )
        thread.start()
        thread.join()

    model = Model().train()
    in_a_thread(lambda: None)
    in_a_thread(lambda: model.train())

    assert found == ["background", "training"]


@pytest.mark.usefixtures("modes")
def test_the_train_method_of_a_model_keeps_its_behaviour_and_result() -> None:
    class Frozen(Model):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self.backbone.eval()
            return self

    model = Frozen()
    assert model.train() is model
    assert model.head.training
    assert not model.backbone.training
    assert observe_torch.observe_role().role == "training"
    with pytest.raises(ValueError, match="mode"):
        model.train("yes")


def test_only_a_final_role_stays_when_a_model_begins_to_train() -> None:
    assert UNKNOWN.after_model_trains() is TRAINING
    assert LIKELY_EVALUATION.after_model_trains() is TRAINING
    for state in (TRAINING, EVALUATION, BACKGROUND):
        assert state.after_model_trains() is state


def test_a_likely_evaluation_becomes_final_once_another_loop_has_trained() -> None:
    history = RoleHistory()
    assert history.resolve(LIKELY_EVALUATION) is UNKNOWN
    assert history.resolve(EVALUATION) is EVALUATION

    history.note(TRAINING)
    history.note(EVALUATION)

    assert history.resolve(LIKELY_EVALUATION) is EVALUATION
    assert history.resolve(UNKNOWN) is UNKNOWN


def test_only_a_certain_evaluation_splits_a_wrapped_loader_from_training() -> None:
    states = [UNKNOWN, TRAINING, LIKELY_EVALUATION, EVALUATION, BACKGROUND]
    wrapped = [state.of_wrapped_loader() for state in states]
    assert wrapped == [UNKNOWN, TRAINING, UNKNOWN, EVALUATION, UNKNOWN]


def test_a_likely_evaluation_may_be_the_next_epoch_of_the_training() -> None:
    assert LIKELY_EVALUATION.roles_to_continue() == ("training", None, "evaluation")
    assert EVALUATION.roles_to_continue() == ("evaluation",)
    assert UNKNOWN.roles_to_continue() == (None,)


def test_a_loop_is_reported_as_evaluation_once_its_role_is_known() -> None:
    history = RoleHistory()
    assert history.role_in_name(LIKELY_EVALUATION) is None
    assert history.role_in_name(EVALUATION) == "evaluation"

    history.note(TRAINING)

    assert history.role_in_name(LIKELY_EVALUATION) == "evaluation"
    assert history.role_in_name(BACKGROUND) is None


def loader(count: int) -> Any:
    return torch.utils.data.DataLoader([torch.ones(1)] * count, batch_size=1)


def test_a_wrapped_loader_used_for_training_and_evaluation_is_two_loops(
    runs: Runs, name: str
) -> None:
    watched = headspace.wrap(loader(40), name=name)
    for _ in range(2):
        for _ in watched:
            pass
        with torch.no_grad():
            for _ in watched:
                pass
    headspace.stop()

    summary = runs.summary()
    assert (summary["loop"], summary["steps"]) == (name, 80)
    (other,) = summary["other_loops"]
    assert (other["name"], other["role"], other["steps"]) == (
        f"{name} (evaluation)",
        "evaluation",
        80,
    )


def test_an_evaluation_before_the_training_does_not_make_the_training_an_evaluation(
    runs: Runs, name: str
) -> None:
    watched = headspace.wrap(loader(40), name=name)
    with torch.no_grad():
        list(watched)
    list(watched)
    headspace.stop()

    summary = runs.summary()
    assert summary["loop"] == f"{name} (training)"
    assert [other["role"] for other in summary["other_loops"]] == ["evaluation"]


@pytest.mark.alone  # A stall of the machine makes a step as long as an evaluation.
def test_an_evaluation_within_an_epoch_is_not_part_of_a_step(runs: Runs, name: str) -> None:
    training, held_out = headspace.wrap(loader(60), name=name), headspace.wrap(loader(2))
    for number, _ in enumerate(training):
        if number % 10 == 5:
            with torch.no_grad():
                for _ in held_out:
                    time.sleep(0.2)
    headspace.stop()

    longest = [
        entry["step"]["max_ms"]
        for tick in runs.kind("tick")
        for entry in tick["loops"]
        if entry["name"] == name and entry["step"].get("count")
    ]
    assert max(longest) < 200
    assert runs.summary()["steps"] == 60


def test_a_loader_inside_another_loader_is_not_an_evaluation(runs: Runs, name: str) -> None:
    """A generator that disables gradients while it loads still belongs to the training loop."""
    inner = headspace.wrap(loader(20), name=f"{name} inner")

    @torch.no_grad()
    def drawn() -> Iterator[Any]:
        yield from inner

    for _ in headspace.wrap(drawn(), name=name):
        pass
    headspace.stop()

    assert runs.summary()["loop"] == name
