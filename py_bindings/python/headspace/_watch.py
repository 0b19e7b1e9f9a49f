"""Loaders that nobody wrapped: they are watched as the training loop iterates them.

Under `headspace run` the classes below have a method of theirs replaced by a thin one, which hands out
the original's iterator, watched, where the iteration is the outermost one of a process that trains;
else it is the original's call and nothing more. Types stay as they are.
"""

from __future__ import annotations

import sys
from _weakref import ref

from headspace import _guard, _loops, _nesting, _role, _session, _settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

#: By module: its classes, where each is defined, and the methods of each that begin an iteration.
#: A program may have modules of its own by such names.
LOADERS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "torch.utils.data": {"DataLoader": ("torch.", ("__iter__",))},
    "spdl.pipeline": {"Pipeline": ("spdl.", ("get_iterator",))},
    "spdl.dataloader": {
        "DataLoader": ("spdl.", ("__iter__",)),
        "PyTorchDataLoader": ("spdl.", ("__iter__",)),
        "CacheDataLoader": ("spdl.", ("__iter__",)),
    },
    "datasets": {
        "Dataset": ("datasets.arrow_dataset", ("__iter__", "iter")),
        "IterableDataset": ("datasets.iterable_dataset", ("__iter__", "iter")),
    },
    "webdataset": {"DataPipeline": ("webdataset.", ("__iter__",))},
    # Made from torch's only as they are made.
    "accelerate.data_loader": {
        "DataLoaderShard": ("accelerate.", ("__iter__",)),
        "DataLoaderDispatcher": ("accelerate.", ("__iter__",)),
        "SkipDataLoader": ("accelerate.", ("__iter__",)),
    },
    # An older Grain has its classes in `grain.python` only.
    "grain": {
        "DataLoader": ("grain.", ("__iter__",)),
        "MapDataset": ("grain.", ("__iter__",)),
        "IterDataset": ("grain.", ("__iter__",)),
    },
    "grain.python": {
        "DataLoader": ("grain.", ("__iter__",)),
        "MapDataset": ("grain.", ("__iter__",)),
        "IterDataset": ("grain.", ("__iter__",)),
    },
    "fastai.data.load": {"DataLoader": ("fastai.", ("__iter__",))},
    "monai.data": {
        "ThreadBuffer": ("monai.", ("__iter__",)),
        "ThreadDataLoader": ("monai.", ("__iter__",)),
    },
}

#: SPDL's loaders in other processes are of a class that it keeps to itself.
_SPDL_APART = ("spdl.pipeline._iter_utils._subprocess", "_SubprocessIterable")


def ready(name: str, module: ModuleType) -> None:
    """A module with loaders has been imported."""
    if name == "torch.nn.modules.module":
        _role.adopt(vars(module)["Module"])
        _role.on_train[:] = [_reconsider]
        return
    for kind, (home, methods) in LOADERS[name].items():
        found = getattr(module, kind, None)
        if str(getattr(found, "__module__", "")).startswith(home):
            for method in methods:
                adopt(found, method)
    if name == "spdl.pipeline":
        adopt(getattr(sys.modules.get(_SPDL_APART[0]), _SPDL_APART[1], None), "__iter__")
        from headspace import spdl

        spdl.install()


def adopt(kind: Any, method: str) -> None:
    """Watches what that method of a class, and of those made from it, gives out."""
    if kind is None:
        return
    if method in vars(kind):
        _replace(kind, method)
    for made in kind.__subclasses__():
        adopt(made, method)
    _follow(kind, method)


def _follow(kind: Any, method: str) -> None:
    """Classes that are made from it later are watched too."""
    own = vars(kind).get("__init_subclass__")
    if hasattr(getattr(own, "__func__", None), "_headspace_original"):
        methods = own.__func__._headspace_methods
        methods.add(method)
        return
    methods = {method}

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
        if own is None:
            super(kind, cls).__init_subclass__(**kwargs)
        else:
            own.__func__(cls, **kwargs)
        for method in methods & vars(cls).keys():
            _guard.quietly(_replace, cls, method)

    __init_subclass__._headspace_original = own  # type: ignore[attr-defined]
    __init_subclass__._headspace_methods = methods  # type: ignore[attr-defined]
    kind.__init_subclass__ = classmethod(__init_subclass__)


