"""`headspace run --batch-from MODULE:FUNCTION`: a function that returns a batch in the place of a loader.

Its calls are timed as a loader's are, and in mode `probe` a cached batch is returned in the place of some.
The name of the function is given another value in its module, once the function is defined. Of an
imported module that is when it has been imported. A script tells nobody how far it has come, so a thread
looks for the function until it is there, or the script turns out to be another one.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from _thread import get_ident, start_new_thread

from headspace import _guard, _loops, _native, _nesting, _role, _session, _settings
from headspace._calls import Calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Seconds between two looks for the function of a script: at first, and after a minute.
_PAUSE_S, _LATER_PAUSE_S = 0.002, 0.05

#: Seconds after which a program that has no file, as `python -c`, is not taken for the script any more,
#: and after which a function that is not there is not looked for any more.
_PATIENCE_S, _GIVE_UP_S = 10.0, 600.0

_GENERATOR, _ASYNC = 0x20, 0x80 | 0x200


class _Loop:
    """The calls in one role, on one thread."""

    __slots__ = ("calls", "is_told", "iterator", "loop")

    def __init__(self, loop: _native.Loop) -> None:
        self.loop = loop
        self.calls = Calls()
        self.iterator: Any = None
        #: That it trains is known in the records.
        self.is_told = False


class Function:
    """The function that returns a batch."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.module, _, self.path = target.partition(":")
        self.name = self.path.rpartition(".")[2]
        #: Its module, or the script, is there.
        self.is_here = False
        self.is_found = False
        #: It is a generator function: each call gives an epoch.
        self.generates = False
        self.calls = 0
        self._loops: dict[tuple[bool, int], _Loop] = {}
        self._natives: dict[bool, _native.Loop] = {}
        self._has_trained = False
        #: By thread, whether the last call was for an evaluation.
        self._evaluated: dict[int, bool] = {}

    def replace(self, module: Any) -> bool:
        """Has calls by the function's name timed. Whether it is there."""
        *path, name = self.path.split(".")
        owner = module
        for part in path:
            owner = getattr(owner, part, None)
        kept = vars(owner).get(name) if hasattr(owner, "__dict__") else None
        bound = type(kept) if isinstance(kept, (staticmethod, classmethod)) else None
        function: Any = kept if bound is None else kept.__func__  # type: ignore[union-attr]
        if not callable(function):
            return False
        self.is_found = True
        if hasattr(function, "_headspace_original"):
            return True
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _ASYNC:
            _guard.say(f"`{self.target}` is asynchronous, so its calls are not timed")
            return True
        self.generates = bool(flags & _GENERATOR)
        watched = self._generating(function) if self.generates else self._returning(function)
        watched._headspace_original = function  # type: ignore[attr-defined]
        setattr(owner, name, watched if bound is None else bound(watched))
        # Where a script is run by another program, its functions look names up elsewhere.
        names = getattr(function, "__globals__", {})
        if not path and names.get(name) is function:
            names[name] = watched
        return True

    def _returning(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from functools import wraps

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            loop = _guard.quietly(self._loop)
            if loop is None:
                return function(*args, **kwargs)
            loop.calls.call = function, args, kwargs
            try:
                return next(loop.iterator)
            finally:
                loop.calls.call = None

        return watched

    def _generating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from functools import wraps

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            generator = function(*args, **kwargs)
            iterator = _guard.quietly(self._iterate, generator)
            return generator if iterator is None else iterator

        return watched

    def _iterate(self, generator: Any) -> Any:
        if _is_within():
            return None
        role, evaluates = self._role()
        if evaluates:
            _nesting.interrupt()
        loop = self._native(evaluates, role)
        return _nesting.make(loop, loop.iterate, generator, _session._begin, role)

    def _loop(self) -> _Loop | None:
        """Where the call that is made belongs, ready to be asked. None where it is no training loop's."""
        if _is_within():
            return None
        role, evaluates = self._role()
        thread = get_ident()
        loop = self._loops.get((evaluates, thread))
        if loop is None:
            loop = self._loops[evaluates, thread] = _Loop(self._native(evaluates, role))
        begins = evaluates and not self._evaluated.get(thread)
        self._evaluated[thread] = evaluates
        if begins:
            _nesting.interrupt()
            loop.iterator = None
        if loop.iterator is None or getattr(loop.iterator, "_headspace_has_ended", False):
            native = loop.loop
            loop.iterator = _nesting.make(native, native.iterate, loop.calls, _session._begin, role)
            loop.is_told = role == _role.TRAINING
        elif role == _role.TRAINING and not loop.is_told:
            loop.is_told = True
            if hasattr(loop.iterator, "_headspace_trains"):
                loop.iterator._headspace_trains()
        return loop

    def _role(self) -> tuple[str | None, bool]:
        """What the call is for, and whether that is an evaluation."""
        if _role.is_sure():
            return _role.EVALUATION, True
        role = _role.likely()
        self._has_trained = self._has_trained or role == _role.TRAINING
        # Before anything trained, a model in evaluation mode may just not be in training mode yet.
        evaluates = role == _role.EVALUATION and self._has_trained
        return role if evaluates or role != _role.EVALUATION else None, evaluates

    def _native(self, evaluates: bool, role: str | None) -> _native.Loop:
        made = self._natives.get(evaluates)
        if made is not None:
            return made
        name = f"{self.name} (evaluation)" if evaluates else self.name
        is_chosen = _settings.chosen_loop() == name
        mode = _settings.mode() if is_chosen and not evaluates else "measure"
        if mode == "replay":
            _guard.say(f"`{self.target}` is a function, so its batches are not replayed for good")
            mode = "measure"
        stops = mode == "probe" and _settings.stops_after_probe()
        if stops and not self.generates:
            _guard.say(f"`{self.target}` returns batches, so its loop goes on after the probe")
            stops = False
        made = self._natives[evaluates] = _native.Loop(
            _loops.unique(name),
            mode,
            type_name=self.target.replace(":", "."),
            num_caches=_settings.num_caches(),
            probe_steps=_settings.probe_steps(),
            stop_after_probe=stops,
            endless=not self.generates,
            world_size=_settings.world_size(),
            role=role,
            chosen=is_chosen,
            options_from=_settings.options_from(),
        )
        return made

    def forget(self) -> None:
        """In a forked child: what goes on is the parent's."""
        self._loops.clear()
        self._evaluated.clear()
        self.calls = 0

    def trouble(self) -> str | None:
        """Why nothing was timed. None where something was, and where the module was not there."""
        if not self.is_here or self.calls:
            return None
        if not self.is_found:
            return f"`{self.module}` has no function `{self.path}`"
        return f"`{self.path}` of `{self.module}` was never called by that name"


def _is_within() -> bool:
    return not _settings.enabled() or _nesting.is_within() or _guard.is_worker()


_function: Function | None = None


def ready(name: str, module: Any) -> None:
    """The module has been imported."""
    if _function is not None and name == _function.module:
        _function.is_here = True
        _function.replace(module)


def install(target: str) -> str:
    """Has the function's calls timed from when it is there. Returns the module to wait for."""
    global _function
    _function = function = Function(target)
    os.register_at_fork(after_in_child=function.forget)
    atexit.register(_tell, function)
    start_new_thread(_look, (function,))
    return function.module


def _is_script(function: Function) -> bool | None:
    """Whether the script that is run is the function's module; None where that is not known yet."""
    main = sys.modules.get("__main__")
    if function.module == "__main__":
        return True
    spec, loader = getattr(main, "__spec__", None), getattr(main, "__loader__", None)
    # Python takes `__file__` away when the script has ended.
    file = getattr(main, "__file__", None) or getattr(loader, "path", None)
    if spec is not None and spec.name in (function.module, f"{function.module}.__main__"):
        return True
    if file is None:
        return None
    return bool(os.path.splitext(os.path.basename(file))[0] == function.module)


def _look(function: Function) -> None:
    """Looks for the function of the script until it is there."""
    began = time.monotonic()
    while not function.is_found:
        waited = time.monotonic() - began
        is_script = _is_script(function)
        if is_script:
            function.is_here = True
            if _guard.quietly(function.replace, sys.modules["__main__"]) is None:
                return
        elif is_script is False or waited > _PATIENCE_S:
            return
        if waited > _GIVE_UP_S:
            return  # `_tell` says at the end that it was not found.
        time.sleep(_PAUSE_S if waited < 60.0 else _LATER_PAUSE_S)


def look_at_end(function: Function) -> None:
    """Looks once more: a short program is over before it was looked at."""
    if not function.is_here and _is_script(function):
        function.is_here = True
        _guard.quietly(function.replace, sys.modules["__main__"])


def _tell(function: Function) -> None:
    process = sys.modules.get("multiprocessing.process")
    look_at_end(function)
    trouble = function.trouble()
    if trouble is not None and (process is None or process.parent_process() is None):
        _guard.say(f"--batch-from {function.target}: {trouble}, so its batches were not timed")
