"""Finds what holds an object: a chain of attributes that ends at a variable."""

from __future__ import annotations

import functools
import gc
import sys
import time
from _thread import _local as _LOCAL
from collections.abc import Iterable
from types import (
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple

from headspace._memory import safe
from headspace._memory.variables import frame_variables
from headspace._native import find_holders

#: Maximum number of objects from the held one to the variable.
_MOST_LEVELS = 10

#: Maximum number of objects on a level.
_MOST_ON_LEVEL = 24

#: CPU seconds after which the search ends. The interpreter lock is held meanwhile.
_MOST_SECONDS = 0.25

_CACHE = type(functools.lru_cache(None)(len))


def is_lru_cache(item: object) -> bool:
    """Whether it is a function with a `functools.lru_cache`."""
    return type(item) is _CACHE


class Holder(NamedTuple):
    """How an object is held."""

    kind: str
    name: str
    of: str | None = None
    file: str | None = None
    line: int | None = None


class _Node(NamedTuple):
    """An object on the way from the target, and the object that it holds."""

    item: Any
    held: _Node | None


class Path(NamedTuple):
    """The objects from the target to its outermost holder that was found."""

    items: list[Any]
    #: Whether the search followed all holders, and found no variable.
    is_loose: bool


def find_path(target: object, local: Iterable[int], own: Iterable[Any]) -> Path:
    """The way from an object to one that a variable holds.

    Args:
        local: The addresses of the values of local variables.
        own: Objects of the caller that refer to the target.
    """
    deadline = time.thread_time() + _MOST_SECONDS
    ends = {*local, *(id(module.__dict__) for module in _modules())}
    seen = {id(target), *map(id, own)}
    level, last = [_Node(target, None)], _Node(target, None)
    for _ in range(_MOST_LEVELS):
        found = (
            node
            for node in level
            if id(node.item) in ends or (node.held and _is_end(node.item, ends))
        )
        ended = next(found, None)
        if ended is not None:
            return Path(_path(ended), is_loose=False)
        last = level[0]
        if time.thread_time() > deadline:
            break
        level = _next_level(level, seen, ends)
        if not level:
            return Path(_path(last), is_loose=True)
    return Path(_path(last), is_loose=False)


def _next_level(level: list[_Node], seen: set[int], ends: set[int]) -> list[_Node]:
    """The holders of the objects of a level: ends first, and frames last, of which old tracebacks keep many."""
    nodes = {id(node.item): node for node in level}
    items = [node.item for node in level]
    above: list[_Node] = []
    found = find_holders(items)
    found.sort(key=lambda holder: (not _is_end(holder, ends), type(holder) is FrameType))
    for holder in found:
        kind = type(holder)
        is_own = kind is _Node or holder is items or (kind is FrameType and _is_own_frame(holder))
        if is_own or id(holder) in seen:
            continue
        held = next((id(one) for one in gc.get_referents(holder) if id(one) in nodes), None)
        if held is None:
            continue
        seen.add(id(holder))
        above.append(_Node(holder, nodes[held]))
        if len(above) == _MOST_ON_LEVEL:
            break
    return above


def _is_own_frame(frame: FrameType) -> bool:
    """Whether a frame belongs to the search itself. Before Python 3.11, running frames are objects."""
    name = frame.f_globals.get("__name__")
    return type(name) is str and name.startswith("headspace.")


def _path(node: _Node | None) -> list[Any]:
    items = []
    while node is not None:
        items.append(node.item)
        node = node.held
    items.reverse()
    return items


def _modules() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if type(module) is ModuleType]


def _is_end(item: object, ends: set[int]) -> bool:
    kind = type(item)
    is_named = is_lru_cache(item) or kind in (FunctionType, GeneratorType)
    return id(item) in ends or is_named or safe.is_a(item, type)


