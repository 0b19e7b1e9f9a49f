"""Wrapping a loader so that nobody notices."""

from __future__ import annotations

from _weakref import ref

from headspace import _loops, _nesting, _remade, _role, _session, _settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from headspace import _native

    T = TypeVar("T")

#: Special methods are looked up on the type, so a proxy has those that the wrapped type has.
_FORWARDED = (
    "__len__",
    "__length_hint__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__contains__",
    "__reversed__",
    "__call__",
    "__bool__",
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__aiter__",
    "__anext__",
    "__await__",
    "__add__",
    "__radd__",
    "__mul__",
    "__rmul__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__eq__",
    "__ne__",
    "__fspath__",
)

_proxy_types: dict[tuple[type, type], type] = {}

#: The loops of earlier calls of `wrap`, by what was wrapped and asked for.
_earlier: dict[tuple[object, ...], _Earlier] = {}


class Proxy(metaclass=_remade.Kind):
    """Behaves as the object it wraps, but for being timed while it is iterated.

    Its own attributes begin with ``_headspace_``; every other is the wrapped object's.
    """

    __slots__ = (
        "__weakref__",
        "_headspace_iterator",
        "_headspace_loop",
        "_headspace_options",
        "_headspace_was_iterated",
        "_headspace_wrapped",
    )

    _headspace_wrapped: Any
    _headspace_options: dict[str, Any]
    _headspace_loop: _Loops
    _headspace_iterator: Any
    #: Or another loader that was made from it.
    _headspace_was_iterated: bool

    __init__: Any = _remade.Init()

    def __iter__(self) -> Any:
        object.__setattr__(self, "_headspace_was_iterated", True)
        if not hasattr(type(self._headspace_wrapped), "__next__"):
            return _iterate(self)
        # An iterator has one iteration, whoever takes part in it.
        if self._headspace_iterator is None:
            iterator = _iterate(self)
            object.__setattr__(self, "_headspace_iterator", iterator)
        return self._headspace_iterator

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "throw", "close") and hasattr(
            type(self._headspace_wrapped), "__next__"
        ):
            return getattr(iter(self), name)
        if name == _remade.ACCELERATE_ASKS:
            _remade.adopt()
        return getattr(self._headspace_wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._headspace_wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._headspace_wrapped, name)

    @property
    def __class__(self) -> Any:
        return self._headspace_wrapped.__class__

    @__class__.setter
    def __class__(self, value: type) -> None:
        self._headspace_wrapped.__class__ = value

    def __dir__(self) -> list[str]:
        return dir(self._headspace_wrapped)

    def __repr__(self) -> str:
        return repr(self._headspace_wrapped)

    def __str__(self) -> str:
        return str(self._headspace_wrapped)

    def __format__(self, spec: str) -> str:
        return format(self._headspace_wrapped, spec)

    def __hash__(self) -> int:
        return hash(self._headspace_wrapped)

    def __copy__(self) -> Any:
        from copy import copy

        return _rebuild(copy(self._headspace_wrapped), self._headspace_options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self._headspace_wrapped, self._headspace_options)


def _iterate(proxy: Proxy) -> Any:
    wrapped = proxy._headspace_wrapped
    loop, role = proxy._headspace_loop.begin(wrapped)
    loader = _loops.torch_loader(wrapped)
    if loader is not None:
        from headspace.torch import iterate

        return _nesting.make(loop, iterate, loop, wrapped, loader, role)
    return _nesting.make(loop, loop.iterate, wrapped, _session._begin, role)


class _Loops:
    """The loop of a wrapped loader; a second one where it is iterated for training and evaluation."""

    __slots__ = ("_evaluates", "_evaluation", "_options", "main")

    def __init__(self, wrapped: Any, options: dict[str, Any]) -> None:
        self.main = _loops.loop_of(wrapped, **options)
        self._options = options
        #: What the first loop is iterated for. None before that.
        self._evaluates: bool | None = None
        self._evaluation: _native.Loop | None = None

    def begin(self, wrapped: Any) -> tuple[_native.Loop, str | None]:
        """The loop that an epoch which begins now belongs to, and what it is for."""
        role = _role.here()
        if role == _role.EVALUATION and not _role.is_sure():
            role = None  # Some trainers set the mode once they have a batch.
        if role != _role.EVALUATION:
            # Whoever wraps a loader that a thread beside the main one iterates means that loop.
            role = None if role == _role.BACKGROUND else role
            if self._evaluates:
                # So far it was used to evaluate: from now on that loop is the other one.
                self._evaluation = self.main
                name = _loops.unique(f"{self.main.name} (training)")
                self._options = {**self._options, "name": name}
                self.main = _loops.loop_of(wrapped, **self._options)
            self._evaluates = False
            return self.main, role
        _nesting.interrupt()
        if self._evaluates is None:
            self._evaluates = True
        if self._evaluates:
            return self.main, role
        if self._evaluation is None:
            name = _loops.unique(f"{self.main.name} (evaluation)")
            other = {**self._options, "mode": "measure", "name": name}
            self._evaluation = _loops.loop_of(wrapped, **other)
        return self._evaluation, role


