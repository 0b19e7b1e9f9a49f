"""Examines the objects that become more: their sizes, what holds them, and where they were made."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

from headspace import _settings
from headspace._memory import safe, sizes
from headspace._memory.holders import describe_path, find_path, is_lru_cache
from headspace._memory.variables import local_variables
from headspace._native import find_objects

#: CPU seconds of an examination, apart from one search for a holder. The interpreter lock is held meanwhile.
_MOST_SECONDS = 0.5

#: CPU seconds after which no further size is estimated, so that there is time to find holders.
_MOST_SECONDS_FOR_SIZES = 0.25

#: Maximum number of growing objects whose holders are found.
_MOST_HELD = 3

#: Maximum number of nodes of a graph that are counted, and minimum number of a large graph.
_MOST_NODES, _LARGE_GRAPH = 50_000, 100

Variables = dict[int, tuple[FrameType, str]]


def examine(
    types: dict[int, float], containers: dict[int, float], frames: Iterable[FrameType]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Describes growing objects, the largest growth first, and the large graphs of tensors.

    Args:
        types: Growth per second of the number of objects, by the address of their type.
        containers: The same of the number of items, by the address of the container.
        frames: The innermost frame of each thread.
    """
    begin = time.thread_time()
    deadline = begin + _MOST_SECONDS
    variables: Variables = {}
    # The garbage collector tracks this list, but no running frames. Without it, `find_holders` would leave out a tuple that
    # only a local variable holds.
    values = []
    for frame, name, value in local_variables(frames):
        variables[id(value)] = (frame, name)
        values.append(value)
    kinds = {id(kind) for kind in safe.plain_tensors()}
    # Local variables are known. To search an untracked dictionary, all objects are traversed.
    wanted = containers.keys() - variables.keys()
    objects = find_objects(set(types), sizes.SAMPLE, kinds, wanted)
    sizes_deadline = begin + _MOST_SECONDS_FOR_SIZES
    found = _containers([*objects, *values], containers, sizes_deadline)
    found += _objects(objects, types, sizes_deadline)
    found.sort(key=lambda grown: -grown["per_s"] * grown["bytes_each"])
    for grown in found[:_MOST_HELD]:
        if time.thread_time() < deadline:
            _add_holders(grown, variables, (*found, found, objects, values))
    for grown in found:
        del grown["example"]
    return found[:_MOST_HELD], _graphs(objects, variables, deadline)


def _containers(
    objects: list[Any], growth: dict[int, float], deadline: float
) -> list[dict[str, Any]]:
    """The growing containers. After the deadline, those that grow slower are left out."""
    by_address = {id(item): item for item in objects if id(item) in growth}
    found: list[dict[str, Any]] = []
    for address, item in sorted(by_address.items(), key=lambda one: -growth[one[0]]):
        if not any(type(item) is kind for kind in safe.CONTAINERS):
            continue
        if found and time.thread_time() > deadline:
            break
        newest = sizes.newest_items(item)
        count = len(newest) // 2 if type(item) is dict else len(newest)
        values = newest[1::2] if type(item) is dict else newest
        each = sizes.bytes_per_object(newest, count, sizes.older_items(item))
        found.append(
            {
                "example": item,
                "per_s": growth[address],
                "is_container": True,
                "type_name": safe.type_name(type(item)),
                "items": _common(map(safe.describe, values)),
                "bytes_each": each,
                "keep_graphs": _mostly(map(safe.keeps_graph, values)),
                "most_items": item.maxlen if type(item) is deque else None,
                "site": _common(map(_site, values)),
                "holders": [],
            }
        )
    return found


def _objects(objects: list[Any], growth: dict[int, float], deadline: float) -> list[dict[str, Any]]:
    """The growing types. After the deadline, those that grow slower are left out."""
    samples: dict[int, list[Any]] = {address: [] for address in growth}
    for item in objects:
        if id(type(item)) in samples:
            samples[id(type(item))].append(item)
    found: list[dict[str, Any]] = []
    for address, sample in sorted(samples.items(), key=lambda one: -growth[one[0]]):
        # All tensors are among the objects, and a growing container may be one more than the sample.
        items = sample[-sizes.SAMPLE :]
        if not items:
            continue
        if found and time.thread_time() > deadline:
            break
        descriptions = _common(map(safe.describe, items))
        is_exception = safe.is_a(items[-1], BaseException)
        size = sizes.bytes_per_exception if is_exception else sizes.own_bytes_per_object
        found.append(
            {
                "example": items[-1],
                "per_s": growth[address],
                "is_container": False,
                "type_name": descriptions or safe.type_name(type(items[0])),
                "items": None,
                "bytes_each": size(items),
                "keep_graphs": False,
                "most_items": None,
                "site": _common(map(_site, items)),
                "holders": [],
            }
        )
    if any(safe.is_a(grown["example"], BaseException) for grown in found):
        # Exceptions keep their tracebacks and frames, so these do not count again.
        found = [
            grown for grown in found if type(grown["example"]) not in (FrameType, TracebackType)
        ]
    return found


