"""Reads from a torch loader how its samples are split among the ranks."""

from __future__ import annotations

from headspace._loops.attributes import get_attribute, read_attribute, type_name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Dataset types that take all samples from another dataset, and keep the part of one rank.
_STREAM_SHARDS = {
    "accelerate.data_loader.IterableDatasetShard",
    "transformers.trainer_pt_utils.IterableDatasetShard",
}

#: The kind of a dataset that is a stream, in torch's loader.
_STREAM = 1

#: Libraries whose streams are split among torch's worker processes.
_SPLITTING_LIBRARIES = {"datasets", "litdata", "streaming", "torchdata", "webdataset"}

_BATCH_SHARD = "accelerate.data_loader.BatchSamplerShard"
"""Type of a batch sampler that keeps the batches of one rank."""


def ranks_with_same_samples(loader: Any) -> int | None:
    """The number of ranks that each load all samples of a stream, and then keep one part of them.

    This is so if the stream is split after its preprocessing, or if the number of its files is not a
    multiple of the number of ranks.
    """
    dataset = get_attribute(loader, "dataset")
    ranks = None
    if type_name_of(dataset) in _STREAM_SHARDS:
        if _ranks_of_inner_stream(dataset) == 1:
            ranks = read_attribute(dataset, "num_processes", int)
    elif type_name_of(dataset) == "datasets.iterable_dataset.IterableDataset":
        split = get_attribute(dataset, "_distributed")
        ranks = read_attribute(split, "world_size", int)
        # Not the dataset's own `num_shards`: that is the number of files of this rank.
        files = read_attribute(get_attribute(dataset, "_ex_iterable"), "num_shards", int)
        strategy = get_attribute(split, "strategy") or "auto"
        by_files = strategy == "shards" or (
            strategy == "auto" and files and files % (ranks or 1) == 0
        )
        if not files or by_files:
            return None
    return ranks if ranks and ranks > 1 else None


def is_stream(loader: Any) -> bool:
    """Whether it is a torch loader over an iterable dataset."""
    return read_attribute(loader, "_dataset_kind", int) == _STREAM


def is_unsplit_stream(loader: Any) -> bool:
    """Whether each worker process would load the whole stream, unless the dataset's own code prevents it.

    torch splits no stream among its workers. Datasets of libraries do so themselves.
    """
    if not is_stream(loader):
        return False
    dataset = get_attribute(loader, "dataset")
    if type_name_of(dataset) in _STREAM_SHARDS:
        # A shard is split among the workers if the dataset within it is.
        dataset = get_attribute(dataset, "dataset")
    kind = type(dataset)
    return str(kind.__module__).partition(".")[0] not in _SPLITTING_LIBRARIES


def is_split_twice(loader: Any) -> bool:
    """Whether each rank keeps its part of what is already its part, so that most samples are never used."""
    dataset = get_attribute(loader, "dataset")
    if type_name_of(dataset) in _STREAM_SHARDS:
        outer, inner_ranks = dataset, _ranks_of_inner_stream(dataset)
    else:
        outer = get_attribute(loader, "batch_sampler")
        if type_name_of(outer) != _BATCH_SHARD:
            return False
        sampler = get_attribute(get_attribute(outer, "batch_sampler"), "sampler")
        inner_ranks = read_attribute(sampler, "num_replicas", int) or 1
    outer_ranks = read_attribute(outer, "num_processes", int) or 1
    return min(outer_ranks, inner_ranks) > 1


def _ranks_of_inner_stream(shard: Any) -> int:
    """The number of ranks among which `split_dataset_by_node` splits the stream within a shard. 1 if it does not."""
    split = get_attribute(get_attribute(shard, "dataset"), "_distributed")
    return read_attribute(split, "world_size", int) or 1
