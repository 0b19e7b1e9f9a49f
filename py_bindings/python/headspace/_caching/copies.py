"""Copies batches for replay, so that a loop cannot change the cached ones.

A loop often changes the containers of a batch: it reassigns ``batch["image"]``, pops a label, moves a
list's items. :func:`copy_containers` makes new containers around the same values, so what the loop does to
its own ones does not reach the kept ones. A loop that changes the values themselves (``images.div_(255)``)
needs :func:`copy_values`, which costs the memory and the time of a real copy.
"""

from __future__ import annotations

from _operator import setitem
from copy import copy, deepcopy

from headspace._loops.samples import is_user_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

#: Most containers that are copied, all levels together. Further ones are shared.
MOST_CONTAINERS = 1024

#: Values of these types are immutable, and contain nothing mutable.
_CONSTANTS = (int, float, complex, str, bytes, bool, type(None), type, range)


def copy_containers(batch: Any) -> Any:
    """New containers around the same values. A batch that is no container is returned itself.

    Containers are dictionaries, lists, tuples, sets, dataclasses and what is derived from them or made of
    them, such as transformers' ``BatchEncoding``.

    Raises:
        Exception: Whatever a container of the user's raises while it is copied.
    """
    return _Copier(lambda value: value).copy(batch)


def copy_values(batch: Any, shared: tuple[type, ...] = ()) -> Any:
    """New containers around copies of the values.

    Args:
        shared: Types whose values are not copied.

    Raises:
        Exception: Whatever a value raises while it is copied.
    """
    return _Copier(lambda value: value if isinstance(value, shared) else _copy_value(value)).copy(
        batch
    )


class _Copier:
    def __init__(self, copy_value: Callable[[Any], Any]) -> None:
        self.copy_value = copy_value
        #: Copies by the identity of the original, so that a shared object stays shared.
        self.made: dict[int, Any] = {}
        self.originals: list[Any] = []

    def copy(self, part: Any) -> Any:
        kind = type(part)
        if kind in _CONSTANTS:
            return part
        known = self.made.get(id(part))
        if known is not None:
            return known
        if len(self.made) >= MOST_CONTAINERS or not is_container(part, kind):
            value = self.copy_value(part)
            if value is not part:
                # The original is kept during the copy, so that no other object gets its identity.
                self.made[id(part)] = value
                self.originals.append(part)
            return value
        if issubclass(kind, tuple):
            values = [self.copy(value) for value in part]
            made = kind(values) if kind is tuple else tuple.__new__(kind, values)
            self.made[id(part)] = made
            return made
        made = self.made[id(part)] = copy(part)
        items: Iterable[tuple[Any, Any]]
        assign: Callable[[Any, Any, Any], None] = setitem
        if issubclass(kind, list):
            items = enumerate(part)
        elif issubclass(kind, (set, frozenset)):
            return made  # Its values can be hashed, so nobody changes them.
        elif issubclass(kind, dict) or is_user_dict(kind):
            items = part.items()
        else:
            items = ((name, getattr(part, name, None)) for name in kind.__dataclass_fields__)
            assign = object.__setattr__  # A dataclass may be frozen.
        for key, value in items:
            inner = self.copy(value)
            if inner is not value:
                assign(made, key, inner)
        return made


def is_container(part: Any, kind: type) -> bool:
    """Whether a value of this type is copied as a container."""
    return (
        isinstance(part, (dict, list, tuple, set, frozenset))
        or is_user_dict(kind)
        or "__dataclass_fields__" in vars(kind)
    )


def has_attributes(part: Any) -> bool:
    """Whether the program has given attributes of its own to the object."""
    return bool(getattr(part, "__dict__", None))


def _copy_value(value: Any) -> Any:
    # `deepcopy` refuses a tensor that is not a leaf of the graph.
    if hasattr(value, "untyped_storage") and hasattr(value, "clone"):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return deepcopy(value)
