"""`headspace.spdl`: stages and queues are recorded under SPDL's names, and pipelines work as before."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from running import Programs, Record, Runs, of_kind
from spdl.pipeline import PipelineBuilder, StageInfo, StatsQueue, TaskStatsHook, config
from spdl.pipeline.defs import Aggregator
from stage_totals import Stage

import headspace
import headspace.spdl
from headspace.spdl._names import remove_addresses

ITEMS = 30

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def quiet_spdl(caplog: pytest.LogCaptureFixture) -> None:
    """Hides SPDL's log messages about errors that the tests cause."""
    caplog.set_level(logging.CRITICAL, "spdl")


@pytest.fixture
def defaults() -> Iterator[None]:
    """Restores SPDL's defaults after the test."""
    hook, queue = config.get_default_hook_class(), config.get_default_queue_class()
    yield
    config.set_default_hook_class(hook)
    config.set_default_queue_class(queue)


Build = Callable[[PipelineBuilder], PipelineBuilder]


def delivered(build: Build, *, work_s: float = 0.0, sink: int = 3, **how: Any) -> list[Any]:
    """The batches of a pipeline over a few numbers."""
    builder = build(PipelineBuilder().add_source(range(how.pop("items", ITEMS))))
    pipeline = builder.add_sink(sink).build(num_threads=4, **how)
    batches = []
    with pipeline.auto_stop():
        for batch in headspace.wrap(pipeline, name="train"):
            time.sleep(work_s)
            batches.append(batch)
    return batches


def recorded_stages(records: list[Record], worker: bool = False) -> dict[str, Stage]:
    """The stages in the ticks: those of this process, or of all its workers together."""
    found: dict[str, Stage] = {}
    for tick in of_kind(records, "tick"):
        for entry in tick.get("stages", []):
            if ("worker" in entry) == worker:
                found.setdefault(entry["name"], Stage()).add(entry)
    return {name: stage for name, stage in found.items() if stage.calls}


def flow(stage: Stage) -> tuple[int, int, int]:
    return stage.items_in, stage.items_out, stage.failures


def run(runs: Runs, build: Build, **how: Any) -> tuple[list[Any], dict[str, Stage]]:
    headspace.start(interval=0.05)
    batches = delivered(build, **how, **headspace.spdl.hooks())
    headspace.stop()
    return batches, recorded_stages(runs.records())


class Halves(Aggregator):  # type: ignore[misc]
    """Yields every second item, and the last one again."""

    def __init__(self) -> None:
        self.count = 0

    def accumulate(self, item: Any) -> Any:
        self.count += 1
        return item if self.count % 2 == 0 else None

    def flush(self) -> Any:
        return "last"


def function(item: int) -> int:
    return item


async def coroutine(item: int) -> int:
    await asyncio.sleep(0)
    return item


def generator(item: int) -> Iterator[tuple[int, int]]:
    for part in range(item % 3):
        yield item, part


async def async_generator(item: int) -> AsyncIterator[tuple[int, int]]:
    for part in range(3):
        await asyncio.sleep(0)
        yield item, part


def fails(item: int) -> int:
    if item % 10 == 3:
        raise ValueError(item)
    return item


def broken_generator(item: int) -> Iterator[int]:
    yield item
    if item % 10 == 3:
        raise ValueError(item)
    yield item


def drops(item: int) -> int | None:
    return item if item % 3 else None


