"""Watches unwrapped loaders: replaces the methods that begin their iteration.

Under `headspace run` thin wrappers replace these methods of the classes below. If the iteration is the
outermost one of a process that trains, the wrapper returns the original's iterator, recorded. Otherwise
it only calls the original. Types stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from headspace import _settings
from headspace._loops import nesting, observe_torch
from headspace._loops.epochs import length_of
from headspace._loops.loader_facts import torch_loader
from headspace._loops.replacing import is_replaced, replace
from headspace._processes.worker import is_worker
from headspace._session.own_errors import call_safely
from headspace._watch.find_loop import find_loop, reconsider_roles

#: By module: its classes that are loaders.
LOADERS: dict[str, tuple[str, ...]] = {
    "torch.utils.data": ("DataLoader",),
    "spdl.pipeline": ("Pipeline",),
    "spdl.dataloader": ("DataLoader", "PyTorchDataLoader", "CacheDataLoader"),
    "datasets": ("Dataset", "IterableDataset"),
    "webdataset": ("DataPipeline",),
    # The loaders of these two are torch's. Their datasets can also be iterated directly.
    "litdata": ("StreamingDataset", "CombinedStreamingDataset", "ParallelStreamingDataset"),
    "streaming": ("StreamingDataset",),
    # Their base class is torch's only once one of them has been made.
    "accelerate.data_loader": ("DataLoaderShard", "DataLoaderDispatcher", "SkipDataLoader"),
    # An older Grain has its classes in `grain.python` only.
    "grain": ("DataLoader", "MapDataset", "IterDataset"),
    "grain.python": ("DataLoader", "MapDataset", "IterDataset"),
    "fastai.data.load": ("DataLoader",),
    "monai.data": ("ThreadBuffer", "ThreadDataLoader"),
}

#: By module: the methods of its loaders that begin an iteration, where that is not only `__iter__`.
_METHODS = {"spdl.pipeline": ("get_iterator",), "datasets": ("__iter__", "iter")}

#: By module: where its loaders are defined, if not below the first part of its name. That is checked,
#: since a program may have a module of its own with such a name.
_HOMES: dict[str, str | tuple[str, ...]] = {
    "datasets": ("datasets.arrow_dataset", "datasets.iterable_dataset"),
    "streaming": "streaming.base.",
}

#: SPDL's loaders in other processes are of a private class.
_SPDL_SUBPROCESS = ("spdl.pipeline._iter_utils._subprocess", "_SubprocessIterable")


def module_imported(name: str, module: ModuleType) -> None:
    """A module with loaders, or the one with `torch.nn.Module`, has been imported."""
    if name == "torch.nn.modules.module":
        observe_torch.watch_modes(vars(module)["Module"])
        observe_torch.on_train[:] = [reconsider_roles]
        return
    home = _HOMES.get(name, f"{name.partition('.')[0]}.")
    for class_name in LOADERS[name]:
        kind = getattr(module, class_name, None)
        if str(getattr(kind, "__module__", "")).startswith(home):
            for method in _METHODS.get(name, ("__iter__",)):
                watch_method(kind, method)
    if name == "spdl.pipeline":
        module_name, class_name = _SPDL_SUBPROCESS
        watch_method(getattr(sys.modules.get(module_name), class_name, None), "__iter__")
        from headspace import spdl

        spdl.install()


def watch_method(kind: Any, method: str) -> None:
    """Replaces a method of a class, and of its subclasses, by one that watches the iteration."""
    if kind is None:
        return
    if method in vars(kind):
        replace(kind, method, _watch_calls)
    for subclass in kind.__subclasses__():
        watch_method(subclass, method)
    _watch_later_subclasses(kind, method)


def _watch_later_subclasses(kind: Any, method: str) -> None:
    own = vars(kind).get("__init_subclass__")
    if is_replaced(getattr(own, "__func__", None)):
        own.__func__._headspace_methods.add(method)
        return
    methods = {method}

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
        if own is None:
            super(kind, cls).__init_subclass__(**kwargs)
        else:
            own.__func__(cls, **kwargs)
        for method in methods & vars(cls).keys():
            call_safely(replace, cls, method, _watch_calls)

    __init_subclass__._headspace_original = own  # type: ignore[attr-defined]
    __init_subclass__._headspace_methods = methods  # type: ignore[attr-defined]
    kind.__init_subclass__ = classmethod(__init_subclass__)


def _watch_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    def iterate(self: Any, *args: Any, **kwargs: Any) -> Any:
        loop = call_safely(find_loop, self)
        if loop is not None:
            return loop.begin_epoch(_OriginalIteration(self, original, args, kwargs), self)
        inner = call_safely(_iteration_of_inner_loader, self)
        if inner is not None:
            return inner(_OriginalIteration(self, original, args, kwargs))
        return original(self, *args, **kwargs)

    return iterate


class _OriginalIteration:
    """Stands for a loader: its iterator is what the original method gives, all else is the loader's."""

    __slots__ = ("_headspace_call", "_headspace_loader")

    def __init__(self, loader: Any, original: Any, args: Any, kwargs: Any) -> None:
        object.__setattr__(self, "_headspace_call", (original, args, kwargs))
        object.__setattr__(self, "_headspace_loader", loader)

    def __iter__(self) -> Iterator[Any]:
        original, args, kwargs = self._headspace_call
        iterator: Iterator[Any] = original(self._headspace_loader, *args, **kwargs)
        return iterator

    def _headspace_length(self, loader: Any) -> int | None:
        """Batches of this iteration, if that is known."""
        original, args, kwargs = self._headspace_call
        length = length_of(loader)
        if original.__name__ != "iter" or length is None:
            return length
        # `datasets.Dataset.iter(batch_size, drop_last_batch=False)`: its length is in samples.
        size = kwargs.get("batch_size", args[0] if args else 0)
        drops_last = kwargs.get("drop_last_batch", args[1] if len(args) > 1 else False)
        if type(size) is not int or size < 1:
            return None
        return length // size if drops_last else -(-length // size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._headspace_loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._headspace_loader, name, value)


def _iteration_of_inner_loader(loader: Any) -> Callable[[_OriginalIteration], Any] | None:
    """For a torch loader inside a watched one: what iterates it so that its stages are recorded, but not
    its batches. None for anything else."""
    inner = torch_loader(loader)
    enclosing = nesting.enclosing_loop()
    is_own = inner is None or "_get_iterator" in vars(inner)
    if is_own or enclosing is None or not _settings.enabled() or is_worker():
        return None
    from headspace.torch import iterate

    return lambda source: iterate(enclosing, source, inner)
