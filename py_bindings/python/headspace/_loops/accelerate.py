"""Wraps the loaders that Accelerate makes from a wrapped loader, as the same loop.

Accelerate makes a loader of its own type in ``prepare`` and, to resume within an epoch, in
``skip_first_batches``. The new loader has no reference to the old one. So these two functions are
replaced wherever they are loaded. For a loader that is not wrapped they behave as before.
"""

from __future__ import annotations

from sys import modules

from headspace._loops.replacing import is_replaced, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Modules that hold the functions below.
_HOLDERS = (
    "accelerate",
    "accelerate.accelerator",
    "accelerate.data_loader",
    "transformers.trainer",
)
_FUNCTIONS = ("prepare_data_loader", "skip_first_batches")


def replace_functions(proxy: type, make_replacement: Callable[[Any, Any], Any]) -> None:
    """Wrap what Accelerate makes from a wrapped loader from now on.

    Args:
        proxy: The base class of wrapped loaders.
        make_replacement: Wraps the second loader as the first one is wrapped.
    """
    originals = modules.get("accelerate.data_loader")
    for name in _FUNCTIONS:
        original = getattr(originals, name, None)
        if original is None or is_replaced(original):
            continue
        replacement = mark(_wrapping_its_result(original, proxy, make_replacement), original)
        for holder in map(modules.get, _HOLDERS):
            if vars(holder or original).get(name) is original:
                setattr(holder, name, replacement)


def _wrapping_its_result(
    function: Callable[..., Any], proxy: type, make_replacement: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    def make_loader(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        if not issubclass(type(dataloader), proxy):
            return function(dataloader, *args, **kwargs)
        made = function(dataloader._headspace_wrapped, *args, **kwargs)
        return make_replacement(dataloader, made)

    return make_loader
