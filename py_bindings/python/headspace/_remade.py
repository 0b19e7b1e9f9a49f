"""Loaders that frameworks make from a wrapped one: they are wrapped, too, and the same loop.

Lightning puts a sampler of its own into a loader: it reads the arguments of ``loader.__init__`` and
calls ``type(loader)``. Accelerate makes a loader of a type of its own, in ``prepare`` and, to resume
within an epoch, in ``skip_first_batches``. Nothing that it makes knows of the loader that it came
from, so these two functions are taken into ours where it is loaded; for any other loader they do
what they did.
"""

from __future__ import annotations

from _weakref import ref
from sys import modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace._wrap import Proxy

#: Where Accelerate's functions are called from.
_CALLERS = (
    "accelerate",
    "accelerate.accelerator",
    "accelerate.data_loader",
    "transformers.trainer",
)
_FUNCTIONS = ("prepare_data_loader", "skip_first_batches")

#: What is asked of a loader that Accelerate is about to prepare.
ACCELERATE_ASKS = "_is_accelerate_prepared"


class Kind(type):
    """The type of proxies' types. Called, a type makes what the wrapped type would make."""

    _headspace_kind: Callable[..., Any]
    #: The proxy that is being made anew.
    _headspace_model: ref[Proxy] | None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls._headspace_kind(*args, **kwargs)
        asked, cls._headspace_model = cls._headspace_model, None
        model = None if asked is None else asked()
        return made if model is None else _again(model, made)


class Init:
    """``loader.__init__``: the wrapped loader's."""

    def __get__(self, proxy: Proxy | None, kind: Kind) -> Any:
        if proxy is None:
            return object.__init__
        kind._headspace_model = ref(proxy)
        return proxy._headspace_wrapped.__init__


def _again(model: Proxy, made: Any) -> Any:
    """``made``, in the place of what the model wraps."""
    from headspace._wrap import follow

    return follow(model, made)


def adopt() -> None:
    """What Accelerate makes from a wrapped loader from now on is wrapped."""
    originals = modules.get("accelerate.data_loader")
    for name in _FUNCTIONS:
        original = getattr(originals, name, None)
        if original is None or hasattr(original, "_headspace_original"):
            continue
        ours = _following(original)
        for caller in map(modules.get, _CALLERS):
            if vars(caller or original).get(name) is original:
                setattr(caller, name, ours)


def _following(function: Callable[..., Any]) -> Callable[..., Any]:
    from functools import wraps

    from headspace._wrap import Proxy

    @wraps(function)
    def made(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        if not issubclass(type(dataloader), Proxy):
            return function(dataloader, *args, **kwargs)
        return _again(dataloader, function(dataloader._headspace_wrapped, *args, **kwargs))

    made._headspace_original = function  # type: ignore[attr-defined]
    return made


def cut_of(loader: Any) -> Callable[[bool], None] | None:
    """What tells a loader of Accelerate's that an epoch ends before its source does. None for any other.

    Such a loader marks its last batch (``end_of_dataloader``), at which gradients are synchronised, and
    counts its epochs, which a shuffling sampler needs. Its code for that comes after the last batch.
    """
    if type(loader).__module__ != "accelerate.data_loader":
        return None
    known = ref(loader)

    def cut(is_over: bool) -> None:
        shard: Any = known()
        if shard is None:
            return
        if not is_over:
            if shard.gradient_state.active_dataloader is not shard:
                shard.begin()  # All of the epoch was repeated: its own code did not run.
            shard.end_of_dataloader = True
            return
        shard.iteration += 1
        shard.end()

    return cut
