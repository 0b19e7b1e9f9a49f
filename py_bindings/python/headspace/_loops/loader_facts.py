"""Reads the facts about a loader from its attributes: batch size, length, workers, prefetching."""

from __future__ import annotations

from sys import modules

from headspace import _settings
from headspace._loops import samples
from headspace._loops.epochs import length_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from headspace import _native

    T = TypeVar("T", bound=int)


def read_facts(loader: Any, mode: str, batch_size: int | None = None) -> _native._LoaderFacts:
    """The facts about a loader.

    Args:
        mode: The mode of its loop.
        batch_size: Samples per batch. By default the loader's own number.
    """
    is_dataset = _is_streaming_dataset(loader)
    if batch_size is None:
        batch_size = 1 if is_dataset else samples_per_batch(loader)
    # To find its length, a torch loader over an iterable dataset counts all samples.
    has_cheap_length = mode != _settings.MEASURE or getattr(loader, "_dataset_kind", 0) == 0
    workers = None if is_dataset else _attribute(loader, "num_workers", int)
    factor = _attribute(loader, "prefetch_factor", int)
    # Most batches that a torch loader holds ready. Without workers it holds none.
    prefetch_depth = 0 if workers == 0 else workers * factor if workers and factor else None
    is_collated = _batch_sampler(loader) is not None
    count_samples = samples.count_in_collated if is_collated else samples.count_in_any
    return {
        "type_name": type_name_of(loader),
        "batches": length_of(loader) if has_cheap_length else None,
        "batch_size": batch_size,
        "count_samples": count_samples if batch_size is None else None,
        "workers": workers,
        "prefetch_depth": prefetch_depth,
        "prefetch_factor": factor,
        "pin_memory": _attribute(loader, "pin_memory", bool),
        "ranks_with_same_samples": _ranks_with_same_samples(loader),
    }


def type_name_of(thing: Any) -> str:
    """The name of its type, with the module."""
    kind = public_type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def public_type(thing: Any) -> type:
    """Its type. For the private subclasses of Ray's `DataIterator`, this class."""
    kind = type(thing)
    is_private = str(kind.__module__).startswith("ray.data._internal.")
    return kind.__mro__[1] if is_private else kind


def torch_loader(loader: Any) -> Any:
    """The torch loader that it is, or contains, as Accelerate's do. None for any other."""
    kind = getattr(modules.get("torch.utils.data"), "DataLoader", None)
    if kind is None:
        return None
    for candidate in (loader, getattr(loader, "__dict__", {}).get("base_dataloader")):
        if issubclass(type(candidate), kind):
            return candidate
    return None


def _is_streaming_dataset(loader: Any) -> bool:
    """Whether it is a dataset of LitData or MosaicML Streaming, which gives single samples.

    Its batch size and number of workers are those of the torch loader that it is made for.
    """
    homes = ("litdata.", "streaming.base.")
    kinds = type(loader).__mro__
    return torch_loader(loader) is None and any(str(k.__module__).startswith(homes) for k in kinds)


def samples_per_batch(loader: Any) -> int | None:
    """Samples per batch, by the loader's attributes."""
    size = _attribute(loader, "batch_size", int)
    sampler = _batch_sampler(loader)
    if size is None and type(sampler).__module__.partition(".")[0] in ("torch", "accelerate"):
        # A sampler of another library may make batches of any size, whatever its attribute says.
        size = _attribute(sampler, "batch_size", int)
        if size and _attribute(sampler, "split_batches", bool):
            size //= _attribute(sampler, "num_processes", int) or 1
    return size or None


#: Dataset types that take all samples from another dataset, and keep the part of one rank.
_STREAM_SHARDS = {
    "accelerate.data_loader.IterableDatasetShard",
    "transformers.trainer_pt_utils.IterableDatasetShard",
}


def _ranks_with_same_samples(loader: Any) -> int | None:
    """The number of ranks that each load all samples of a stream, and then keep one part of them.

    This is so if the stream is split after its preprocessing, or if the number of its files is not a
    multiple of the number of ranks.
    """
    try:
        dataset = torch_loader(loader).dataset
    except Exception:  # No torch loader, or a user's property.
        return None
    ranks = None
    if type_name_of(dataset) in _STREAM_SHARDS:
        if getattr(getattr(dataset, "dataset", None), "_distributed", None) is not None:
            return None  # The stream is split twice: each rank loads other samples, and drops most of them.
        ranks = _attribute(dataset, "num_processes", int)
    elif type_name_of(dataset) == "datasets.iterable_dataset.IterableDataset":
        split = getattr(dataset, "_distributed", None)
        ranks = _attribute(split, "world_size", int)
        # Not the dataset's own `num_shards`: that is the number of files of this rank.
        files = _attribute(getattr(dataset, "_ex_iterable", None), "num_shards", int)
        strategy = getattr(split, "strategy", "auto")
        by_files = strategy == "shards" or (
            strategy == "auto" and files and files % (ranks or 1) == 0
        )
        if not files or by_files:
            return None
    return ranks if ranks and ranks > 1 else None


def _batch_sampler(loader: Any) -> Any:
    return getattr(loader, "__dict__", {}).get("batch_sampler")


def _attribute(owner: Any, name: str, kind: type[T]) -> T | None:
    """An attribute that is a bool, or a number that records can hold. None if it is missing, has another
    type, or raises."""
    try:
        value: Any = getattr(owner, name, None)
    except Exception:
        return None
    return value if type(value) is kind and 0 <= value < 2**31 else None