def describe_path(path: Path, variables: dict[int, tuple[FrameType, str]]) -> list[Holder]:
    """The named holders on a path, the innermost first.

    Args:
        variables: The local variable of each address.
    """
    holders: list[Holder] = []
    items = path.items
    for place, item in enumerate(items):
        found = None
        if safe.is_a(item, _LOCAL):
            found = _thread_local(items[:place])
        elif place > 0:
            found = _named(item, items[place - 1], items[place - 2] if place > 1 else None)
        if found is not None:
            holders.append(found)
        variable = variables.get(id(item))
        if variable is not None:
            frame, name = variable
            code = frame.f_code
            holders.append(Holder("local", name, code.co_name, code.co_filename, frame.f_lineno))
            return holders
    last = items[-1]
    if path.is_loose and type(last) is dict and len(items) > 1:
        # Only C code holds this dictionary of names: it has the attributes of a `threading.local` in one thread.
        key = _key(last, items[-2])
        if key is not None:
            holders.append(Holder("thread_local", key))
    return holders


def _named(holder: Any, held: Any, inner: Any) -> Holder | None:
    """How an object holds another one, if that has a name.

    Args:
        inner: What `held` holds.
    """
    kind = type(holder)
    if kind is dict:
        module = next((one for one in _modules() if one.__dict__ is holder), None)
        name = None if module is None else _key(holder, held)
        if module is None or name is None:
            return None
        file = module.__dict__.get("__file__")
        return Holder("global", name, module.__name__, file if type(file) is str else None)
    if is_lru_cache(holder):
        attributes = safe.instance_dict(holder) or {}
        function = attributes.get("__wrapped__")
        if type(function) is not FunctionType:
            return None
        return Holder("cache", function.__qualname__, None, *safe.function_site(function))
    if kind is FunctionType:
        return _closure(holder, inner)
    if kind is TracebackType:
        return None  # Its frame has a better name.
    value = inner if type(held) is CellType else held
    if kind is FrameType:
        return _local(holder, value)
    if kind is GeneratorType:
        # Up to Python 3.10, its frame holds the object.
        return None if type(held) is FrameType else _local(holder.gi_frame, value)
    if safe.is_a(holder, type):
        name = _key(safe.class_dict(holder), held if type(held) is not dict else inner)
        return None if name is None else Holder("class_attribute", name, safe.type_name(holder))
    name = _attribute(holder, inner if type(held) is dict else held) or _attribute(holder, held)
    return None if name is None else Holder("attribute", name, safe.type_name(kind))


def _local(frame: FrameType | None, value: object) -> Holder | None:
    """The local variable of a frame that does not run: that of a generator, or one that a traceback keeps."""
    if frame is None:
        return None
    code = frame.f_code
    variables = frame_variables(frame)
    name = next((name for name, one in variables if one is value), None)
    return (
        None
        if name is None
        else Holder("local", name, code.co_name, code.co_filename, frame.f_lineno)
    )


def _thread_local(below: list[Any]) -> Holder | None:
    """The attribute of a `threading.local` that holds an object through these, the innermost first."""
    for place in range(len(below) - 1, 0, -1):
        name = _key(below[place], below[place - 1]) if type(below[place]) is dict else None
        if name is not None:
            return Holder("thread_local", name)
    return None


def _closure(function: FunctionType, cell: Any) -> Holder | None:
    cells = function.__closure__ or ()
    names = function.__code__.co_freevars
    name = next((name for name, one in zip(names, cells) if one is cell), None)
    if name is None or type(cell) is not CellType:
        return None
    return Holder("closure", name, function.__qualname__, *safe.function_site(function))


def _attribute(holder: Any, held: Any) -> str | None:
    """Name of the attribute of `holder` with that value."""
    name = _key(safe.instance_dict(holder) or {}, held)
    if name is not None:
        return name
    for kind in type.__dict__["__mro__"].__get__(type(holder)):
        for slot, found in safe.class_dict(kind).items():
            if type(found) is MemberDescriptorType and not slot.startswith("__"):
                try:
                    if found.__get__(holder) is held:
                        return str(slot)
                except AttributeError:
                    continue
    return None


def _key(attributes: Any, value: object) -> str | None:
    """The name in a dictionary that has this value."""
    names = (name for name, one in list(attributes.items()) if one is value)
    return next((name for name in names if type(name) is str), None)
