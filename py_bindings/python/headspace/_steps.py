"""Loops without a known loader: a step ends with the step of an optimiser.

torch calls the hook below after each `step()` of any optimiser, which is public API. It counts where no
watched loader is iterated meanwhile. Several optimisers a step, as of a GAN, and an optimiser within
another are one step: that of the optimiser that was seen first.
"""

from __future__ import annotations

from _thread import get_ident
from _weakref import ref

from headspace import _guard, _native, _nesting, _role, _session, _settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

NAME = "optimizer steps"

#: Steps in a row without a loader from which on they are a loop's. A loop over a loader may have one
#: step behind its end, for what it has accumulated.
_LEAST = 4

#: Steps of other optimisers after which the one that was followed no longer takes part.
_PATIENCE = 64


class _Counter:
    """The steps of one process."""

    def __init__(self) -> None:
        self._loop: _native.Loop | None = None
        self._optimizer: Callable[[], Any] = lambda: None
        self._of_others = 0
        self._thread = 0
        self._in_a_row = 0
        self._iterations = 0
        self._gave_up = False
        #: A model went into evaluation mode since the last step.
        self.evaluated = False
        self._evaluated_before = False
        self._gap = False

    def count(self, optimizer: Any) -> None:
        """A step of that optimiser has ended."""
        if self._gave_up or not self._is_followed(optimizer):
            return
        if _nesting.goes_on() or _session._steps is not None or not _settings.enabled():
            self._in_a_row, self._gap = 0, True
            return
        iterated, self._iterations = self._iterations != _nesting.begun, _nesting.begun
        # An evaluation is no part of a step; but some loops evaluate in each.
        evaluated, self.evaluated = self.evaluated or iterated, False
        gap = self._gap or (evaluated and not self._evaluated_before)
        self._evaluated_before, self._gap = evaluated, False
        self._in_a_row = 0 if iterated else self._in_a_row + 1
        if self._loop is None:
            if self._in_a_row < _LEAST:
                return
            self._loop = self._begin(optimizer)
            if self._loop is None:
                return
        session = _session._current
        native = session._native if session is not None else _session._begin(_native.ticks())
        if native is not None and native.is_here:
            self._loop.step(native, None, gap)

    def _is_followed(self, optimizer: Any) -> bool:
        followed = self._optimizer()
        if followed is optimizer:
            self._of_others = 0
            return self._thread == get_ident()
        self._of_others += 1
        if followed is not None and self._of_others < _PATIENCE:
            return False
        self._optimizer, self._thread, self._of_others = ref(optimizer), get_ident(), 0
        self._gap = True
        return True

    def _begin(self, optimizer: Any) -> _native.Loop | None:
        if _guard.is_worker():
            self._gave_up = True
            return None
        kind = type(optimizer)
        return _native.Loop(
            NAME,
            "measure",
            type_name=f"{kind.__module__}.{kind.__qualname__}",
            world_size=_settings.world_size(),
            role=_role.likely(),
            chosen=_settings.chosen_loop() == NAME,
            options_from=_settings.options_from(),
        )


_counter = _Counter()


def _is_compiling() -> bool:
    return False


def _ended(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    """torch's hook. Where a compiler traces the optimiser's step, nothing of this is to be in it."""
    if not _is_compiling():
        _guard.quietly(_counter.count, optimizer)


def _note_evaluation() -> None:
    _counter.evaluated = True


#: The modules that are needed, by name, in whatever order torch imports them.
_needed: dict[str, ModuleType | None] = {"torch.compiler": None, "torch.optim.optimizer": None}


def ready(name: str, module: ModuleType) -> None:
    """One of them has been imported. With both there, the steps of optimisers are seen."""
    global _is_compiling
    _needed[name] = module
    compiler, optimizer = _needed.values()
    if compiler is not None and optimizer is not None:
        _is_compiling = compiler.is_compiling
        optimizer.register_optimizer_step_post_hook(_ended)
        _role.on_eval[:] = [_note_evaluation]
