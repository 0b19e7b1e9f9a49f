"""Decorates functions for :func:`headspace.stage`. Imported when the first function is decorated."""

from __future__ import annotations

import inspect
from functools import update_wrapper

from headspace._native import Stage, stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any


def unpickle_stage(name: str, concurrency: int | None, replayable: bool | None) -> Stage:
    """Returns the stage that was pickled."""
    return stage(name, concurrency=concurrency, replayable=replayable)


def decorate(handle: Stage, function: Any) -> Any:
    """Wraps ``function`` so that each of its calls is counted.

    The wrapper of a function is a function of the same kind (coroutine, generator), with the same name,
    signature and documentation. So it is pickled by name as before, and a method is bound as before. The
    wrapper of any other callable is an object that calls it. It is pickled together with the callable.

    Raises:
        TypeError: If ``function`` is a class, or cannot be called.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(handle, function.__func__))
    if isinstance(function, type):
        raise TypeError(
            f"a stage decorates functions, not the class `{function.__qualname__}`: "
            "decorate the method that does the work"
        )
    if not callable(function):
        raise TypeError(
            f"a stage decorates functions, not a `{type(function).__qualname__}` "
            f'(write `with headspace.stage("{handle.name}"):`)'
        )
    if inspect.isasyncgenfunction(function):
        wrapper = _asynchronous_generator(handle, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(handle, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(handle, function)
    elif inspect.isfunction(function):
        wrapper = _function(handle, function)
    else:
        return Timed(handle, function)
    return update_wrapper(wrapper, function)


def _function(handle: Stage, function: Callable[..., Any]) -> Callable[..., Any]:
    call = handle._call

    def timed(*args: Any, **kwargs: Any) -> Any:
        return call(function, args, kwargs)

    return timed


def _coroutine(handle: Stage, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        async with handle:
            return await function(*args, **kwargs)

    return timed


def _generator(handle: Stage, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume, value = generator.send, None
        while True:
            try:
                with handle:
                    item = resume(value)
            except StopIteration as end:
                return end.value
            finally:
                value = None  # The traceback of an exception in `value` refers to this frame.
            try:
                value = yield item
                resume = generator.send
            except GeneratorExit:
                generator.close()
                raise
            except BaseException as error:
                resume, value = generator.throw, error

    return timed


def _asynchronous_generator(handle: Stage, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        resume, value = generator.asend, None
        while True:
            try:
                async with handle:
                    item = await resume(value)
            except StopAsyncIteration:
                return
            finally:
                value = None  # As in `_generator`.
            try:
                value = yield item
                resume = generator.asend
            except GeneratorExit:
                await generator.aclose()
                raise
            except BaseException as error:
                resume, value = generator.athrow, error

    return timed


class Timed:
    """Wraps a callable that is not a Python function (``functools.partial``, a builtin), and counts its calls.

    Its attributes are those of the callable.
    """

    def __init__(self, handle: Stage, function: Any) -> None:
        self._headspace_handle = handle
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._headspace_handle._call(self.__wrapped__, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__", "_headspace_handle"):  # Not set yet, during unpickling.
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Timed, (self._headspace_handle, self.__wrapped__)

    def __repr__(self) -> str:
        return f"{self._headspace_handle!r}({self.__wrapped__!r})"