#: Pipelines: how to build each, the name of its last stage, and its items in, items out and failures.
PIPES: dict[str, tuple[Build, str, tuple[int, int, int]]] = {
    "function": (lambda b: b.pipe(function, concurrency=3), "function", (30, 30, 0)),
    "ordered": (
        lambda b: b.pipe(function, concurrency=3, output_order="input"),
        "function",
        (30, 30, 0),
    ),
    "coroutine": (lambda b: b.pipe(coroutine, concurrency=3), "coroutine", (30, 30, 0)),
    "generator": (lambda b: b.pipe(generator, concurrency=3), "generator", (30, 30, 0)),
    "one generator": (lambda b: b.pipe(generator), "generator", (30, 30, 0)),
    "async generator": (
        lambda b: b.pipe(async_generator, concurrency=2),
        "async_generator",
        (30, 90, 0),
    ),
    "failures": (lambda b: b.pipe(fails, concurrency=2), "fails", (30, 27, 3)),
    "generators that fail": (lambda b: b.pipe(broken_generator), "broken_generator", (30, 57, 3)),
    "filter": (lambda b: b.pipe(drops), "drops", (30, 20, 0)),
    "aggregate": (
        lambda b: b.aggregate(7),
        "aggregate(op=collate(7), drop_last=False)",
        (30, 5, 0),
    ),
    "aggregate, the last dropped": (
        lambda b: b.aggregate(7, drop_last=True),
        "aggregate(op=collate(7), drop_last=True)",
        (30, 4, 0),
    ),
    "aggregator of one's own": (
        lambda b: b.aggregate(Halves()),
        "aggregate(op=Halves, drop_last=False)",
        (30, 16, 0),
    ),
    "disaggregate": (lambda b: b.aggregate(7).disaggregate(), "disaggregate", (5, 30, 0)),
}


@pytest.mark.parametrize("kind", PIPES)
def test_counts_of_items_in_and_out_are_exact(runs: Runs, kind: str) -> None:
    build, name, expected = PIPES[kind]

    batches, stages = run(runs, build)

    assert flow(stages[name]) == expected
    assert len(batches) == expected[1]
    assert len(batches) == len(delivered(build)), "as without headspace"


def test_a_generator_that_ends_after_a_tick_has_taken_one_item(runs: Runs) -> None:
    def returns_late(item: int) -> Iterator[int]:
        yield from (item, item, item)
        time.sleep(0.15)  # Three ticks.

    _, stages = run(runs, lambda b: b.pipe(returns_late), items=2)

    assert flow(stages["returns_late"]) == (2, 6, 0)


def test_stages_are_in_pipeline_order_with_declared_and_actual_concurrency(runs: Runs) -> None:
    together = threading.Barrier(3)

    def read(item: int) -> int:
        together.wait(30)
        return item

    _, stages = run(runs, lambda b: b.pipe(read, concurrency=3).pipe(coroutine).aggregate(5))

    name = "aggregate(op=collate(5), drop_last=False)"
    assert [(s, stages[s].concurrency) for s in ("read", "coroutine", name)] == [
        ("read", 3),
        ("coroutine", 1),
        (name, 1),
    ]
    assert stages["read"].peak == 3


def test_stages_with_equal_names_are_numbered_but_not_those_of_a_rebuilt_pipeline(
    runs: Runs,
) -> None:
    headspace.start(interval=0.05)
    for _ in range(3):
        delivered(lambda b: b.pipe(function).pipe(function).pipe(drops), **headspace.spdl.hooks())
    headspace.stop()

    stages = recorded_stages(runs.records())
    assert {name: flow(stage) for name, stage in stages.items()} == {
        "function": (90, 90, 0),
        "function-2": (90, 90, 0),
        "drops": (90, 60, 0),
    }


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("aggregate(op=<a.b.Collate object at 0x7f00>, x=1)", "aggregate(op=Collate, x=1)"),
        ("<function make.<locals>.op at 0x7F00>", "op"),
        ("<bound method A.b of <a.A object at 0x7f00>>", "<bound method A.b of A>"),
        ("<thing at 0x7f00>", "thing"),
        ("decode[4]", "decode[4]"),
    ],
)
def test_stage_names_contain_no_memory_addresses(name: str, cleaned: str) -> None:
    assert remove_addresses(name) == cleaned


def queues(runs: Runs) -> dict[str, Record]:
    """The entries of each queue in the ticks, with times added up."""
    found: dict[str, Record] = {}
    for tick in runs.kind("tick"):
        for entry in tick.get("queues", []):
            before = found.get(entry["name"], {})
            sums = {
                key: before.get(key, 0) + entry[key]
                for key in ("sampled_ms", "empty_ms", "full_ms")
            }
            found[entry["name"]] = {**entry, **sums}
    return found


