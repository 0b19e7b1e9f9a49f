"""Finds the length of a loader's epoch, and tells Accelerate's loaders that an epoch ends early."""

from __future__ import annotations

from _weakref import ref

from headspace._loops.attributes import own_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Attribute in which a torch loader over an iterable dataset stores the length that it returned. It warns
#: if it delivers more batches than that.
_LENGTH_GIVEN = "_IterableDataset_len_called"

#: Modules of LitData whose datasets must not be asked for their length: `len` changes the batch size of the
#: datasets that they contain.
_LENGTH_HAS_SIDE_EFFECTS = ("litdata.streaming.combined", "litdata.streaming.parallel")


def length_of(loader: Any) -> int | None:
    """Batches of an epoch. None if the loader has no length."""
    if getattr(type(loader), "__len__", None) is None:
        return None
    if any(kind.__module__ in _LENGTH_HAS_SIDE_EFFECTS for kind in type(loader).__mro__):
        return None
    attributes = own_attributes(loader)
    before = attributes.get(_LENGTH_GIVEN)
    try:
        return len(loader)
    except Exception:
        return None
    finally:
        if _LENGTH_GIVEN in attributes:
            attributes[_LENGTH_GIVEN] = before


def describe_epoch(
    loader: Any, keeps_length: bool, may_be_cut: bool
) -> tuple[Any, int | None, Callable[[bool], None] | None]:
    """The arguments of the native loop for a new epoch.

    Args:
        loader: What is iterated: a loader, or an object with the loader in `_headspace_loader`.
        keeps_length: Whether the epoch must have the loader's length.
        may_be_cut: Whether the source may have batches left when the epoch ends.

    Returns:
        The loader itself; the batches of the epoch, if it keeps the loader's length; and a function that
        is called if the epoch ends before its source does: with False when its last batch is delivered,
        with True when it ends.
    """
    get_length = length_of
    if hasattr(type(loader), "_headspace_loader"):
        get_length, loader = loader._headspace_length, loader._headspace_loader
    batches = get_length(loader) if keeps_length else None
    end_early = _accelerate_end(loader) if may_be_cut and batches else None
    return loader, batches or None, end_early


def _accelerate_end(loader: Any) -> Callable[[bool], None] | None:
    """A function that tells Accelerate's loader that an epoch ends before its source does; else None.

    Such a loader marks its last batch (``end_of_dataloader``), at which gradients are synchronised, and
    counts its epochs, which a shuffling sampler needs. Its code for that comes after the last batch.
    """
    if type(loader).__module__ != "accelerate.data_loader":
        return None
    weak_loader = ref(loader)

    def end_early(is_over: bool) -> None:
        shard: Any = weak_loader()
        if shard is None:
            return
        if not is_over:
            if shard.gradient_state.active_dataloader is not shard:
                shard.begin()  # The whole epoch was repeated batches: its own code did not run.
            shard.end_of_dataloader = True
            return
        shard.iteration += 1
        shard.end()

    return end_early
