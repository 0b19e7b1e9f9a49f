"""Implements the proxy of a wrapped loader, which behaves like the loader in everything.

Frameworks create new loaders from a wrapped one. The new loader is wrapped as the same loop. Lightning
reads the arguments of ``loader.__init__`` and calls ``type(loader)``, to put in a sampler of its own.
:class:`ProxyType` and :class:`ForwardedInit` support this. `accelerate.py` supports Accelerate.
"""

from __future__ import annotations

from _weakref import ref

from headspace import _settings
from headspace._loops import nesting
from headspace._loops.loader_facts import torch_loader
from headspace._loops.wrapped_loops import WrappedLoops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Python looks up special methods on the type. So a proxy's type has those that the wrapped type has.
_FORWARDED = """
    len length_hint getitem setitem delitem contains reversed call bool enter exit
    aenter aexit aiter anext await add radd mul rmul lt le gt ge eq ne fspath
"""

_proxy_types: dict[type, type] = {}

#: The attribute that Accelerate reads of a loader that it is about to prepare.
_ACCELERATE_PREPARES = "_is_accelerate_prepared"


class ProxyType(type):
    """The metaclass of proxies. A call of a proxy's type makes an object of the wrapped type."""

    _headspace_kind: Callable[..., Any]
    #: The proxy whose `__init__` was read last: a call of its type makes a replacement for it.
    _headspace_template: ref[Proxy] | None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls._headspace_kind(*args, **kwargs)
        weak_template, cls._headspace_template = cls._headspace_template, None
        template = None if weak_template is None else weak_template()
        return made if template is None else make_replacement(template, made)


class ForwardedInit:
    """Returns the wrapped loader's ``__init__`` for ``loader.__init__``."""

    def __get__(self, proxy: Proxy | None, kind: ProxyType) -> Any:
        if proxy is None:
            return object.__init__
        kind._headspace_template = ref(proxy)
        return proxy._headspace_wrapped.__init__


class Proxy(metaclass=ProxyType):
    """Behaves like the object it wraps, and is timed while it is iterated.

    Its own attributes begin with ``_headspace_``. All others are the wrapped object's.
    """

    __slots__ = (
        "__weakref__",
        "_headspace_iterator",
        "_headspace_loops",
        "_headspace_options",
        "_headspace_was_iterated",
        "_headspace_wrapped",
    )

    _headspace_wrapped: Any
    _headspace_options: dict[str, Any]
    _headspace_loops: WrappedLoops
    _headspace_iterator: Any
    #: Whether this proxy, or one that replaced it, was iterated.
    _headspace_was_iterated: bool

    __init__: Any = ForwardedInit()

    def __iter__(self) -> Any:
        object.__setattr__(self, "_headspace_was_iterated", True)
        if not hasattr(type(self._headspace_wrapped), "__next__"):
            return _iterate(self)
        # An iterator has one iteration, which all its users share.
        if self._headspace_iterator is None:
            iterator = _iterate(self)
            object.__setattr__(self, "_headspace_iterator", iterator)
        return self._headspace_iterator

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "throw", "close") and hasattr(
            type(self._headspace_wrapped), "__next__"
        ):
            return getattr(iter(self), name)
        if name == _ACCELERATE_PREPARES:
            replace_accelerate()
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
        # A function that counts units is often one that cannot be pickled, and a copy in a worker does not need it.
        options = {**self._headspace_options, "stated": None}
        return _rebuild, (self._headspace_wrapped, options)


def _iterate(proxy: Proxy) -> Any:
    wrapped = proxy._headspace_wrapped
    loop, role = proxy._headspace_loops.begin_epoch(wrapped)
    return nesting.begin_epoch(loop, wrapped, role, torch_loader(wrapped))


def replace_accelerate() -> None:
    """Wrap the loaders that Accelerate makes from wrapped ones from now on."""
    from headspace._loops.accelerate import replace_functions

    replace_functions(Proxy, make_replacement)


def make_replacement(template: Proxy, made: Any) -> Any:
    """Wraps a loader that was made from the one that `template` wraps, as the same loop."""
    if not template._headspace_was_iterated:
        # The loop's length and batch size must be those of the loader that is iterated.
        loops = WrappedLoops(made, template._headspace_options)
        object.__setattr__(template, "_headspace_loops", loops)
        object.__setattr__(template, "_headspace_was_iterated", True)
    return make_proxy(made, template._headspace_options, template._headspace_loops)


def _rebuild(wrapped: Any, options: dict[str, Any]) -> Any:
    return make_proxy(wrapped, options) if _settings.enabled() else wrapped


def make_proxy(wrapped: Any, options: dict[str, Any], loops: WrappedLoops | None = None) -> Any:
    """A proxy for `wrapped`.

    Args:
        options: Those of `wrap`.
        loops: The loops that its epochs belong to. By default new ones.
    """
    kind = type(wrapped)
    proxy_type = _proxy_types.get(kind)
    if proxy_type is None:
        special = (f"__{name}__" for name in _FORWARDED.split())
        members = {name: _forward(name) for name in special if _defines(kind, name)}
        if hasattr(kind, "__next__"):
            members["__next__"] = _next
        if _defines(kind, "__enter__"):
            members["__enter__"] = _enter
        if getattr(kind, "__hash__", None) is None:
            members["__hash__"] = None
        elif "__eq__" in members:
            members["__hash__"] = Proxy.__hash__
        members |= {"__slots__": (), "_headspace_kind": kind, "_headspace_template": None}
        proxy_type = _proxy_types[kind] = ProxyType(kind.__name__, (Proxy,), members)
    proxy: Any = object.__new__(proxy_type)
    for name, value in (
        ("wrapped", wrapped),
        ("options", options),
        ("loops", WrappedLoops(wrapped, options) if loops is None else loops),
        ("iterator", None),
        ("was_iterated", False),
    ):
        object.__setattr__(proxy, f"_headspace_{name}", value)
    return proxy


def _defines(kind: type, name: str) -> bool:
    """Whether instances have that special method. Methods of `object` do not count."""
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
