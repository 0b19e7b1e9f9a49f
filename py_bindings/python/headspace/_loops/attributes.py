"""Reads facts from the attributes and types of users' objects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T", bound=int)


def get_attribute(owner: Any, name: str) -> Any:
    """An attribute. None if it is missing, or raises, as a user's property may."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def own_attributes(owner: Any) -> dict[str, Any]:
    """The dictionary of its attributes. Empty if it has none."""
    return get_attribute(owner, "__dict__") or {}


def read_attribute(owner: Any, name: str, kind: type[T]) -> T | None:
    """An attribute that is a bool, or a number that records can hold. None if it is missing, has another
    type, or raises."""
    value = get_attribute(owner, name)
    return value if type(value) is kind and 0 <= value < 2**31 else None


def type_name_of(thing: Any) -> str:
    """The name of its type, with the module."""
    kind = public_type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def public_type(thing: Any) -> type:
    """Its type. For the private subclasses of Ray's `DataIterator`, this class."""
    kind = type(thing)
    is_private = str(kind.__module__).startswith("ray.data._internal.")
    return kind.__mro__[1] if is_private else kind