def _replace(kind: Any, method: str) -> None:
    original = vars(kind)[method]
    if hasattr(original, "_headspace_original"):
        return
    from functools import wraps

    @wraps(original)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = _guard.quietly(_loop_of, self)
        if known is None:
            stages = _guard.quietly(_stages_of, self)
            if stages is None:
                return original(self, *args, **kwargs)
            return stages(_Source(self, original, args, kwargs))
        source = _Source(self, original, args, kwargs)
        iterator = _nesting.make(known.loop, known.iterate, source)
        known.last = _weak(iterator)
        return iterator

    watched._headspace_original = original  # type: ignore[attr-defined]
    setattr(kind, method, watched)


class _Source:
    """A loader as it is to be iterated: by the original's method. Else it is as the loader."""

    __slots__ = ("_headspace_call", "_headspace_loader")

    def __init__(self, loader: Any, original: Any, args: Any, kwargs: Any) -> None:
        object.__setattr__(self, "_headspace_call", (original, args, kwargs))
        object.__setattr__(self, "_headspace_loader", loader)

    def __iter__(self) -> Iterator[Any]:
        original, args, kwargs = self._headspace_call
        iterator: Iterator[Any] = original(self._headspace_loader, *args, **kwargs)
        return iterator

    def _headspace_length(self, loader: Any) -> int | None:
        """Batches of this iteration, where that is known."""
        original, args, kwargs = self._headspace_call
        length = _loops.length(loader)
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


class _Known:
    """A loop: a loader in one role, or several one after another at one place of the program."""

    __slots__ = ("dataset", "is_likely", "last", "loader", "loop", "mode", "role")

    def __init__(self, loader: Any, name: str, role: str | None) -> None:
        chosen = _settings.chosen_loop()
        probes = role in (None, _role.TRAINING) if chosen is None else name == chosen
        mode = _settings.mode() if probes else "measure"
        options = _settings.loop_options()
        if mode == "replay" and options["stop_after"] is None and _loops.length(loader) is None:
            # Without an end of its own, an epoch of cached batches would have none.
            _guard.say(
                f"`{name}` has no length, so its batches are not replayed, only measured (set one "
                "with `--stop-after N`)"
            )
            mode = "measure"
        self.loop = _loops.loop_of(
            loader,
            mode=mode,
            name=name,
            batch_size=None,
            role=role,
            **options,
        )
        self.mode = mode
        self.role = role
        #: What it is for may still turn out: the models seem to evaluate, or no mode was set yet.
        self.is_likely = role is None or (role == _role.EVALUATION and not _role.is_sure())
        self.last: Callable[[], Any] = _nothing
        self.loader: Callable[[], Any]
        self.dataset: Callable[[], Any]
        self.take(loader)

    def take(self, loader: Any) -> None:
        """From now on it is the loop of this loader."""
        self.loader = _weak(loader)
        self.dataset = _weak(_dataset(loader))

    def iterate(self, source: _Source) -> Any:
        loader = _loops.torch_loader(source._headspace_loader)
        if loader is None:
            return self.loop.iterate(source, _session._begin)
        from headspace.torch import iterate

        return iterate(self.loop, source, loader)

    def is_of(self, loader: Any) -> bool:
        return self.loader() is loader

    def goes_on_with(self, loader: Any, role: str | None) -> bool:
        """Whether a loader that is new, at the place where this loop's was iterated, is its next epoch."""
        if not getattr(self.last(), "_headspace_has_ended", True):
            return False  # Both are iterated at once.
        dataset = _dataset(loader)
        if dataset is not None and self.dataset() is dataset:
            return True
        if self.role != role:
            return False
        # Whoever made the loader may keep it. In a probe batches of one would be replayed in the other.
        is_measured = self.mode == "measure" and role in (_role.TRAINING, _role.EVALUATION)
        return is_measured or self.loader() is None


