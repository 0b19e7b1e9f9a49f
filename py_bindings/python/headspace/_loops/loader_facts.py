"""Reads the facts about a loader from its attributes: batch size, length, workers, prefetching."""

from __future__ import annotations

from sys import modules

from headspace import _settings
from headspace._loops import sample_split, samples
from headspace._loops.attributes import own_attributes, read_attribute, type_name_of
from headspace._loops.batch_digest import digest_batch
from headspace._loops.batch_parts import count_bytes, count_parts
from headspace._loops.epochs import length_of
from headspace._loops.sent_parts import sent_to_new_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headspace import _native


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
    has_cheap_length = mode != _settings.MEASURE or not sample_split.is_stream(loader)
    workers = None if is_dataset else read_attribute(loader, "num_workers", int)
    factor = read_attribute(loader, "prefetch_factor", int)
    # Most batches that a torch loader holds ready. Without workers it holds none.
    prefetch_depth = 0 if workers == 0 else workers * factor if workers and factor else None
    is_collated = _batch_sampler(loader) is not None
    count_samples = samples.count_in_collated if is_collated else samples.count_in_any
    of_torch = torch_loader(loader)
    unsplit = sample_split.is_unsplit_stream(of_torch)
    return {
        "type_name": type_name_of(loader),
        "batches": length_of(loader) if has_cheap_length else None,
        "batch_size": batch_size,
        "count_samples": count_samples if batch_size is None else None,
        # A torch loader without workers reports the parts of its batches itself.
        "count_parts": None if workers == 0 else count_parts,
        "count_bytes": count_bytes,
        "digest_batch": digest_batch if _may_load_same(unsplit, workers) else None,
        "workers": workers,
        "prefetch_depth": prefetch_depth,
        "prefetch_factor": factor,
        "pin_memory": read_attribute(loader, "pin_memory", bool),
        "ranks_with_same_samples": sample_split.ranks_with_same_samples(of_torch),
        "unsplit_stream": unsplit,
        "split_twice": sample_split.is_split_twice(of_torch),
        "sent": sent_to_new_process(loader, of_torch, workers),
    }


def _may_load_same(is_unsplit_stream: bool, workers: int | None) -> bool:
    """Whether other ranks, or several worker processes, may load the same batches."""
    return _settings.world_size() > 1 or (is_unsplit_stream and (workers or 0) > 1)


def torch_loader(loader: Any) -> Any:
    """The torch loader that it is, or contains, as Accelerate's do. None for any other."""
    kind = getattr(modules.get("torch.utils.data"), "DataLoader", None)
    if kind is None:
        return None
    for candidate in (loader, own_attributes(loader).get("base_dataloader")):
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
    size = read_attribute(loader, "batch_size", int)
    sampler = _batch_sampler(loader)
    if size is None and type(sampler).__module__.partition(".")[0] in ("torch", "accelerate"):
        # A sampler of another library may make batches of any size, whatever its attribute says.
        size = read_attribute(sampler, "batch_size", int)
        if size and read_attribute(sampler, "split_batches", bool):
            size //= read_attribute(sampler, "num_processes", int) or 1
    return size or None


def _batch_sampler(loader: Any) -> Any:
    return own_attributes(loader).get("batch_sampler")
