"""A loop of the records, from what its loader says of itself."""

from __future__ import annotations

from sys import modules

from headspace import _native, _remade, _samples, _settings

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
    # A torch loader over an iterable dataset counts its samples to tell its length.
    asks = mode != "measure" or getattr(wrapped, "_dataset_kind", 0) == 0
    if batch_size is None:
        batch_size = size_of_batches(wrapped)
    return _native.Loop(
        mode=mode,
        type_name=f"{kind.__module__}.{kind.__qualname__}",
        batches=length(wrapped) if asks else None,
        batch_size=batch_size,
        count_samples=_counter(wrapped) if batch_size is None else None,
        workers=workers,
        prefetch_depth=_depth(workers, factor),
        prefetch_factor=factor,
        pin_memory=truth(wrapped, "pin_memory"),
        world_size=_settings.world_size(),
        **options,
    )


def _depth(workers: int | None, factor: int | None) -> int | None:
    """Batches that a torch loader may hold ready: without workers it loads when it is asked."""
    if workers == 0:
        return 0
    return workers * factor if workers and factor else None


def torch_loader(loader: Any) -> Any:
    """The torch loader that it is, or has within as Accelerate's do. None for any other."""
    kind = getattr(modules.get("torch.utils.data"), "DataLoader", None)
    if kind is None:
        return None
    for candidate in (loader, getattr(loader, "__dict__", {}).get("base_dataloader")):
        if issubclass(type(candidate), kind):
            return candidate
    return None


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


def epoch_of(
    loader: Any, keeps_length: bool, is_probe: bool
) -> tuple[Any, int | None, Callable[[bool], None] | None]:
    """What is to be known of an epoch that begins.

    Returns:
        The loader itself, where something stands in for it; the batches of the epoch, where its length is
        to be kept; and what is called if the epoch ends before its source does: with False as its last
        batch is handed out, with True as it ends.
    """
    say_length = length
    if hasattr(type(loader), "_headspace_loader"):
        say_length, loader = loader._headspace_length, loader._headspace_loader
    batches = say_length(loader) if keeps_length else None
    cut = _remade.cut_of(loader) if is_probe and batches else None
    return loader, batches or None, cut


#: Where a torch loader over an iterable dataset keeps the length that it was asked for: it warns if it
#: gives more than that.
_SAID = "_IterableDataset_len_called"


def length(loader: Any) -> int | None:
    """Batches of an epoch. None where the loader does not say."""
    if getattr(type(loader), "__len__", None) is None:
        return None
    attributes = getattr(loader, "__dict__", {})
    before = attributes.get(_SAID)
    try:
        return len(loader)
    except Exception:
        return None
    finally:
        if _SAID in attributes:
            attributes[_SAID] = before