@pytest.mark.parametrize("slow", ["loader", "loop"])
def test_queues_are_sampled_during_the_whole_run(runs: Runs, slow: str) -> None:
    async def read(item: int) -> int:
        await asyncio.sleep(0.02 if slow == "loader" else 0)
        return item

    begun = time.monotonic()
    run(runs, lambda b: b.pipe(read), work_s=0.02 if slow == "loop" else 0)
    took_ms = (time.monotonic() - begun) * 1e3

    # The records also contain queues of other tests.
    found = {name: queue for name, queue in queues(runs).items() if name.endswith("_queue")}
    assert {name: (q["capacity"], bool(q["last"])) for name, q in found.items()} == {
        "src_queue": (2, False),
        "read_queue": (2, False),
        "sink_queue": (3, True),
    }
    sink = found["sink_queue"]
    # Sampling lasts from the start of the first stage until the last item is removed, which is longer than the waits.
    assert ITEMS * 20 * 0.8 < sink["sampled_ms"] <= took_ms
    assert (sink["empty_ms"] if slow == "loader" else sink["full_ms"]) > 0.5 * sink["sampled_ms"]
    assert found["src_queue"]["full_ms"] > 0.5 * found["src_queue"]["sampled_ms"]


DOCUMENTED = {
    "25 ms": ([25], None),
    "35 ms": ([35], "read_0"),
    "10, 25 and 40 ms": ([10, 25, 40], "read_2"),
    "40, 25 and 10 ms": ([40, 25, 10], "read_0"),
}


@pytest.mark.parametrize("case", DOCUMENTED)
def test_the_documented_cases_of_spdl_get_the_right_verdicts(runs: Runs, case: str) -> None:
    times, stage = DOCUMENTED[case]

    def build(builder: PipelineBuilder) -> PipelineBuilder:
        for number, ms in enumerate(times):
            builder = builder.pipe(sleeper(ms), name=f"read_{number}")
        return builder

    run(runs, build, work_s=0.03, items=50)

    bottleneck = runs.summary()["bottleneck"]
    if stage is None:
        assert bottleneck["kind"] == "compute"
    else:
        assert (bottleneck["kind"], bottleneck["name"]) == ("stage", stage)


def sleeper(ms: float) -> Callable[[int], int]:
    def read(item: int) -> int:
        time.sleep(ms / 1e3)
        return item

    return read