def _mostly(values: Iterable[bool]) -> bool:
    found = list(values)
    return 2 * sum(found) > len(found)


def _common(values: Iterable[Any]) -> Any:
    """The value that most of them have. None if no value is frequent."""
    counts = Counter(value for value in values if value is not None)
    if not counts:
        return None
    value, count = counts.most_common(1)[0]
    return value if 2 * count >= counts.total() else None


def _site(item: Any) -> tuple[str, int] | None:
    """The line that raised an exception, or that allocated an object, if allocations are traced."""
    if safe.is_a(item, BaseException):
        for innermost in deque(safe.tracebacks(item), maxlen=1):
            return innermost.tb_frame.f_code.co_filename, innermost.tb_lineno
    tracemalloc = sys.modules.get("tracemalloc")
    if tracemalloc is None or not tracemalloc.is_tracing():
        return None
    frames = reversed(tracemalloc.get_object_traceback(item) or ())
    sites = [(frame.filename, frame.lineno) for frame in frames]
    own = (site for site in sites if not site[0].startswith(tuple(_settings.libraries())))
    return next(own, sites[0] if sites else None)


def _add_holders(grown: dict[str, Any], variables: Variables, own: tuple[Any, ...]) -> None:
    path = find_path(grown["example"], variables, own)
    grown["holders"] = describe_path(path, variables)
    most = _most_items(path.items)
    if grown["most_items"] is None and most is not None:
        grown["most_items"] = most


def _most_items(path: list[Any]) -> int | None:
    """The maximum number of items of the innermost container on a path, or of the queue or cache to which it belongs."""
    for place, item in enumerate(path):
        kind, above = type(item), path[place + 1 : place + 3]
        if is_lru_cache(item):
            return _cache_limit(item)
        is_container = any(kind is one for one in safe.CONTAINERS)
        if not is_container or (above and safe.instance_dict(above[0]) is item):
            continue
        if kind is deque and item.maxlen is not None:
            limit: int = item.maxlen
            return limit
        for owner in above:
            if is_lru_cache(owner):
                return _cache_limit(owner)
            attributes = safe.instance_dict(owner) or {}
            if attributes.get("queue") is item:
                most = attributes.get("maxsize")
                return most if type(most) is int and most > 0 else None
        return None
    return None


def _cache_limit(cache: Any) -> int | None:
    """The maximum number of results that a `functools.lru_cache` keeps."""
    parameters = (safe.instance_dict(cache) or {}).get("cache_parameters")
    limit = parameters()["maxsize"] if parameters is not None else None
    return limit if type(limit) is int else None


def _graphs(objects: list[Any], variables: Variables, deadline: float) -> list[dict[str, Any]]:
    """The tensors that keep a large graph."""
    found = []
    for item in filter(safe.is_plain_tensor, objects):
        made_by = item.grad_fn
        nodes = 0 if made_by is None else _count_nodes(made_by, deadline)
        if nodes >= _LARGE_GRAPH:
            found.append((nodes, item))
    found.sort(key=lambda one: -one[0])
    graphs: list[dict[str, Any]] = []
    for nodes, item in found[:_MOST_HELD]:
        if graphs and time.thread_time() > deadline:
            break
        path = find_path(item, variables, (*found, found, objects))
        graphs.append(
            {
                "nodes": nodes,
                "type_name": safe.describe(item),
                "holders": describe_path(path, variables),
            }
        )
    return graphs


def _count_nodes(node: Any, deadline: float) -> int:
    # Nodes are compared by identity. They are kept, so that no other node gets the same address.
    seen = {id(node): node}
    waiting = [node]
    while waiting and len(seen) < _MOST_NODES and time.thread_time() < deadline:
        for after, _ in waiting.pop().next_functions:
            if after is not None and id(after) not in seen:
                seen[id(after)] = after
                waiting.append(after)
    return len(seen)
