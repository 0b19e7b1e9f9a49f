"""Observes in torch what shows whether a loop trains or evaluates: gradients, and the modes of the models.

Calls of `model.train()` and `model.eval()` are observed after :func:`watch_modes`, which `headspace run`
calls. The mode of a part of a model is ignored: it does not show the mode of the whole.
"""

from __future__ import annotations

import sys
from _thread import _local as ThreadLocal
from _thread import get_ident
from _weakref import ref

from headspace._loops.replacing import replace
from headspace._loops.training_or_evaluation import RoleState, role_at_begin
from headspace._session import threads
from headspace._session.own_errors import call_safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Model:
    """A model whose mode was set, and the thread that did so last."""

    def __init__(self, model: Any) -> None:
        self.model = ref(model)
        self.thread = 0


_models: list[_Model] = []


class _Local(ThreadLocal):
    #: Depth of nested calls of `train` on this thread: a model calls it for each of its parts.
    depth = 0


_local = _Local()


#: Called when a model goes into training mode, and when one goes into evaluation mode.
on_train: list[Callable[[], None]] = []
on_eval: list[Callable[[], None]] = []


def observe_role() -> RoleState:
    """The state of a loop that begins on this thread now."""
    enabled = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
    if enabled is not None and not enabled():
        # The modes do not matter.
        return role_at_begin([], gradients=False, is_main_thread=True)
    return role_by_modes()


def role_by_modes() -> RoleState:
    """The state by the modes of the models alone, as if gradients were on."""
    is_main_thread = threads.is_main_thread()
    # A model may raise, or be changed by another thread.
    modes = call_safely(_modes_of_models, is_main_thread) or []
    return role_at_begin(modes, gradients=True, is_main_thread=is_main_thread)


def _modes_of_models(is_main_thread: bool) -> list[bool]:
    """Whether each model is in training mode."""
    modes = []
    for entry in _models:
        model = entry.model()
        # Reads the attribute, since code that restores an earlier mode sets it without a call.
        if model is not None and (is_main_thread or entry.thread == get_ident()):
            modes.append(bool(_unwrap_model(model).training))
    return modes


def watch_modes(module_type: Any) -> None:
    """Follow the modes of models from now on.

    Args:
        module_type: ``torch.nn.Module``.
    """
    replace(module_type, "train", _observe_calls)


def _observe_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    def train(self: Any, mode: bool = True) -> Any:
        local = _local
        local.depth += 1
        try:
            return original(self, mode)
        finally:
            local.depth -= 1
            if not local.depth:
                _note_mode(self, mode)

    return train


def _note_mode(model: Any, mode: Any) -> None:
    try:
        core = _unwrap_model(model)
        known = None
        for entry in list(_models):
            other = entry.model()
            if other is None:
                _models.remove(entry)
            elif _unwrap_model(other) is core:
                known = entry
            elif any(core is part for part in other.modules()):
                return  # A part, for example a frozen backbone.
        if known is None:
            known = _Model(model)
            # Models that were known before may be parts of this one.
            parts = {id(part) for part in model.modules()}
            _models[:] = [entry for entry in _models if id(entry.model()) not in parts]
            _models.append(known)
        known.thread = get_ident()
        for function in on_train if mode else on_eval:
            function()
    except Exception:  # The mode is set. An error here must not make the call fail.
        pass


#: Attributes by which wrappers for data parallelism and the compiler hold the wrapped model.
_WRAPPED = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def _unwrap_model(model: Any) -> Any:
    """The model inside its wrappers."""
    for _ in range(8):
        children = list(model.named_children())
        if len(children) != 1 or children[0][0] not in _WRAPPED:
            break
        model = children[0][1]
    return model
