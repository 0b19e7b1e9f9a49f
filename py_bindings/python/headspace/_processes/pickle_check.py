"""Finds what cannot be given to a new process, and estimates how many bytes the rest takes, without pickling it.

`spawn` and `forkserver` pickle what a worker process gets. A pickler would copy all of it, move tensors into shared
memory, and run the program's own `__getstate__` and `__reduce__`, which may change the objects. So this module only
follows references, as a pickler would. It runs no such code of the program: where a class has its own, its author
has prepared it for pickling, and what it sends is unknown. Of a long container, a sample of the elements is visited.

`fork` pickles nothing, but the processes share open files, and a forked process has only the thread that forked it.
Then only open files and objects with other threads are looked for, and not even code of libraries runs to find them.
"""

from __future__ import annotations

import copyreg
import io
import sys
import threading
import time
from collections import Counter
from functools import partial
from itertools import islice
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

from headspace._memory import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType
    from typing import Any

    from headspace import _native

#: Elements of a container that are visited. In a longer one, every n-th is.
_ELEMENTS = 64

#: Most objects that are visited, and most seconds that this takes.
_MAX_VISITS = 20_000
_MAX_SECONDS = 0.1

#: Most obstacles that are named.
_MAX_OBSTACLES = 4

#: Longest path of a part, in characters.
_MAX_PATH = 120

#: The protocol in which arrays are not copied.
_PROTOCOL = 5

#: Methods by which a class decides how its objects are pickled.
_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__")

#: Methods that are called while an object without these hooks is pickled.
_CALLED = ("__getattribute__", "__getattr__", "__iter__", "items")

_NUMBERS = {type(None), bool, int, float, complex, type(Ellipsis), type(NotImplemented)}

#: Bytes of a number, and of a reference to an object that was pickled before.
_NUMBER_BYTES = 5

#: Packages whose objects mostly are open files or databases.
_FILE_PACKAGES = {"h5py", "lmdb", "mmap", "netCDF4", "sqlite3", "tarfile", "zarr", "zipfile"}

#: Of these, packages whose objects are safe to use after a fork.
_SAFE_AFTER_FORK = {"mmap"}

#: Modules of Python's own files.
_FILE_MODULES = {"_io", "io", "gzip", "bz2", "lzma"}

#: Classes of pools and executors, each with its module. A process pool has threads too.
_POOLS = (("concurrent.futures", "Executor"), ("multiprocessing.pool", "Pool"))

#: Loggers. Each refers to all others, and no process needs new ones.
_LOGGERS = (("logging", "Logger"),)

#: Kinds of obstacles with `fork`.
_OF_FORK = ("shared_file", "threads")

#: Classes that can be pickled, except for the file that they have open.
_ARCHIVES = {("zipfile", "ZipFile"), ("tarfile", "TarFile")}


def check_parts(
    parts: dict[str, Any],
    library_folders: Iterable[str],
    allowed: tuple[type, ...] = (),
    forks: bool = False,
) -> _native._StartFacts | None:
    """Checks what a new process would get. None if processes are forked and nothing is an obstacle to that.

    Args:
        parts: What is sent, by name.
        library_folders: Folders of code that may run: that of libraries.
        allowed: Types that are sent in another way.
        forks: Whether processes are forked, so that nothing is pickled.
    """
    check = _Check(tuple(library_folders), allowed, forks)
    check.run(parts)
    if forks and not check.obstacles:
        return None
    return {
        "bytes": None if forks else round(check.bytes),
        "objects": None if forks else round(check.objects),
        "at_least": not forks and (check.is_partial or bool(check.obstacles)),
        "obstacle": next(iter(check.obstacles), None),
        "other_obstacles": [found["part"] for found in check.obstacles[1:]],
    }


class _ObstacleError(Exception):
    """An object cannot be pickled, must not be shared, or does not work after a fork.

    Args:
        kind: As in the records.
        code: The code of a function, if the obstacle is in one.
    """

    def __init__(self, kind: str, code: CodeType | None = None) -> None:
        self.kind = kind
        self.code = code


