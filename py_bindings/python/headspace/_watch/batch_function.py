"""Implements `headspace run --batch-from MODULE:FUNCTION`: times a function that returns batches.

Its calls are timed like a loader's. In mode `probe` some of them return a cached batch instead. The
function is replaced in its module once it is defined. For an imported module that is when the import has
ended. In the script itself no event marks the definition. So a thread polls for the function until it
exists, or until the script turns out to be another module.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from _thread import get_ident, start_new_thread

from headspace import _settings
from headspace._loops import names, nesting
from headspace._loops.make_loop import make_loop, mode_without_wrap
from headspace._loops.observe_torch import observe_role
from headspace._loops.replacing import is_replaced, mark
from headspace._loops.training_or_evaluation import EVALUATION, TRAINING, history
from headspace._processes.worker import is_worker
from headspace._session.own_errors import call_safely, print_notice
from headspace._watch.call_iterator import CallIterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native
    from headspace._loops.training_or_evaluation import RoleState

#: Seconds between two polls for the function in the script: in the first minute, and later.
_PAUSE_S, _LATER_PAUSE_S = 0.002, 0.05

#: Seconds after which a program without a file, such as `python -c`, counts as another module, and after
#: which the thread stops polling.
_NO_SCRIPT_S, _GIVE_UP_S = 10.0, 600.0

#: Flags of code objects (`inspect.CO_*`): generators; coroutines and asynchronous generators.
_GENERATOR, _ASYNC = 0x20, 0x80 | 0x200


class _ThreadCalls:
    """The calls for one purpose, training or evaluation, on one thread."""

    def __init__(self, loop: _native.Loop) -> None:
        self.loop = loop
        self.calls = CallIterator()
        self.iterator: Any = None
        #: Whether the records have it as training.
        self.is_training = False


class BatchFunction:
    """The function that returns a batch, or a generator of batches."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.module, _, self.path = target.partition(":")
        self.name = self.path.rpartition(".")[2]
        #: Its module has been imported, or is the script.
        self.has_module = False
        #: The function is defined.
        self.is_found = False
        #: It is a generator function: each call begins an epoch.
        self.generates = False
        self.calls = 0
        #: By whether they are for an evaluation, and by thread.
        self._thread_calls: dict[tuple[bool, int], _ThreadCalls] = {}
        self._loops: dict[bool, _native.Loop] = {}
        #: By thread, whether the last call was for an evaluation.
        self._was_evaluation: dict[int, bool] = {}

    def replace(self, module: Any) -> bool:
        """Replaces the function by one that times its calls. Returns whether the function is there."""
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
        if is_replaced(function):
            return True
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _ASYNC:
            print_notice(f"`{self.target}` is asynchronous, so its calls are not timed")
            return True
        self.generates = bool(flags & _GENERATOR)
        wrap = self._generating if self.generates else self._returning
        watched = mark(wrap(function), function)
        setattr(owner, name, watched if bound is None else bound(watched))
        # Where a script is run by another program, its functions look names up elsewhere.
        names = getattr(function, "__globals__", {})
        if not path and names.get(name) is function:
            names[name] = watched
        return True

    def _returning(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            thread_calls = call_safely(self._begin_call)
            if thread_calls is None:
                return function(*args, **kwargs)
            thread_calls.calls.call = function, args, kwargs
            try:
                return next(thread_calls.iterator)
            finally:
                thread_calls.calls.call = None

        return watched

    def _generating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            generator = function(*args, **kwargs)
            iterator = call_safely(self._iterate, generator)
            return generator if iterator is None else iterator

        return watched

    def _iterate(self, generator: Any) -> Any:
        if _is_ignored():
            return None
        state = _observe_state()
        if state is EVALUATION:
            nesting.interrupt_iterations()
        loop = self._loop(state)
        return nesting.begin_epoch(loop, generator, state.role)

    def _begin_call(self) -> _ThreadCalls | None:
        """The series that this call continues, with an iterator. None if it is not to be timed."""
        if _is_ignored():
            return None
        state = _observe_state()
        evaluates, thread = state is EVALUATION, get_ident()
        calls = self._thread_calls.get((evaluates, thread))
        if calls is None:
            calls = self._thread_calls[evaluates, thread] = _ThreadCalls(self._loop(state))
        begins_evaluation = evaluates and not self._was_evaluation.get(thread)
        self._was_evaluation[thread] = evaluates
        if begins_evaluation:
            nesting.interrupt_iterations()
            calls.iterator = None
        if calls.iterator is None or getattr(calls.iterator, "_headspace_has_ended", False):
            calls.iterator = nesting.begin_epoch(calls.loop, calls.calls, state.role)
            calls.is_training = state is TRAINING
        elif state is TRAINING and not calls.is_training:
            calls.is_training = True
            if hasattr(calls.iterator, "_headspace_trains"):
                calls.iterator._headspace_trains()
        return calls

    def _loop(self, state: RoleState) -> _native.Loop:
        evaluates = state is EVALUATION
        made = self._loops.get(evaluates)
        if made is not None:
            return made
        role_in_name = history.role_in_name(state)
        name = names.name_with_role(self.name, role_in_name)
        mode = _settings.MEASURE if evaluates else mode_without_wrap(name, state.role)
        if mode == _settings.REPLAY:
            print_notice(
                f"mode `replay` does not work with `--batch-from`, so `{self.target}` is only measured"
            )
            mode = _settings.MEASURE
        stops = mode == _settings.PROBE and _settings.stops_after_probe()
        if stops and not self.generates:
            print_notice(
                f"`--stop-after-probe` needs a function that yields batches. `{self.target}` returns "
                "them, so training continues after the probe"
            )
            stops = False
        made = self._loops[evaluates] = make_loop(
            names.make_unique(self.name, role_in_name),
            {"type_name": self.target.replace(":", ".")},
            chosen=name == _settings.chosen_loop(),
            mode=mode,
            role=state.role,
            num_caches=_settings.num_caches(),
            probe_steps=_settings.probe_steps(),
            what_if_steps=_settings.what_if_steps(),
            keep_data=_settings.keeps_data(),
            stop_after_probe=stops,
            endless=not self.generates,
        )
        return made

    def forget_calls(self) -> None:
        """In a forked child: the iterations are the parent's."""
        self._thread_calls.clear()
        self._was_evaluation.clear()
        self.calls = 0

    def failure(self) -> str | None:
        """Why nothing was timed. None if something was, or if the module was never imported."""
        if not self.has_module or self.calls:
            return None
        if not self.is_found:
            return f"`{self.module}` has no function `{self.path}`, so its batches were not timed"
        causes = [
            "the program never calls it",
            "it calls it through a reference that it made before headspace replaced the function",
        ]
        if _is_script(self):
            # A function of the script is replaced at the next poll.
            causes.append("the loop began within milliseconds of the function's definition")
        return (
            f"no call of `{self.module}.{self.path}` was timed: {', or '.join(causes)}. "
            "Wrap what the loop iterates in headspace.wrap(...) instead"
        )


def _observe_state() -> RoleState:
    """What a call that begins now is for."""
    return history.resolve(history.note(observe_role()))


def _is_ignored() -> bool:
    return not _settings.enabled() or nesting.enclosing_loop() is not None or is_worker()


_function: BatchFunction | None = None


def module_imported(name: str, module: Any) -> None:
    """The module has been imported."""
    if _function is not None and name == _function.module:
        _function.has_module = True
        _function.replace(module)


def install(target: str) -> str:
    """Times the function's calls from when it is defined. Returns the module to wait for."""
    global _function
    _function = function = BatchFunction(target)
    os.register_at_fork(after_in_child=function.forget_calls)
    atexit.register(_report_failure, function)
    start_new_thread(_look_for, (function,))
    return function.module


def _is_script(function: BatchFunction) -> bool | None:
    """Whether the script is the function's module. None if that is not known yet."""
    main = sys.modules.get("__main__")
    if function.module == "__main__":
        return True
    spec, loader = getattr(main, "__spec__", None), getattr(main, "__loader__", None)
    # Python removes `__file__` when the script has ended.
    file = getattr(main, "__file__", None) or getattr(loader, "path", None)
    if spec is not None and spec.name in (function.module, f"{function.module}.__main__"):
        return True
    if file is None:
        return None
    return bool(os.path.splitext(os.path.basename(file))[0] == function.module)


def _look_for(function: BatchFunction) -> None:
    """Polls for the function in the script until it is defined."""
    began = time.monotonic()
    while not function.is_found:
        waited = time.monotonic() - began
        is_script = _is_script(function)
        if is_script:
            function.has_module = True
            if call_safely(function.replace, sys.modules["__main__"]) is None:
                return
        elif is_script is False or waited > _NO_SCRIPT_S:
            return
        if waited > _GIVE_UP_S:
            return  # `_report_failure` says so at the end.
        time.sleep(_PAUSE_S if waited < 60.0 else _LATER_PAUSE_S)


def look_at_end(function: BatchFunction) -> None:
    """Checks a last time: a short program may end before the thread polls again."""
    if not function.is_found and _is_script(function):
        function.has_module = True
        call_safely(function.replace, sys.modules["__main__"])


def _report_failure(function: BatchFunction) -> None:
    process = sys.modules.get("multiprocessing.process")
    look_at_end(function)
    failure = function.failure()
    if failure is not None and (process is None or process.parent_process() is None):
        print_notice(f"--batch-from {function.target}: {failure}")
