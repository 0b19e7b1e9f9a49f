"""Reads objects without calling code of the program: no property, no `__len__`, no `__eq__`, no `__class__`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, GetSetDescriptorType, TracebackType
from typing import Any

#: The containers whose items are counted. Subclasses may have methods of the program.
CONTAINERS = (list, dict, set, deque)

#: Items of a list, tuple or dictionary among which an array is searched.
_FIRST_ITEMS = 8

_names = type.__dict__["__module__"], type.__dict__["__qualname__"]
_mro = type.__dict__["__mro__"]
_basic_size = type.__dict__["__basicsize__"]


def type_name(kind: type) -> str:
    """Name of a type, with its module unless that is `builtins` or the program."""
    module, name = (getter.__get__(kind) for getter in _names)
    # A worker that imports the program knows it as `__mp_main__`.
    if not isinstance(module, str) or module in ("builtins", "__main__", "__mp_main__", "_thread"):
        return str(name)
    if module == "torch.nn.parameter":
        module = "torch.nn"
    return f"{module}.{name}"


def instance_dict(item: object) -> dict[str, Any] | None:
    """The attributes of an object. None if it has none of its own."""
    for kind in _mro.__get__(type(item)):
        found = type.__dict__["__dict__"].__get__(kind).get("__dict__")
        if found is not None:
            if type(found) is not GetSetDescriptorType:
                return None  # A property of the program.
            attributes = found.__get__(item)
            return attributes if type(attributes) is dict else None
    return None


def class_dict(kind: type) -> Any:
    """The namespace of a class."""
    return type.__dict__["__dict__"].__get__(kind)


def is_a(item: object, kind: type | None) -> bool:
    """Whether the type of an object is `kind` or derives from it."""
    return any(base is kind for base in _mro.__get__(type(item)))


def basic_size(item: object) -> int:
    """Bytes of an object without a variable part, by its type."""
    size: int = _basic_size.__get__(type(item))
    return size


def numpy_array() -> Any:
    """The type of NumPy's arrays. None if NumPy is not imported."""
    return getattr(sys.modules.get("numpy"), "ndarray", None)


def plain_tensors() -> tuple[type, ...]:
    """The types of tensors whose attributes are torch's own. Empty if torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return ()
    return torch.Tensor, torch.nn.Parameter


def is_plain_tensor(item: object) -> bool:
    """Whether it is a tensor whose attributes are torch's own."""
    return any(type(item) is kind for kind in plain_tensors())


def tracebacks(exception: BaseException) -> Iterator[TracebackType]:
    """The parts of an exception's traceback, the outermost call first."""
    traceback = BaseException.__dict__["__traceback__"].__get__(exception)
    while type(traceback) is TracebackType:
        yield traceback
        traceback = traceback.tb_next


def keeps_graph(item: Any) -> bool:
    """Whether a tensor keeps the graph of its operations. Of a list, tuple or dictionary: whether one of its first items
    does."""
    tensors = filter(is_plain_tensor, (item, *_first_items(item)))
    return any(tensor.grad_fn is not None for tensor in tensors)


def describe(item: Any) -> str:
    """Type of an object, with shape and number format of an array or a tensor. Of a list, tuple or dictionary: also those
    of the first array or tensor in it."""
    data = next(filter(_is_data, _first_items(item)), None)
    if data is None:
        return _describe_alone(item)
    return f"{type_name(type(item))} with {_describe_alone(data)}"


def _is_data(item: object) -> bool:
    return type(item) is numpy_array() or is_plain_tensor(item)


def _first_items(item: Any) -> list[Any]:
    """The first items of a list, tuple or dictionary. Empty for any other object."""
    if type(item) in (list, tuple):
        return [*item[:_FIRST_ITEMS]]
    return [*islice(item.values(), _FIRST_ITEMS)] if type(item) is dict else []


def _describe_alone(item: Any) -> str:
    name = type_name(type(item))
    array = numpy_array()
    if array is not None and type(item) is array:
        shape = ", ".join(map(str, item.shape))
        return f"{name} {item.dtype.name}[{shape}]"
    if is_plain_tensor(item):
        shape = ", ".join(map(str, item.shape))
        made_by = item.grad_fn
        graph = f" {type(made_by).__name__}" if made_by is not None else ""
        return f"{name} {str(item.dtype).removeprefix('torch.')}[{shape}]{graph}"
    return name


def function_site(function: FunctionType) -> tuple[str, int]:
    """Where a function begins."""
    return function.__code__.co_filename, function.__code__.co_firstlineno