class _Check:
    def __init__(
        self, library_folders: tuple[str, ...], allowed: tuple[type, ...], forks: bool
    ) -> None:
        self._libraries = library_folders
        self._allowed = allowed
        self._forks = forks
        #: By ID, the threads that a forked process would not have.
        self._lost_threads = _find_other_threads() if forks else {}
        self.bytes = self.objects = 0.0
        #: Whether there are objects that were not visited.
        self.is_partial = False
        self.obstacles: list[_native._StartObstacle] = []
        #: Objects to visit, each with its path and the number of objects that it stands for. The last comes next.
        self._stack: list[tuple[Any, str, float]] = []
        #: By ID, what was visited: an object that is kept keeps its ID.
        self._visited: dict[int, Any] = {}

    def run(self, parts: dict[str, Any]) -> None:
        self._add([(part, name) for name, part in parts.items()], 1.0)
        end = time.perf_counter() + _MAX_SECONDS
        for _ in range(_MAX_VISITS):
            if not self._stack:
                return
            if time.perf_counter() > end:
                break
            thing, path, stands_for = self._stack.pop()
            try:
                self._visit(thing, path, stands_for)
            except _ObstacleError as found:
                if not self._forks or found.kind in _OF_FORK:
                    self.obstacles.append(_describe(thing, path, found))
                if len(self.obstacles) == _MAX_OBSTACLES:
                    break
        self.is_partial = True

    def _add(self, children: list[tuple[Any, str]], stands_for: float) -> None:
        for thing, path in reversed(children):
            if len(path) > _MAX_PATH:
                path = f"{path[:_MAX_PATH]}…"
            self._stack.append((thing, path, stands_for))

    def _visit(self, thing: Any, path: str, stands_for: float) -> None:
        kind = type(thing)
        if kind in _NUMBERS:
            self.bytes += _NUMBER_BYTES * stands_for
            return
        if id(thing) in self._visited:
            self.bytes += _NUMBER_BYTES * stands_for
            return
        self._visited[id(thing)] = thing
        self.objects += stands_for
        if kind in (str, bytes, bytearray):
            self.bytes += len(thing) * stands_for
        elif kind in (list, tuple):
            self._add_elements(thing, path, stands_for)
        elif kind in (set, frozenset):
            self._add_unordered(thing, len(thing), path, stands_for)
        elif kind is dict:
            self._add_items(thing, path, stands_for)
        elif kind is FunctionType or issubclass(kind, type):
            self.bytes += len(thing.__qualname__) * stands_for
            _find_global(thing)
        elif kind is MethodType:
            self._add([(thing.__self__, f"{path}.__self__")], stands_for)
        elif kind is partial:
            named = [(thing.func, f"{path}.func"), (thing.args, f"{path}.args")]
            self._add([*named, (thing.keywords, f"{path}.keywords")], stands_for)
        elif kind is ModuleType:
            raise _ObstacleError("other")
        elif self._lost_threads and self._needs_lost_thread(thing):
            raise _ObstacleError("threads")
        elif not (self._visit_array(thing, path, stands_for) or self._is_passed_otherwise(thing)):
            self._visit_object(thing, path, stands_for)

    def _visit_array(self, thing: Any, path: str, stands_for: float) -> bool:
        """Counts the bytes of an array. Returns whether it is one."""
        kind = type(thing)
        array = getattr(sys.modules.get("numpy"), "ndarray", None)
        if array is not None and issubclass(kind, array) and thing.dtype.hasobject:
            sample = thing.flat[:: max(1, thing.size // _ELEMENTS)].tolist()
            self._add_unordered(sample, thing.size, path, stands_for)
        elif array is not None and issubclass(kind, array):
            self.bytes += thing.nbytes * stands_for
        elif kind.__module__ == "array":
            self.bytes += len(thing) * thing.itemsize * stands_for
        elif kind.__name__ == "PickleBuffer":  # Of a library that has arrays of its own.
            self.bytes += thing.raw().nbytes * stands_for
        else:
            return False
        return True

    def _needs_lost_thread(self, thing: Any) -> bool:
        """Whether this is a thread that a forked process would not have, or a pool that has started some. An unused executor
        has none, and starts its own in each process."""
        kind = type(thing)
        if id(thing) in self._lost_threads:
            return True
        if not issubclass(kind, _loaded_classes(_POOLS)) or issubclass(kind, self._allowed):
            return False
        for value in tuple((safe.instance_dict(thing) or {}).values()):
            held = tuple(value) if type(value) in (list, set) else (value,)
            if any(id(one) in self._lost_threads for one in held):
                return True
        return False

    def _is_passed_otherwise(self, thing: Any) -> bool:
        """Whether a new process gets it as shared memory, or as a duplicated descriptor."""
        kind = type(thing)
        if issubclass(kind, self._allowed) or str(kind.__module__).startswith("multiprocessing."):
            return True
        torch = sys.modules.get("torch")
        tensors = (getattr(torch, "Tensor", None), getattr(torch, "UntypedStorage", None))
        if issubclass(kind, tuple(filter(None, tensors))):
            return True
        reduction = sys.modules.get("multiprocessing.reduction")
        # `multiprocessing` has its own way for sockets and connections, which would start a thread here.
        pickler = getattr(reduction, "ForkingPickler", None)
        return pickler is not None and kind in pickler._extra_reducers and kind is not partial

    def _visit_object(self, thing: Any, path: str, stands_for: float) -> None:
        kind = type(thing)
        if self._forks:
            if issubclass(kind, _loaded_classes(_LOGGERS)):
                return
            if _is_shared_file(thing):
                raise _ObstacleError("shared_file")
            self._add_attributes(thing, path, stands_for)
            return
        registered = copyreg.dispatch_table.get(kind)
        hooks = [registered] if registered else [_find_method(kind, name) for name in _HOOKS]
        for code in filter(None, map(self._code_of_program, hooks)):
            if _always_raises(code):
                raise _ObstacleError("refuses", code)
            self.is_partial = True
            return
        called = _CALLED if issubclass(kind, (list, dict)) else _CALLED[:2]
        if any(self._code_of_program(_find_method(kind, name)) for name in called):
            self.is_partial = True
            self._add_attributes(thing, path, stands_for)
            return
        try:
            reduced = registered(thing) if registered else thing.__reduce_ex__(_PROTOCOL)
        except Exception:
            raise _ObstacleError(_kind_of_object(thing)) from None
        if type(reduced) is tuple:
            self._add_reduced(reduced, path, stands_for)

    def _add_attributes(self, thing: Any, path: str, stands_for: float) -> None:
        """Visits the class, the attributes and the elements of an object, which are read without its own methods."""
        kind = type(thing)
        state = object.__getattribute__(thing, "__dict__") if _has_dict(kind) else None
        self._add([(kind, path), *_parts_of_state((state, _slots(thing)), path)], stands_for)
        # `isinstance` would run the program's own `__class__`.
        if issubclass(kind, list):
            self._add_elements(list.__getitem__(thing, slice(_ELEMENTS)), path, stands_for)
        elif issubclass(kind, tuple):
            self._add_elements(tuple.__getitem__(thing, slice(_ELEMENTS)), path, stands_for)
        elif issubclass(kind, dict):
            self._add_items(dict(islice(dict.items(thing), _ELEMENTS)), path, stands_for)

    def _code_of_program(self, method: Any) -> CodeType | None:
        """The code of a method, if it is the program's own."""
        if type(method) is not FunctionType:
            return None
        is_library = method.__code__.co_filename.startswith(("<frozen", *self._libraries))
        return None if is_library else method.__code__

    def _add_reduced(self, reduced: tuple[Any, ...], path: str, stands_for: float) -> None:
        function, arguments, state, elements, items = (*reduced, None, None, None)[:5]
        children = [(function, path)]
        children += [(argument, path) for argument in arguments or ()]
        children += _parts_of_state(state, path)
        self._add(children, stands_for)
        if elements is not None:
            self._add_elements(self._take(elements), path, stands_for)
        if items is not None:
            self._add_items(dict(self._take(items)), path, stands_for)

    def _take(self, elements: Any) -> list[Any]:
        """The first elements of an iterator."""
        taken = list(islice(elements, _MAX_VISITS))
        self.is_partial |= len(taken) == _MAX_VISITS
        return taken

    def _add_elements(self, elements: Any, path: str, stands_for: float) -> None:
        gap = max(1, len(elements) // _ELEMENTS)
        sample = elements[::gap]
        each_stands_for = stands_for * len(elements) / max(1, len(sample))
        times = Counter(map(id, sample))
        named = [(element, f"{path}[{n * gap}]") for n, element in enumerate(sample)]
        self._add([one for one in named if times[id(one[0])] == 1], each_stands_for)
        # An object that is several elements is pickled once, and then referred to.
        repeated = [one for one in named if times[id(one[0])] > 1]
        self._add(repeated, stands_for)
        self.bytes += _NUMBER_BYTES * (each_stands_for - stands_for) * len(repeated)

    def _add_unordered(self, elements: Any, number: int, path: str, stands_for: float) -> None:
        sample = list(islice(elements, _ELEMENTS))
        share = stands_for * number / max(1, len(sample))
        self._add([(element, f"{path}[…]") for element in sample], share)

    def _add_items(self, items: dict[Any, Any], path: str, stands_for: float) -> None:
        # Not every n-th: to find these, all would be visited.
        sample = list(islice(items.items(), _ELEMENTS))
        share = stands_for * len(items) / max(1, len(sample))
        keys = [(key, f"a key of {path}") for key, _ in sample]
        self._add([*keys, *((value, f"{path}[{_key_text(key)}]") for key, value in sample)], share)


def _parts_of_state(state: Any, path: str) -> list[tuple[Any, str]]:
    """The attributes of an object, by its state: a dictionary, or one with a second for slots."""
    parts: list[tuple[Any, str]] = []
    for attributes in state if type(state) is tuple and len(state) == 2 else (state,):
        if type(attributes) is dict:
            parts += [(value, f"{path}.{name}") for name, value in attributes.items()]
        else:
            parts.append((attributes, path))
    return parts


def _slots(thing: Any) -> dict[str, Any]:
    """The attributes of an object that are not in its dictionary."""
    found = {}
    for base in type(thing).__mro__:
        for name, member in vars(base).items():
            if type(member) is MemberDescriptorType:
                try:
                    found[name] = member.__get__(thing)
                except AttributeError:  # It has no value.
                    continue
    return found


def _key_text(key: Any) -> str:
    return repr(key) if type(key) in (str, int) else "…"


def _find_method(kind: type, name: str) -> Any:
    """The definition of a method in the class or its bases. None if there is none."""
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


def _find_global(thing: Any) -> None:
    """Checks that a function or class is found by its name, as a new process finds it."""
    code = getattr(thing, "__code__", None)
    names = thing.__qualname__.split(".")
    if "<locals>" in names or "<lambda>" in names:
        raise _ObstacleError("local", code)
    module = sys.modules.get(thing.__module__)
    if module is None:
        return
    if thing.__module__ == "__main__" and getattr(module, "__file__", None) is None:
        raise _ObstacleError("interactive", code)
    found: Any = module
    for name in names:
        found = getattr(found, "__dict__", {}).get(name)
        found = getattr(found, "__func__", found)  # Of a static method.
    if found is not thing:
        raise _ObstacleError("local", code)


def _has_dict(kind: type) -> bool:
    return kind.__dictoffset__ != 0


def _always_raises(code: CodeType) -> bool:
    from dis import get_instructions

    return not any(step.opname.startswith("RETURN") for step in get_instructions(code))


def _find_other_threads() -> dict[int, threading.Thread]:
    """The running threads, by ID, without the main thread and the current one, of which one starts the processes."""
    running = {id(thread): thread for thread in threading.enumerate()}
    for thread in (threading.main_thread(), threading.current_thread()):
        running.pop(id(thread), None)
    return running


def _loaded_classes(names: Iterable[tuple[str, str]]) -> tuple[type, ...]:
    """Classes by module and name, without those whose module is not imported: then nothing is of them."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return tuple(filter(None, found))


def _package(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]


def _kind_of_object(thing: Any) -> str:
    package = _package(type(thing))
    if package == "_thread":
        return "lock"
    return (
        "open_file" if issubclass(type(thing), io.IOBase) or package in _FILE_PACKAGES else "other"
    )


def _is_shared_file(thing: Any) -> bool:
    """Whether processes that are forked would share the position or the state of this object: a file that is read, other
    than standard input, or a database."""
    kind = type(thing)
    try:
        if kind.__module__ in _FILE_MODULES and issubclass(kind, io.IOBase):
            return bool(thing.readable() and thing.fileno() > 2)
        if (kind.__module__, kind.__name__) in _ARCHIVES:
            return True
    except Exception:  # It is closed, or in memory.
        return False
    if _package(kind) not in _FILE_PACKAGES - _SAFE_AFTER_FORK:
        return False
    try:
        thing.__reduce_ex__(_PROTOCOL)
    except Exception:
        return True
    return False


def _describe(thing: Any, path: str, found: _ObstacleError) -> _native._StartObstacle:
    kind = type(thing)
    is_builtin = kind.__module__ == "builtins"
    type_name = kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
    if issubclass(kind, (FunctionType, BuiltinFunctionType, type)):
        type_name = thing.__qualname__
    code = found.code
    return {
        "part": path,
        "type_name": type_name,
        "kind": found.kind,
        "file": None if code is None else code.co_filename,
        "line": None if code is None else code.co_firstlineno,
    }
