"""Counts training steps of loops without a known loader, by the steps of an optimizer.

torch calls the hook below after each `step()` of any optimizer, through its public API. A call counts
if no watched loader is iterated meanwhile. Several optimizers that step in turn, as those of a GAN, and an
optimizer inside another one are one loop: the optimizer that was seen first ends its steps.
"""

from __future__ import annotations

import os
from _thread import get_ident
from _weakref import ref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headspace import _native, _settings
from headspace._loops import nesting, observe_torch
from headspace._loops.attributes import type_name_of
from headspace._loops.make_loop import make_loop
from headspace._processes.worker import is_worker
from headspace._session import lifecycle
from headspace._session.own_errors import call_safely
from headspace._watch import process_queues

NAME = "optimizer steps"

#: Consecutive steps without a loader that make a loop. A loop over a loader may make one step after its
#: end, for gradients that it has accumulated.
_MIN_STEPS_IN_A_ROW = 4

#: Steps of other optimizers after which the counted one is taken to be out of use.
_MAX_STEPS_OF_OTHERS = 64


class _StepCounter:
    """The steps of one process."""

    def __init__(self) -> None:
        self._loop: _native.Loop | None = None
        self._optimizer: Callable[[], Any] = lambda: None
        self._steps_of_others = 0
        self._thread = 0
        #: The process that made the loop.
        self._process = 0
        self._steps_in_a_row = 0
        #: Iterations of loaders that had begun by the last step.
        self._iterations = 0
        #: This process makes batches for another one: its steps are not counted.
        self._is_worker = False
        #: A model went into evaluation mode since the last step.
        self.has_evaluated = False
        self._had_evaluated = False
        #: Something other than training happened since the last step.
        self._gap = False

    def count_step(self, optimizer: Any) -> None:
        """A step of that optimizer has ended."""
        if self._is_worker or not self._ends_a_step(optimizer):
            return
        if nesting.is_iterating() or lifecycle.steps_loop is not None or not _settings.enabled():
            self._steps_in_a_row, self._gap = 0, True
            return
        has_iterated, self._iterations = self._iterations != nesting.begun, nesting.begun
        # An evaluation is not part of a step, unless the loop evaluates in every step.
        has_evaluated, self.has_evaluated = self.has_evaluated or has_iterated, False
        gap = self._gap or (has_evaluated and not self._had_evaluated)
        self._had_evaluated, self._gap = has_evaluated, False
        self._steps_in_a_row = 0 if has_iterated else self._steps_in_a_row + 1
        if self._loop is None:
            if self._steps_in_a_row < _MIN_STEPS_IN_A_ROW:
                return
            self._loop = self._make_loop(optimizer)
            if self._loop is None:
                return
        lifecycle.record_step(self._loop, None, gap=gap)

    def _ends_a_step(self, optimizer: Any) -> bool:
        """Whether it is the optimizer that ends the steps of the loop, on the loop's thread."""
        counted = self._optimizer()
        if counted is optimizer:
            self._steps_of_others = 0
            return self._thread == get_ident()
        self._steps_of_others += 1
        if counted is not None and self._steps_of_others < _MAX_STEPS_OF_OTHERS:
            return False
        self._optimizer, self._thread, self._steps_of_others = ref(optimizer), get_ident(), 0
        self._gap = True
        return True

    def loop_of_this_thread(self) -> _native.Loop | None:
        """The loop, if this thread makes its steps and iterates no loader. None in a forked child, whose threads have
        the same numbers."""
        makes_steps = self._thread == get_ident() and self._process == os.getpid()
        return self._loop if makes_steps and not nesting.is_iterating() else None

    def _make_loop(self, optimizer: Any) -> _native.Loop | None:
        if is_worker():
            self._is_worker = True
            return None
        self._process = os.getpid()
        role = observe_torch.role_by_modes().role
        return make_loop(NAME, {"type_name": type_name_of(optimizer)}, role=role)


_counter = _StepCounter()


def _is_compiling() -> bool:
    return False


def _step_ended(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    """torch's hook. A compiler that traces the optimizer's step must not trace this."""
    if not _is_compiling():
        call_safely(_counter.count_step, optimizer)


def _note_evaluation() -> None:
    _counter.has_evaluated = True


#: The modules that are needed, by name. torch may import them in any order.
_needed: dict[str, ModuleType | None] = {"torch.compiler": None, "torch.optim.optimizer": None}


def module_imported(name: str, module: ModuleType) -> None:
    """One of them has been imported. When both are, the steps of optimizers are counted."""
    global _is_compiling
    _needed[name] = module
    compiler, optimizer = _needed.values()
    if compiler is not None and optimizer is not None:
        _is_compiling = compiler.is_compiling
        optimizer.register_optimizer_step_post_hook(_step_ended)
        observe_torch.on_eval[:] = [_note_evaluation]
        process_queues.watch(_counter.loop_of_this_thread)
