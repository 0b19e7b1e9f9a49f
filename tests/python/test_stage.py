"""`headspace.stage` counts each call, and the called code behaves as before."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import Runs
from stage_totals import stage as counted
from stage_totals import stages

import headspace

_examples = itertools.count()


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


# Blocks.


def test_every_with_block_is_one_call(session: headspace.Session, name: str) -> None:
    decode = headspace.stage(name)
    for _ in range(100):
        with decode:
            pass
    with headspace.stage(name):
        pass

    seen = counted(session, name)

    assert (seen.calls, seen.items_in, seen.items_out) == (101, 101, 101)
    assert (seen.failures, seen.bytes, seen.peak) == (0, None, 1)
    assert seen.within is None
    assert seen.nested_ms == 0


def test_items_and_bytes_are_those_that_the_user_reports(
    session: headspace.Session, name: str
) -> None:
    decode = headspace.stage(name, concurrency=4)
    for _ in range(10):
        with decode as work:
            work.items(inputs=1, outputs=6, bytes=1000)
    for _ in range(10):
        with decode as work:  # A filter that removes all items, reported in parts.
            work.items(inputs=2)
            work.items(inputs=3, bytes=1)
            work.items(outputs=0)
    with decode as work:
        work.items(outputs=-5)  # A negative number counts as 0 and raises no error.

    seen = counted(session, name)

    assert seen.calls == 21
    assert seen.items_in == 10 * 1 + 10 * 5 + 1
    assert seen.items_out == 10 * 6
    assert seen.bytes == 10_010
    assert seen.concurrency == 4


def test_recorded_durations_are_those_of_the_blocks(session: headspace.Session, name: str) -> None:
    resize = headspace.stage(name)
    begin = time.perf_counter()
    for number in range(60):
        with resize:
            spin(0.02 if number % 10 == 0 else 0.002)
    took_ms = (time.perf_counter() - begin) * 1e3

    seen = counted(session, name)

    # Each call took at least this long, and all calls together no longer than the loop.
    assert 6 * 20 + 54 * 2 <= seen.time_ms <= took_ms
    assert seen.percentile_ms(0.05) >= 1.98
    assert seen.percentile_ms(0.5) <= took_ms / 30
    assert seen.percentile_ms(0.95) >= 19.8


def test_exceptions_pass_and_count_as_failures(session: headspace.Session, name: str) -> None:
    decode = headspace.stage(name)
    for error in (ValueError("a"), KeyboardInterrupt(), RuntimeError("b")):
        with pytest.raises(type(error)) as caught, decode:
            raise error
        assert caught.value is error

    seen = counted(session, name)

    assert (seen.calls, seen.failures, seen.items_in, seen.items_out) == (3, 3, 3, 0)


def test_stop_iteration_and_cancellation_are_not_failures(
    session: headspace.Session, name: str
) -> None:
    fetch = headspace.stage(name)
    source = iter([1, 2])
    for _ in range(2):
        with fetch:
            next(source)
    with pytest.raises(StopIteration), fetch:
        next(source)
    with pytest.raises(asyncio.CancelledError), fetch:
        raise asyncio.CancelledError

    seen = counted(session, name)

    # `StopIteration` means that there was no call. The cancelled call took an item in.
    assert (seen.calls, seen.failures, seen.items_in, seen.items_out) == (3, 0, 3, 2)


def test_a_stage_may_be_called_within_itself(session: headspace.Session, name: str) -> None:
    walk = headspace.stage(name)

    def visit(depth: int) -> None:
        with walk as work:
            if depth:
                visit(depth - 1)
            else:
                spin(0.01)
            work.items(outputs=depth)

    visit(5)

    seen = counted(session, name)
    assert (seen.calls, seen.items_out, seen.peak) == (6, 15, 6)
    assert seen.within is None
    # Six nested calls contain the same 10 ms. Five of them are within another call.
    assert seen.time_ms >= 60
    assert 49 <= seen.nested_ms <= seen.time_ms - 9.9


def test_the_time_of_nested_stages_is_counted_separately(
    session: headspace.Session, name: str
) -> None:
    outer, inner, alone = (
        headspace.stage(f"{name} {part}") for part in ("outer", "inner", "alone")
    )
    for _ in range(3):
        with outer:
            spin(0.002)
            with inner:
                spin(0.006)
            with inner:
                pass
        with alone:
            pass
    with inner:  # From now on, `inner` is also called outside of `outer`.
        pass

    seen = stages(session)

    assert seen[f"{name} outer"].within is None
    assert 3 * 6 <= seen[f"{name} outer"].nested_ms <= seen[f"{name} outer"].time_ms - 3 * 2
    assert seen[f"{name} inner"].calls == 7
    assert seen[f"{name} inner"].within is None
    assert seen[f"{name} inner"].nested_ms == 0
    assert seen[f"{name} alone"].within is None


def test_the_enclosing_stage_is_named(session: headspace.Session, name: str) -> None:
    @headspace.stage(f"{name} load")
    def load() -> None:
        with headspace.stage(f"{name} decode"):
            pass

    for _ in range(5):
        load()

    assert counted(session, f"{name} decode").within == f"{name} load"


def test_many_threads_on_one_handle_lose_no_call(session: headspace.Session, name: str) -> None:
    decode = headspace.stage(name)
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        with decode:
            together.wait()  # All threads are within the stage.
        for _ in range(2000):
            with decode as call:
                call.items(outputs=2)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()

    seen = counted(session, name)
    assert (seen.calls, seen.items_out) == (8 * 2001, 8 * 4001)
    assert seen.peak == 8
    assert seen.within is None


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    threads=st.lists(
        st.recursive(
            st.just(()), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_nesting_of_stages_on_any_threads_is_counted_exactly(
    runs: Runs, threads: list[tuple[Any, ...]]
) -> None:
    number = next(_examples)
    handles = [headspace.stage(f"any {number} {depth % 2}") for depth in range(2)]

    def run(tree: tuple[Any, ...], depth: int = 0) -> int:
        with handles[depth % 2]:
            return 1 + sum(run(inner, depth + 1) for inner in tree)

    session = headspace.start(interval=60)
    with ThreadPoolExecutor(len(threads)) as pool:
        expected = sum(pool.map(run, threads))
    seen = stages(session)
    session.stop()

    mine = [stage for name, stage in seen.items() if name.startswith(f"any {number} ")]
    assert sum(stage.calls for stage in mine) == expected
    assert all(stage.nested_ms <= stage.time_ms for stage in mine)


def test_blocks_that_end_out_of_order_keep_their_time(
    session: headspace.Session, name: str
) -> None:
    one, other = headspace.stage(f"{name} one"), headspace.stage(f"{name} other")

    def suspended(stage: Any) -> Iterator[None]:
        with stage:
            yield

    def now_ms() -> float:
        return time.perf_counter_ns() / 1e6

    generators = [suspended(stage) for stage in (one, one, other, one)]
    begins = []
    for generator in generators:
        before = now_ms()
        next(generator)
        begins.append((before, now_ms()))
    spin(0.01)
    bounds = []
    for generator, (before, after) in zip(generators, begins, strict=True):  # First in, first out.
        shortest = now_ms() - after
        next(generator, None)
        bounds.append((shortest, now_ms() - before))
        spin(0.002)

    seen = stages(session)
    assert (seen[f"{name} one"].calls, seen[f"{name} other"].calls) == (3, 1)
    shortest, longest = (sum(bounds[i][which] for i in (0, 1, 3)) for which in range(2))
    assert shortest <= seen[f"{name} one"].time_ms <= longest
    assert bounds[2][0] <= seen[f"{name} other"].time_ms <= bounds[2][1]
    # A bucket of the histogram is less than 2 % wide.
    assert seen[f"{name} one"].percentile_ms(0.01) <= 1.02 * bounds[0][1]
    for stage in seen.values():
        assert stage.nested_ms <= stage.time_ms
        assert stage.within is None


def test_a_block_may_end_on_another_thread(session: headspace.Session, name: str) -> None:
    def suspended() -> Iterator[int]:
        with headspace.stage(name):
            yield 1

    generator = suspended()
    parked = threading.Event()
    go_on = threading.Event()

    def begin() -> None:
        next(generator)
        parked.set()
        go_on.wait()

    thread = threading.Thread(target=begin)
    thread.start()
    parked.wait()
    spin(0.01)
    generator.close()
    go_on.set()
    thread.join()

    seen = counted(session, name)
    assert (seen.calls, seen.failures) == (1, 0)
    assert seen.time_ms >= 10


def test_stages_work_in_an_exit_stack(session: headspace.Session, name: str) -> None:
    async def enter() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(headspace.stage(name))

    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(headspace.stage(name))
    asyncio.run(enter())

    assert counted(session, name).calls == 6


# Coroutines.


def test_interleaved_tasks_have_separate_times(session: headspace.Session, name: str) -> None:
    fetch = headspace.stage(name)
    order: list[asyncio.Event] = []

    async def work(number: int) -> None:
        async with fetch as work:
            await order[number].wait()
            work.items(outputs=number)

    async def main() -> None:
        order.extend(asyncio.Event() for _ in range(10))
        tasks = [asyncio.create_task(work(number)) for number in range(10)]
        await asyncio.sleep(0)
        for number in range(10):  # The task that began first ends first. One ends every 5 ms.
            spin(0.005)
            order[number].set()
            await tasks[number]

    asyncio.run(main())

    seen = counted(session, name)
    assert (seen.calls, seen.items_out, seen.peak) == (10, 45, 10)
    assert seen.time_ms >= 5 * 55
    # The calls take 5, 10, 15, ... 50 ms. If each end were paired with the newest begin, each would take 25 to 30 ms.
    assert seen.percentile_ms(1.0) >= 49
    assert (seen.nested_ms, seen.within) == (0, None)


def test_a_decorated_coroutine_function_is_still_a_coroutine_function(
    session: headspace.Session, name: str
) -> None:
    @headspace.stage(name)
    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        if number == 3:
            raise ValueError(number)
        if number == 4:
            await asyncio.Event().wait()
        return number

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(fetch(number)) for number in range(5)]
        await asyncio.sleep(0.01)
        tasks[4].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())

    assert inspect.iscoroutinefunction(fetch)
    assert results[:3] == [0, 1, 2]
    assert [type(result) for result in results[3:]] == [ValueError, asyncio.CancelledError]
    seen = counted(session, name)
    assert (seen.calls, seen.failures, seen.items_out) == (5, 1, 3)


# Functions.

TOP = headspace.stage("at the top of a module")


@TOP
def doubled(number: int, *, plus: int = 0) -> int:
    """Twice as much."""
    return 2 * number + plus


def plain(number: int) -> int:
    return 2 * number


def test_a_decorated_function_is_the_same_to_its_callers() -> None:
    assert doubled(3, plus=1) == 7
    assert inspect.isfunction(doubled)
    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Twice as much.")
    assert str(inspect.signature(doubled)) == "(number: 'int', *, plus: 'int' = 0) -> 'int'"
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'number'"):
        doubled()  # type: ignore[call-arg]


def test_a_decorated_callable_object_is_pickled_with_its_stage(
    session: headspace.Session, name: str
) -> None:
    collate = headspace.stage(name)(functools.partial(plain, 4))

    again = pickle.loads(pickle.dumps(collate))

    assert (collate(), again(), again.func) == (8, 8, plain)
    assert counted(session, name).calls == 2


def test_decorated_methods_of_every_kind_are_bound_correctly(
    session: headspace.Session, name: str
) -> None:
    stage = headspace.stage(name)

    class Reader:
        factor = 3

        @stage
        def of_object(self, number: int) -> int:
            return self.factor * number

        @classmethod
        @stage
        def of_class(cls, number: int) -> int:
            return cls.factor * number

        @stage
        @staticmethod
        def of_nobody(number: int) -> int:
            return number

        @stage
        @classmethod
        def outside(cls, number: int) -> int:
            return cls.factor * number

    reader = Reader()
    assert [reader.of_object(1), reader.of_class(2), reader.of_nobody(3), Reader.outside(4)] == [
        3,
        6,
        3,
        12,
    ]
    assert counted(session, name).calls == 4


@pytest.mark.parametrize("wrong", [int, 5])
def test_decorating_anything_except_a_function_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a stage decorates functions"):
        headspace.stage("refused")(wrong)


def test_the_innermost_frames_of_a_traceback_are_those_of_the_function(name: str) -> None:
    def fails() -> None:
        {}["missing"]  # type: ignore[index]

    def tail(call: Callable[[], None]) -> str:
        try:
            call()
        except KeyError:
            return "".join(traceback.format_exc().splitlines(keepends=True)[-4:])
        raise AssertionError

    assert tail(headspace.stage(name)(fails)) == tail(fails)
    assert sys.exc_info() == (None, None, None)


# Generators.


def test_each_item_of_a_generator_is_one_call(session: headspace.Session, name: str) -> None:
    @headspace.stage(name)
    def items(count: int) -> Iterator[int]:
        for number in range(count):
            spin(0.002)
            yield number

    got = []
    for item in items(10):
        spin(0.01)  # The time of the consumer does not count for the stage.
        got.append(item)

    assert got == list(range(10))
    assert inspect.isgeneratorfunction(items)
    seen = counted(session, name)
    assert (seen.calls, seen.items_out, seen.failures) == (10, 10, 0)
    assert seen.time_ms >= 20
    assert seen.percentile_ms(0.5) < 10


def test_decorated_generators_support_send_throw_close_and_return(
    session: headspace.Session, name: str
) -> None:
    closed = []

    def echo() -> Any:
        got = None
        try:
            while got != "end":
                try:
                    got = yield got
                except ValueError as error:
                    got = f"caught {error}"
        finally:
            closed.append(True)
        return "returned"

    decorated = headspace.stage(name)(echo)
    generator = decorated()
    assert [next(generator), generator.send(1), generator.throw(ValueError("x"))] == [
        None,
        1,
        "caught x",
    ]
    with pytest.raises(StopIteration) as end:
        generator.send("end")
    assert end.value.value == "returned"

    generator = decorated()
    next(generator)
    generator.close()
    assert closed == [True, True]

    generator = decorated()
    next(generator)
    with pytest.raises(KeyError, match="passed on"):
        generator.throw(KeyError("passed on"))

    seen = counted(session, name)
    # The calls are 3 + 1 + 1 items, and the one that raised an error.
    assert (seen.calls, seen.items_out, seen.failures) == (6, 5, 1)


def test_each_item_of_an_async_generator_is_one_call(session: headspace.Session, name: str) -> None:
    closed = []

    @headspace.stage(name)
    async def items(count: int) -> AsyncIterator[int]:
        try:
            for number in range(count):
                await asyncio.sleep(0)
                yield number
        finally:
            closed.append(count)

    async def main() -> list[int]:
        got = [item async for item in items(5)]
        left: Any = items(7)
        got.append(await anext(left))
        await left.aclose()
        failing: Any = items(9)
        await anext(failing)
        with pytest.raises(KeyError):
            await failing.athrow(KeyError("x"))
        return got

    assert asyncio.run(main()) == [0, 1, 2, 3, 4, 0]
    assert closed == [5, 7, 9]
    assert inspect.isasyncgenfunction(items)
    seen = counted(session, name)
    assert (seen.calls, seen.items_out, seen.failures) == (8, 7, 1)


# Handles.


def test_a_stage_handle_can_replace_its_name_and_is_copied_as_itself(name: str) -> None:
    decode = headspace.stage(name, concurrency=3)

    assert headspace.stage(name) is decode
    assert pickle.loads(pickle.dumps(decode)) is decode
    assert copy.deepcopy(decode) is decode
    assert headspace.stage(name=name) is decode
    assert pickle.loads(pickle.dumps(headspace.stage)) is headspace.stage
    assert str(inspect.signature(headspace.stage)) == "(name, *, concurrency=None, replayable=None)"
    assert type(decode).__enter__(decode) is decode  # `contextlib.ExitStack` calls it this way.
    type(decode).__exit__(decode, None, None, None)
    with pytest.raises(TypeError):
        headspace.stage([])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'concurency'"):
        headspace.stage(name, concurency=3)  # type: ignore[call-arg]
    assert (decode.name, repr(decode)) == (name, f'headspace.stage("{name}")')
    with pytest.raises(ValueError, match="not a count of at least 1"):
        headspace.stage(name, concurrency=0)
    with pytest.raises(ValueError, match="not a count of at least 1: -1"):
        headspace.stage(name, concurrency=-1)


def test_calls_timed_elsewhere_are_counted(session: headspace.Session, name: str) -> None:
    stage = headspace.stage(name)
    stage.record(0.5, outputs=6, bytes=10, cpu_seconds=0.2)
    stage.record(0.25, failed=True, cpu_seconds=-1.0)
    for no_duration in (float("nan"), -1.0, float("inf")):
        stage.record(no_duration)

    seen = counted(session, name)
    assert (seen.calls, seen.failures, seen.items_out, seen.bytes) == (2, 1, 6, 10)
    assert 749 < seen.time_ms < 751
    assert 199 < seen.cpu_ms < 201


def test_a_stage_needs_no_session_and_works_across_sessions(runs: Runs, name: str) -> None:
    decode = headspace.stage(name)
    with decode:
        pass
    with headspace.start(interval=60) as session:
        for _ in range(3):
            with decode:
                pass
        during = counted(session, name)
    with decode:
        pass

    assert during.calls == 3


OFF = """
import headspace, sys
stage = headspace.stage("x")
def work(): return 1
assert stage(work) is work
with stage as handle:
    handle.items(outputs=3)
stage.record(1.0)
async def main():
    async with stage: pass
import asyncio; asyncio.run(main())
q = object()
assert headspace.queue("q", q) is q
"""


def test_with_headspace_0_a_stage_does_nothing(tmp_path: Any) -> None:
    environ = {**os.environ, "HEADSPACE": "0", "HEADSPACE_DIR": str(tmp_path / "runs")}
    subprocess.run([sys.executable, "-c", OFF], env=environ, cwd=tmp_path, check=True, timeout=60)
    assert not (tmp_path / "runs").exists()


def test_a_forked_child_has_its_own_counts_and_can_end_a_block_of_its_parent(
    session: headspace.Session, name: str
) -> None:
    decode = headspace.stage(name)
    with decode:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with decode:
                    for _ in range(5):
                        with decode:
                            pass
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0

    assert counted(session, name).calls == 1