def _stages_of(loader: Any) -> Callable[[_Source], Any] | None:
    """What iterates a torch loader within another loader that is watched, so that its stages are told.
    None for anything else."""
    inner = _loops.torch_loader(loader)
    enclosing = _nesting.enclosing()
    if (
        inner is None
        or enclosing is None
        or not _settings.enabled()
        or "_get_iterator" in vars(inner)
        or _guard.is_worker()
    ):
        return None
    from headspace.torch import iterate

    unwatched: Any = _Within(enclosing)
    return lambda source: iterate(unwatched, source, inner)


class _Within:
    """In the place of a loop, for a loader within another one: its iterator is its own, and its stages are
    those of the loop around it."""

    __slots__ = ("name", "type_name")

    def __init__(self, enclosing: _nesting.Enclosing) -> None:
        self.name = enclosing.name
        self.type_name = enclosing.type_name

    @staticmethod
    def iterate(loader: Any, _session: Any, _role: Any) -> Any:
        return iter(loader)


def _nothing() -> None:
    return None


def _weak(anything: Any) -> Callable[[], Any]:
    try:
        return ref(anything)
    except TypeError:
        return _nothing


def _dataset(loader: Any) -> Any:
    """What a torch loader loads. None where it is something else, or is not told."""
    inner = _loops.torch_loader(loader)
    return None if inner is None else getattr(inner, "dataset", None)


#: Loops by loader and role, and by where a loader of that type was last iterated in that role.
_of_loader: dict[tuple[int, str | None], _Known] = {}
_of_place: dict[tuple[tuple[object, ...], str | None], _Known] = {}

#: Whether a model was in training mode while a loader was iterated.
_has_trained = False

#: Loaders after which those that are gone are forgotten.
_REMEMBERED = 64


def _loop_of(loader: Any) -> _Known | None:
    """The loop that this iteration is an epoch of. None where it is no training loop's."""
    global _has_trained
    if not _settings.enabled() or _nesting.is_within() or _guard.is_worker():
        return None
    role = _role.here()
    _has_trained = _has_trained or role == _role.TRAINING
    roles = [role]
    if role == _role.EVALUATION:
        if not _role.is_sure():
            # Some trainers set the mode once they have a batch.
            roles = [_role.TRAINING, None, role]
        _nesting.interrupt()
    for one in roles:
        known = _of_loader.get((id(loader), one))
        if known is not None and known.is_of(loader):
            return known
    # This function, `_guard.quietly`, the watched method: then whoever iterates.
    place = _place(loader, sys._getframe(3))
    for one in roles:
        known = _of_place.get((place, one))
        if known is not None and known.goes_on_with(loader, role):
            known.take(loader)
            break
    else:
        known = _Known(loader, _loops.unique(_name(loader, role)), role)
    if len(_of_loader) >= _REMEMBERED:
        for gone in [key for key, known in _of_loader.items() if known.loader() is None]:
            del _of_loader[gone]
    _of_loader[id(loader), known.role] = known
    _of_place[place, known.role] = known
    return known


def _name(loader: Any, role: str | None) -> str:
    name = type(loader).__name__.lstrip("_")
    # What seems to evaluate before anything has trained may be the training.
    if role == _role.EVALUATION and (_has_trained or _role.is_sure()):
        return f"{name} (evaluation)"
    return name


def _reconsider() -> None:
    """A model goes into training mode: what is iterated meanwhile trains, whatever it seemed."""
    global _has_trained
    for key, known in list(_of_loader.items()):
        iterator = known.last() if known.is_likely else None
        if iterator is None or getattr(iterator, "_headspace_has_ended", True):
            continue
        known.is_likely = False
        known.role = _role.TRAINING
        _has_trained = True
        iterator._headspace_trains()
        del _of_loader[key]
        _of_loader[key[0], _role.TRAINING] = known
        for place in [place for place, other in _of_place.items() if other is known]:
            del _of_place[place]
            _of_place[place[0], _role.TRAINING] = known


def _place(loader: Any, frame: Any) -> tuple[object, ...]:
    return type(loader), frame.f_code, frame.f_lineno