def follow(model: Proxy, made: Any) -> Any:
    """Wraps what was made from what the model wraps, as the same loop."""
    if not model._headspace_was_iterated:
        # Its length and its batches are another loader's.
        object.__setattr__(model, "_headspace_loop", _Loops(made, model._headspace_options))
        object.__setattr__(model, "_headspace_was_iterated", True)
    return _proxied(made, model._headspace_options, model._headspace_loop)


def _rebuild(wrapped: Any, options: dict[str, Any]) -> Any:
    return _proxied(wrapped, options) if _settings.enabled() else wrapped


def _proxied(wrapped: Any, options: dict[str, Any], loop: _Loops | None = None) -> Any:
    kind = type(wrapped)
    proxy_type = _proxy_types.get((Proxy, kind))
    if proxy_type is None:
        members = {name: _forward(name) for name in _FORWARDED if _defines(kind, name)}
        if hasattr(kind, "__next__"):
            members["__next__"] = _next
        if _defines(kind, "__enter__"):
            members["__enter__"] = _enter
        members["__slots__"] = ()
        if getattr(kind, "__hash__", None) is None:
            members["__hash__"] = None
        elif "__eq__" in members:
            members["__hash__"] = Proxy.__hash__
        members |= {"_headspace_kind": kind, "_headspace_model": None}
        proxy_type = _remade.Kind(kind.__name__, (Proxy,), members)
        _proxy_types[Proxy, kind] = proxy_type
    proxy: Any = object.__new__(proxy_type)
    for name, value in (
        ("wrapped", wrapped),
        ("options", options),
        ("loop", _Loops(wrapped, options) if loop is None else loop),
        ("iterator", None),
        ("was_iterated", False),
    ):
        object.__setattr__(proxy, f"_headspace_{name}", value)
    return proxy


def _defines(kind: type, name: str) -> bool:
    """Whether instances have that special method. What every object has does not count."""
    # Not `getattr`: for a type without `__call__` it finds that of the type's own type.
    for base in kind.__mro__:
        if name in vars(base):
            return base is not object and vars(base)[name] is not None
    return False


def _forward(name: str) -> Any:
    def method(self: Proxy, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._headspace_wrapped, name)(*args, **kwargs)

    method.__name__ = name
    return method


def _next(self: Proxy) -> Any:
    return next(iter(self))


def _enter(self: Proxy) -> Any:
    entered = self._headspace_wrapped.__enter__()
    return self if entered is self._headspace_wrapped else entered


