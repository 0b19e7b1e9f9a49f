"""A loop of the records, from what its loader says of itself."""

from __future__ import annotations

from headspace import _native, _samples, _settings
from headspace._fingerprint import fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: How often each name was given.
_names: dict[str, int] = {}


def unique(name: str) -> str:
    """The name, with a number where it was given before."""
    _names[name] = _names.get(name, 0) + 1
    return name if _names[name] == 1 else f"{name}-{_names[name]}"


def loop_of(wrapped: Any, *, mode: str, batch_size: int | None, **options: Any) -> _native.Loop:
    """The loop over what is wrapped, with the options of `wrap`."""
    kind = type(wrapped)
    options.setdefault("chosen", options["name"] == _settings.chosen_loop())
    options.setdefault("options_from", _settings.options_from())
    workers = whole(wrapped, "num_workers")
    factor = whole(wrapped, "prefetch_factor")
    if batch_size is None:
        batch_size = size_of_batches(wrapped)
    return _native.Loop(
        mode=mode,
        fingerprint=fingerprint,
        type_name=f"{kind.__module__}.{kind.__qualname__}",
        batches=length(wrapped, mode),
        batch_size=batch_size,
        count_samples=_counter(wrapped) if batch_size is None else None,
        workers=workers,
        prefetch_depth=workers * factor if workers and factor else None,
        prefetch_factor=factor,
        pin_memory=truth(wrapped, "pin_memory"),
        world_size=_settings.world_size(),
        **options,
    )


def size_of_batches(wrapped: Any) -> int | None:
    """Samples a batch, as the loader says."""
    size = whole(wrapped, "batch_size")
    sampler = _batch_sampler(wrapped)
    if size is None and type(sampler).__module__.partition(".")[0] in ("torch", "accelerate"):
        # Another one may make batches of any size, whatever it says.
        size = whole(sampler, "batch_size")
        if size and truth(sampler, "split_batches"):
            size //= whole(sampler, "num_processes") or 1
    return size or None


def _batch_sampler(wrapped: Any) -> Any:
    return getattr(wrapped, "__dict__", {}).get("batch_sampler")


def _counter(wrapped: Any) -> Callable[[Any], int | None]:
    """Counts the samples of the loader's batches."""
    return _samples.of_any if _batch_sampler(wrapped) is None else _samples.of_collated


def whole(wrapped: Any, name: str) -> int | None:
    """A whole number among the loader's attributes. None where it has none, whatever it does."""
    try:
        value = getattr(wrapped, name, None)
    except Exception:
        return None
    return value if type(value) is int and 0 <= value < 2**31 else None


def truth(wrapped: Any, name: str) -> bool | None:
    """Whether an attribute of the loader is true. None where it has none, whatever it does."""
    try:
        value = getattr(wrapped, name, None)
    except Exception:
        return None
    return value if type(value) is bool else None


def length(wrapped: Any, mode: str) -> int | None:
    """Batches of an epoch. None where the loader does not say, and where asking has a price."""
    # Asking a torch loader over an iterable dataset for its length makes it count, and warn: only
    # where the length is needed.
    if mode != "replay" and getattr(wrapped, "_dataset_kind", 0) != 0:
        return None
    if getattr(type(wrapped), "__len__", None) is None:
        return None
    try:
        return len(wrapped)
    except Exception:
        return None
