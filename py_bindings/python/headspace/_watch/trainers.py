"""Reads the length of a run when a trainer begins: that of Hugging Face's Trainer, or of Lightning.

Both count steps of the optimizer. With accumulated gradients, each of them takes several batches.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from headspace._loops.replacing import replace
from headspace._loops.run_length import set_length
from headspace._session.own_errors import call_safely


def module_imported(name: str, module: ModuleType) -> None:
    """A module of a trainer has been imported."""
    if name == "transformers.trainer_callback":
        replace(module.CallbackHandler, "on_train_begin", _read_hugging_face)
    else:
        replace(module._FitLoop, "on_run_start", _read_lightning)


def _read_hugging_face(original: Any) -> Any:
    def on_train_begin(self: Any, args: Any, state: Any, *others: Any, **named: Any) -> Any:
        call_safely(_set_hugging_face_length, args)
        return original(self, args, state, *others, **named)

    return on_train_begin


def _set_hugging_face_length(args: Any) -> None:
    steps, epochs = args.max_steps, args.num_train_epochs
    batches = steps * args.gradient_accumulation_steps if steps > 0 else None
    # The number of epochs need not be whole. Then it is not a number of batches either before the first epoch.
    is_whole = batches is None and float(epochs).is_integer()
    set_length(int(epochs) if is_whole else None, batches)


def _read_lightning(original: Any) -> Any:
    def on_run_start(self: Any) -> Any:
        call_safely(_set_lightning_length, self)
        return original(self)

    return on_run_start


def _set_lightning_length(fit_loop: Any) -> None:
    steps = fit_loop.max_steps
    batches = steps * fit_loop.trainer.accumulate_grad_batches if steps > 0 else None
    # None or -1: without a limit.
    set_length(fit_loop.max_epochs, batches)