def wrap(
    iterable: T,
    *,
    mode: str | None = None,
    name: str | None = None,
    batch_size: int | None = None,
    num_caches: int | None = None,
    return_caches_after: int | None = None,
    stop_after: int | None = None,
    probe_steps: int | None = None,
    stop_after_probe: bool | None = None,
    exactly_once: bool | None = None,
) -> T:
    """Time an iterable of batches without changing it.

        loader = headspace.wrap(loader)

    The result behaves as what it wraps: same batches, same order, same attributes, same type to
    ``isinstance``. With ``HEADSPACE=0`` it *is* what it wraps.

    Args:
        iterable: A torch ``DataLoader``, an SPDL pipeline, a generator, a list.
        mode: ``"measure"`` watches. ``"probe"`` also alternates windows of live and cached
            batches until it knows the floor, then goes on live. ``"replay"`` goes over to cached
            batches for good. By default ``HEADSPACE_MODE``, else ``"measure"``.
        name: The loop's name in the records. By default the type's. What is wrapped by one name
            after another, as a generator is for each epoch, is one loop.
        batch_size: Samples a batch, for throughput. By default the loader's own ``batch_size``.
        num_caches: Batches that a probe or a replay repeats. By default ``HEADSPACE_NUM_CACHES``, else 10.
        return_caches_after: Live batches before a replay. By default
            ``HEADSPACE_RETURN_CACHES_AFTER``, else 100.
        stop_after: Batches after which an epoch of a replay ends. By default the source's length,
            where it has one. By default ``HEADSPACE_STOP_AFTER``.
        probe_steps: Most steps that a probe may take. Fewer give a wider interval, or no number. By
            default ``HEADSPACE_PROBE_STEPS``, else at most 2400.
        stop_after_probe: End the epoch, and every later one, once the probe is done. By default
            ``HEADSPACE_STOP_AFTER_PROBE``, else no.
        exactly_once: In a probe, deliver every batch of the source once and in order, so that an epoch
            with repeated batches is longer than ``len(loader)``. By default
            ``HEADSPACE_EXACTLY_ONCE``, else no: an epoch keeps its length, repeated batches take the
            place of live ones, and the source's last batches are left out. A loader without a length
            always delivers all.

    Raises:
        TypeError: If ``iterable`` cannot be iterated.
        ValueError: If ``mode`` is none of the three, or the numbers make no sense together.
    """
    if not _settings.enabled():
        return iterable
    wrapped: Any = iterable
    if issubclass(type(wrapped), Proxy):
        wrapped = wrapped._headspace_wrapped  # Wrapped twice is timed once.
    if type(wrapped).__module__ == "accelerate.data_loader":
        _remade.adopt()
    if not (hasattr(type(wrapped), "__iter__") or hasattr(type(wrapped), "__getitem__")):
        raise TypeError(
            f"`wrap` takes something that can be iterated, not `{type(wrapped).__name__}`"
        )
    for what, count in (("batch_size", batch_size), ("probe_steps", probe_steps)):
        if count is not None and (type(count) is not int or count < 1):
            raise ValueError(f"`{what}` is not a positive whole number: {count!r}")
    # A setting never contradicts an argument: only arguments may be refused.
    if return_caches_after is None:
        return_caches_after = _settings.return_caches_after()
        if num_caches is not None:
            return_caches_after = max(return_caches_after, num_caches)
    if num_caches is None:
        num_caches = min(_settings.num_caches(), max(return_caches_after, 1))
    if stop_after is None and (setting := _settings.stop_after()) is not None:
        stop_after = max(setting, return_caches_after)
    options: dict[str, Any] = {
        "mode": _settings.mode() if mode is None else mode,
        "name": type(wrapped).__name__ if name is None else name,
        "batch_size": batch_size,
        "num_caches": num_caches,
        "return_caches_after": return_caches_after,
        "stop_after": stop_after,
        "probe_steps": _settings.probe_steps() if probe_steps is None else probe_steps,
        "stop_after_probe": (
            _settings.stops_after_probe() if stop_after_probe is None else stop_after_probe
        ),
        "exactly_once": _settings.exactly_once() if exactly_once is None else exactly_once,
        "options_from": _settings.options_from(mode),
    }
    key = (id(wrapped) if name is None else None, *options.values())
    earlier = _earlier.get(key)
    if earlier is not None and earlier.goes_on_with(wrapped):
        proxy: T = _proxied(wrapped, earlier.options, earlier.loop_of_this_run())
    else:
        options["name"] = _loops.unique(options["name"])
        proxy = _proxied(wrapped, options)
    # Cached batches would be held for as long as the loop is remembered; a probe ends.
    if options["mode"] == "measure" or (options["mode"] == "probe" and name is None):
        _remember(key, proxy, is_named=name is not None)
    return proxy


class _Earlier:
    """What an earlier call of `wrap` made.

    A loader that is wrapped anew for each epoch is one loop of many epochs, not many of one. It is
    known by the name it was given, else by being the same object.
    """

    __slots__ = ("ended", "loop", "options", "proxy", "wrapped")

    def __init__(self, proxy: Any, wrapped: ref[Any] | None) -> None:
        self.options: dict[str, Any] = proxy._headspace_options
        self.loop: _Loops = proxy._headspace_loop
        self.proxy = ref(proxy)
        #: None where the name decides.
        self.wrapped = wrapped
        #: Sessions that had ended.
        self.ended = _session.ended

    def goes_on_with(self, wrapped: Any) -> bool:
        if self.wrapped is not None:
            return self.wrapped() is wrapped
        proxy = self.proxy()
        return proxy is None or proxy._headspace_wrapped is wrapped

    def loop_of_this_run(self) -> _Loops | None:
        """None where a run has ended since that named another loader so: of its own facts, none hold."""
        is_known = self.wrapped is not None or self.ended == _session.ended
        return self.loop if is_known else None


def _remember(key: tuple[object, ...], proxy: Any, *, is_named: bool) -> None:
    wrapped: ref[Any] | None = None
    if not is_named:
        forget = _earlier.pop
        try:
            wrapped = ref(proxy._headspace_wrapped, lambda _: forget(key, None))
        except TypeError:  # A list, say: nothing tells whether it still lives.
            return
    _earlier[key] = _Earlier(proxy, wrapped)
