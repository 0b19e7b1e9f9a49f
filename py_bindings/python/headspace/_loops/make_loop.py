"""Makes the native loop of a loader, a function or an optimizer, and decides which loop is probed."""

from __future__ import annotations

from headspace import _native, _settings
from headspace._loops import run_length
from headspace._loops.loader_facts import read_facts
from headspace._loops.training_or_evaluation import TRAINING, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Unpack

    from headspace._loops.training_or_evaluation import Role


def make_loop(
    name: str,
    facts: _native._LoaderFacts,
    *,
    mode: str = _settings.MEASURE,
    role: Role | None = None,
    chosen: bool | None = None,
    options_from: str | None = None,
    **plan: Unpack[_native._PlanOptions],
) -> _native.Loop:
    """A loop.

    Args:
        name: Its name in the records.
        facts: The facts about the source of its batches. The length of the run is by default that of the environment,
            else what a trainer states.
        mode: One of `_settings.MODES`.
        role: The role of the loop.
        chosen: Whether the user named it as the training loop. By default, this follows from `name`.
        options_from: Where the user sets the plan, as records have it.
        plan: The options of `wrap` for a probe or a replay.
    """
    options: _native._LoopPlan = {"mode": mode, "world_size": _settings.world_size(), **plan}
    all_facts: _native._LoaderFacts = {
        **facts,
        "role": role,
        "epochs": facts.get("epochs") or _settings.epochs() or run_length.epochs,
        "total_steps": (
            facts.get("total_steps") or _settings.total_steps() or run_length.total_steps
        ),
        "chosen": name == _settings.chosen_loop() if chosen is None else chosen,
        "options_from": _settings.options_from() if options_from is None else options_from,
    }
    return _native.Loop(name, options, all_facts)


def make_loader_loop(
    loader: Any,
    *,
    name: str,
    mode: str,
    batch_size: int | None = None,
    stated: dict[str, Any] | None = None,
    **options: Any,
) -> _native.Loop:
    """The loop over a loader.

    Args:
        batch_size: Samples per batch. By default the loader's own number.
        stated: Facts that the user states, instead of those of the loader.
        options: As of `make_loop`.
    """
    facts: Any = {**read_facts(loader, mode, batch_size), **(stated or {})}
    return make_loop(name, facts, mode=mode, **options)


def mode_without_wrap(name: str, role: Role | None) -> str:
    """The mode of a loop over something that is not wrapped.

    Only one loop is probed or replayed: the one that the user named, else the one that may train.
    """
    chosen = _settings.chosen_loop()
    is_meant = role in (TRAINING.role, UNKNOWN.role) if chosen is None else name == chosen
    return _settings.mode() if is_meant else _settings.MEASURE