@pytest.mark.parametrize("where", ["pipeline", "region"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_stages_in_other_processes_reach_the_trainer(
    program: Programs, method: str, where: str
) -> None:
    ran = program("spdl_processes.py", method, where)

    assert (ran.exit_code, ran.stdout) == (0, "True\n"), ran.stderr
    workers, own = recorded_stages(ran.records(), worker=True), recorded_stages(ran.records())
    assert flow(workers["decode"]) == (60, 54, 6)
    assert workers["decode"].concurrency == 2
    (aggregate,) = [s for name, s in (workers | own).items() if name.startswith("aggregate")]
    assert flow(aggregate) == (54, 14, 0)
    last = {q["name"] for tick in ran.kind("tick") for q in tick.get("queues", []) if q["last"]}
    assert last == {"sink_queue"}
    if where == "pipeline":  # The queues are in the order of the data flow.
        names = [q["name"].partition("(")[0] for q in ran.summary()["queues"]]
        assert names == ["src_queue", "decode_queue", "aggregate", "sink_queue"]
        stages = {stage["name"]: stage for stage in ran.summary()["stages"]}
        received, sent = stages["hand-off"], stages["hand-off (worker)"]
        assert (received["hand_off"], sent["hand_off"]) == ("receive", "send")
        # The subprocess also sends a few messages about its state.
        assert sent["calls"] == 14 <= received["calls"] <= 20
    assert "worker_lost" not in ran.notices()


# SPDL works as before.


def test_a_headspace_queue_has_exactly_the_type_of_spdl() -> None:
    info = StageInfo(0, "1", "decode")

    queue = headspace.spdl.Queue(info, buffer_size=5, interval=7)

    # If a queue has another type, SPDL passes batches to the training loop on a longer path.
    assert type(queue) is StatsQueue
    assert (queue.maxsize, queue.interval, queue.info) == (5, 7, info)


def test_hooks_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(headspace.spdl.hooks())).keys() == {
        "queue_class",
        "task_hook_factory",
    }


def test_spdls_own_statistics_are_logged_as_before(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    def logged(**how: Any) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "spdl"):
            delivered(lambda b: b.pipe(fails), **how)
        lines = [r.getMessage() for r in caplog.records if "ompleted" in r.getMessage()]
        return [line.split(". ")[0].partition(":")[2] for line in lines]

    assert logged(**headspace.spdl.hooks()) == logged() != []


def test_default_hooks_and_queues_of_the_user_stay_active(runs: Runs, defaults: None) -> None:
    seen: list[Any] = []

    class TheirHook(TaskStatsHook):  # type: ignore[misc]
        def __init__(self, info: StageInfo, interval: float = -1) -> None:
            super().__init__(info, interval)
            seen.append(info.stage_name)

    class TheirQueue(StatsQueue):  # type: ignore[misc]
        async def put(self, item: object) -> None:
            seen.append(item)
            await super().put(item)

    config.set_default_hook_class(TheirHook)
    config.set_default_queue_class(TheirQueue)
    batches, stages = run(runs, lambda b: b.pipe(function))

    assert flow(stages["function"]) == (30, 30, 0)
    assert len(batches) == 30
    assert "function" in seen
    assert seen.count(29) == 3, "through the queues of source, stage and sink"


def test_with_only_the_hook_each_call_counts_one_item(runs: Runs) -> None:
    headspace.start(interval=0.05)
    delivered(lambda b: b.pipe(drops), task_hook_factory=headspace.spdl.task_hook)
    headspace.stop()

    assert flow(recorded_stages(runs.records())["drops"]) == (30, 30, 0)


def test_install_measures_every_later_pipeline(runs: Runs, defaults: None) -> None:
    headspace.spdl.install()
    headspace.spdl.install()

    headspace.start(interval=0.05)
    delivered(lambda b: b.pipe(drops).aggregate(4))
    headspace.stop()

    assert flow(recorded_stages(runs.records())["drops"]) == (30, 20, 0)
    assert queues(runs)["sink_queue"]["last"]


def test_a_thread_output_queue_works_and_is_not_recorded(runs: Runs) -> None:
    batches, stages = run(runs, lambda b: b.pipe(function), use_thread_output_queue=True)

    assert (len(batches), flow(stages["function"])) == (30, (30, 30, 0))
    assert "sink_queue" not in queues(runs)


def test_a_pipeline_ends_when_its_loop_is_left_early(runs: Runs) -> None:
    headspace.start(interval=0.05)
    builder = PipelineBuilder().add_source(itertools.count()).pipe(function, concurrency=2)
    pipeline = builder.add_sink(2).build(num_threads=2, **headspace.spdl.hooks())
    with pipeline.auto_stop():
        got = list(itertools.islice(headspace.wrap(pipeline), 5))
    headspace.stop()

    assert len(got) == 5
    stage = recorded_stages(runs.records())["function"]
    assert stage.failures == 0
    assert stage.items_out >= 5


def test_headspace_0_leaves_the_configuration_of_spdl_unchanged(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, defaults: None
) -> None:
    monkeypatch.setenv("HEADSPACE", "0")

    assert headspace.spdl.hooks() == {}
    assert headspace.spdl.hooks(report_stats_interval=5) == {"report_stats_interval": 5}
    headspace.spdl.install()
    assert config.get_default_queue_class() is StatsQueue
    assert config.get_default_hook_class() is TaskStatsHook


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_without_spdl_the_error_names_the_missing_package() -> None:
    done = python("import sys; sys.modules['spdl'] = None; import headspace, headspace.spdl")

    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: `headspace.spdl` needs the package `spdl`")
    assert "pip install spdl" in last


def test_importing_headspace_does_not_import_spdl() -> None:
    done = python("import sys, headspace; print([m for m in sys.modules if m == 'spdl'])")

    assert done.stdout == "[]\n"
