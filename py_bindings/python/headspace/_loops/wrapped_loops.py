"""Holds the loops of a wrapped loader: one, or two if it is iterated for training and for evaluation."""

from __future__ import annotations

from headspace import _settings
from headspace._loops import names, nesting
from headspace._loops.make_loop import make_loader_loop
from headspace._loops.observe_torch import observe_role
from headspace._loops.training_or_evaluation import EVALUATION, TRAINING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headspace import _native
    from headspace._loops.training_or_evaluation import Role, RoleState


class WrappedLoops:
    """The loops of one wrapped loader.

    Args:
        loader: What is wrapped.
        options: Those of `wrap`.
    """

    def __init__(self, loader: Any, options: dict[str, Any]) -> None:
        self.main = make_loader_loop(loader, **options)
        self._options = options
        #: The role of the main loop. None before its first epoch.
        self._state: RoleState | None = None
        self._evaluation: _native.Loop | None = None

    def begin_epoch(self, loader: Any) -> tuple[_native.Loop, Role | None]:
        """The loop that an epoch which begins now belongs to, and the role of the epoch."""
        state = observe_role().of_wrapped_loader()
        if state is EVALUATION:
            nesting.interrupt_iterations()
            return self._loop_to_evaluate(loader), state.role
        return self._loop_to_train(loader), state.role

    def _loop_to_train(self, loader: Any) -> _native.Loop:
        if self._state is EVALUATION:
            # So far the loader was only used for evaluation. That loop becomes the second one.
            self._evaluation = self.main
            name = names.make_unique(self.main.name, TRAINING.role)
            self.main = make_loader_loop(loader, **{**self._options, "name": name})
        self._state = TRAINING
        return self.main

    def _loop_to_evaluate(self, loader: Any) -> _native.Loop:
        if self._state is None:
            self._state = EVALUATION
        if self._state is EVALUATION:
            return self.main
        if self._evaluation is None:
            name = names.make_unique(self.main.name, EVALUATION.role)
            options = {**self._options, "mode": _settings.MEASURE, "name": name}
            self._evaluation = make_loader_loop(loader, **options)
        return self._evaluation
