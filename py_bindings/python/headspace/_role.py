"""What a loop is for, as far as torch tells: training or evaluation.

An evaluation is begun with gradients off: that is sure. Or it is begun while every model whose mode
was set is in evaluation mode. That is likely: some trainers set a model's mode only once they have a
batch. `model.train()` and `model.eval()` are seen where :func:`adopt` has been called, as it is under
`headspace run`; a part of a model says nothing about the whole.
"""

from __future__ import annotations

import sys
from _thread import _local as ThreadLocal
from _thread import get_ident
from _weakref import ref

from headspace import _nesting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TRAINING, EVALUATION, BACKGROUND = "training", "evaluation", "background"


class _Model:
    """A model whose mode was set, and the thread that did so last."""

    __slots__ = ("model", "thread")

    def __init__(self, model: Any) -> None:
        self.model = ref(model)
        self.thread = 0


_models: list[_Model] = []


class _Local(ThreadLocal):
    #: Calls of `train` that this thread is in: of a model, and of each of its parts.
    depth = 0


_local = _Local()


#: Called as a model goes into training mode, and into evaluation mode.
on_train: list[Callable[[], None]] = []
on_eval: list[Callable[[], None]] = []


def here() -> str | None:
    """The role of a loop that begins here and now; None where nothing tells."""
    return EVALUATION if is_sure() else likely()


def is_sure() -> bool:
    """Whether what begins here and now is an evaluation for sure."""
    enabled = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
    return enabled is not None and not enabled()


def likely() -> str | None:
    """The role as the modes of models have it, gradients aside."""
    beside = _nesting.is_beside()
    modes = []
    for known in _models:
        model = known.model()
        # A mode may also be set without a call, as what puts back an earlier one does.
        if model is not None and (known.thread == get_ident() or not beside):
            modes.append(bool(_core(model).training))
    if modes:
        return TRAINING if any(modes) else EVALUATION
    return BACKGROUND if beside else None


def adopt(module_type: Any) -> None:
    """The modes of modules are seen from now on.

    Args:
        module_type: ``torch.nn.Module``.
    """
    original = module_type.train
    if hasattr(original, "_headspace_original"):
        return
    from functools import wraps

    @wraps(original)
    def train(self: Any, mode: bool = True) -> Any:
        local = _local
        local.depth += 1
        try:
            return original(self, mode)
        finally:
            local.depth -= 1
            if not local.depth:
                _see(self, mode)

    train._headspace_original = original  # type: ignore[attr-defined]
    module_type.train = train


def _see(model: Any, mode: Any) -> None:
    try:
        core = _core(model)
        known = None
        for entry in list(_models):
            other = entry.model()
            if other is None:
                _models.remove(entry)
            elif _core(other) is core:
                known = entry
            elif any(core is part for part in other.modules()):
                return  # A part, as a frozen backbone is.
        if known is None:
            known = _Model(model)
            # What was taken for a whole is a part of this one.
            parts = {id(part) for part in model.modules()}
            _models[:] = [entry for entry in _models if id(entry.model()) not in parts]
            _models.append(known)
        known.thread = get_ident()
        for function in on_train if mode else on_eval:
            function()
    except Exception:  # The mode is set: nothing of ours may say otherwise.
        pass


#: What wrappers, as those of data parallelism and of the compiler are, call what they wrap.
_WRAPPED = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def _core(model: Any) -> Any:
    """The model within its wrappers."""
    for _ in range(8):
        children = list(model.named_children())
        if len(children) != 1 or children[0][0] not in _WRAPPED:
            break
        model = children[0][1]
    return model
