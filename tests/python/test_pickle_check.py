"""Objects that worker processes would receive: headspace checks whether they can be pickled, and their size."""

from __future__ import annotations

import functools
import gzip
import io
import logging
import mmap
import multiprocessing
import multiprocessing.pool
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Programs, Runs, of_kind, words

import headspace
from headspace import _settings
from headspace._loops.sent_parts import start_method
from headspace._processes.pickle_check import check_parts


@pytest.fixture
def spawn() -> Iterator[None]:
    """Makes `spawn` the start method of this process."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


class Data:
    """A data set with attributes that a test chooses."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> int:
        time.sleep(0.003)
        return index


class Forbids(Data):
    def __getstate__(self) -> Any:
        raise RuntimeError("not outside of this process")


class Prepared(Data):
    """Is pickled without its lock. Pickling also removes the lock from the object, so it becomes unusable here."""

    def __getstate__(self) -> Any:
        attributes = self.__dict__
        attributes["lock"] = None
        return attributes


class PrepareFile(Data):
    """Can be pickled, but must not be shared with forked processes."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Forwards(Data):
    """Fails the test if the check reads an unknown attribute."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"`{name}` was asked for")


class Slots:
    __slots__ = ("inner", "number")

    def __init__(self, inner: Any) -> None:
        self.inner, self.number = inner, 3


class SomeError(Exception):
    pass


def check(**parts: Any) -> dict[str, Any]:
    found = check_parts(parts, _settings.libraries())
    assert found is not None
    return dict(found)


def open_file() -> Any:
    return Path(__file__).open("rb")


OBSTACLES: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "lock": (lambda: Data(lock=threading.Lock()), "dataset.lock", "_thread.lock", "lock"),
    "nested": (
        lambda: Data(reader=Data(cache=[0, {"a": Slots(threading.RLock())}])),
        "dataset.reader.cache[1]['a'].inner",
        "_thread.RLock",
        "lock",
    ),
    "file": (
        lambda: Data(path="a", reader=Data(file=open_file())),
        "dataset.reader.file",
        "_io.BufferedReader",
        "open_file",
    ),
    "database": (
        lambda: Data(store=sqlite3.connect(":memory:")),
        "dataset.store",
        "sqlite3.Connection",
        "open_file",
    ),
    "partial": (
        lambda: functools.partial(lambda item: item, 1),
        "dataset.func",
        "<lambda>.<locals>.<lambda>",
        "local",
    ),
    "class": (lambda: type("Made", (Data,), {})(), "dataset", "Made", "local"),
    "generator": (lambda: Data(items=(n for n in ())), "dataset.items", "generator", "other"),
    "forbids": (lambda: Forbids(), "dataset", f"{__name__}.Forbids", "refuses"),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_what_cannot_be_pickled_is_named_and_a_pickler_agrees(case: str) -> None:
    make, part, type_name, kind = OBSTACLES[case]
    dataset = make()

    found = check(dataset=dataset, other=3)["obstacle"]

    assert (found["part"], found["kind"]) == (part, kind)
    assert found["type_name"] == type_name
    if case in ("partial", "forbids"):
        assert found["file"] == __file__
        assert found["line"] > 1
    with pytest.raises(Exception, match=r".+"):
        ForkingPickler.dumps(dataset)


def healthy_parts() -> dict[str, Any]:
    return {
        "numbers": Data(a=1, b=2.0, c=None, d=(1, [2, {3}, frozenset((4,))]), e={"k": b"v"}),
        "arrays": Data(a=np.ones(10), b=np.array(["x", 1], dtype=object), c=np.dtype("f4")),
        "functions": Data(a=healthy_parts, b=functools.partial(print, 1), c=len, d=Data().__len__),
        "libraries": Data(
            a=Path("/a"),
            b=np.random.default_rng(0),
            c=functools.lru_cache(healthy_parts),
            d=SomeError("x"),
        ),
        "slots": Slots([1]),
    }


@pytest.mark.parametrize("name", [*healthy_parts()])
def test_what_can_be_pickled_is_no_obstacle_and_a_pickler_agrees(name: str) -> None:
    part = healthy_parts()[name]
    if name == "libraries":
        del part.c  # A cache of this function is not found by its name.

    found = check(dataset=part)

    assert found["obstacle"] is None
    assert not found["at_least"]
    ForkingPickler.dumps(part)


def test_no_code_of_the_program_runs() -> None:
    lock = threading.Lock()
    prepared, forwards = Prepared(lock=lock, names=["a"]), Forwards(lock=lock)

    of_prepared, of_forwards = check(dataset=prepared), check(dataset=forwards)

    assert prepared.lock is lock
    # `Prepared` has its own `__getstate__`, so the size of its pickle is unknown.
    assert (of_prepared["obstacle"], of_prepared["at_least"]) == (None, True)
    assert of_forwards["obstacle"]["part"] == "dataset.lock"


def test_the_size_is_that_of_the_pickle() -> None:
    samples = [(f"images/{number:08d}.jpg", number % 1000) for number in range(50_000)]
    dataset = Data(
        samples=samples,
        mean=np.ones(1 << 20),
        names=["same"] * 1000,
        index={n: str(n) for n in range(999)},
    )

    found = check(dataset=dataset)

    assert not found["at_least"]
    assert found["bytes"] == pytest.approx(len(ForkingPickler.dumps(dataset)), rel=0.25)
    assert found["objects"] == pytest.approx(2 * len(samples), rel=0.1)


def test_some_equal_elements_do_not_hide_the_size_of_the_others() -> None:
    dataset = Data(masks=[None if number % 20 == 0 else np.ones(512) for number in range(2000)])

    found = check(dataset=dataset)

    assert found["bytes"] == pytest.approx(len(ForkingPickler.dumps(dataset)), rel=0.25)


def test_the_check_ends_for_endless_and_huge_objects() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    itself: list[Any] = []
    itself.append(itself)

    assert check(dataset=nested)["at_least"]
    assert check(dataset=itself)["obstacle"] is None


def test_to_ask_for_the_start_method_does_not_set_it() -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        assert start_method() == multiprocessing.get_all_start_methods()[0]
        assert multiprocessing.get_start_method(allow_none=True) is None
    finally:
        multiprocessing.set_start_method(before, force=True)


def remedy_of(runs: Runs, dataset: Any, **arguments: Any) -> dict[str, Any]:
    """The remedy that proposes worker processes for a loader without them."""
    data = pytest.importorskip("torch.utils.data")
    for _ in headspace.wrap(data.DataLoader(dataset, batch_size=4, **arguments)):
        time.sleep(0.006)
    headspace.stop()
    remedies = runs.summary()["remedies"]
    (found,) = [one for one in remedies if one.get("change", {}).get("knob") == "num_workers"]
    return dict(found)


@pytest.mark.usefixtures("spawn")
@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        (
            Data(lock=threading.Lock()),
            "First create `dataset.lock` in each process: a new process gets it by pickling",
        ),
        (
            Data(reader=Data(file=open_file())),
            "First open `dataset.reader.file` in each process, when it is first used",
        ),
        (
            Forbids(),
            "First make `dataset` picklable: a new process gets it by pickling, and the class",
        ),
    ],
    ids=["lock", "file", "forbids"],
)
def test_the_verdict_says_first_what_must_be_made_picklable(
    dataset: Any, sentence: str, runs: Runs
) -> None:
    remedy = remedy_of(runs, dataset)

    assert words(remedy["what"]).startswith(sentence)
    assert "Then load in" in remedy["what"]
    assert remedy["obstacle"]["part"].startswith("dataset")


class Batches:
    """A loader of the program, with a stage on the training thread."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)

    def __iter__(self) -> Iterator[int]:
        stage = headspace.stage("load")
        for number in range(60):
            with stage:
                # Holds the interpreter lock, so a process is proposed and not a thread.
                sum(range(300_000))
            yield number


@pytest.mark.usefixtures("spawn")
def test_a_loader_of_the_program_is_checked_before_a_process_is_proposed(runs: Runs) -> None:
    for _ in headspace.wrap(Batches(state=Data(lock=threading.Lock()))):
        sum(range(300_000))
    headspace.stop()

    sent = of_kind(runs.records(), "run")[0]["loader"]["sent"]
    assert sent["obstacle"]["part"] == "loader.state.lock"


@pytest.mark.usefixtures("spawn")
def test_a_generator_is_not_checked(runs: Runs) -> None:
    for _ in headspace.wrap(number for number in range(20)):
        pass
    headspace.stop()

    assert of_kind(runs.records(), "run")[0]["loader"].get("sent") is None


@pytest.mark.usefixtures("spawn")
def test_a_lambda_is_named_by_its_file_and_line(runs: Runs) -> None:
    remedy = remedy_of(runs, Data(), collate_fn=lambda items: items)

    assert remedy["obstacle"]["part"] == "collate_fn"
    assert f"test_pickle_check.py:{remedy['obstacle']['line']}" in remedy["what"]
    assert "at the top level of a module" in remedy["what"]


@pytest.mark.usefixtures("spawn")
def test_a_healthy_data_set_gets_no_remark(runs: Runs) -> None:
    remedy = remedy_of(runs, Data(paths=["a"] * 100, mean=np.ones(10)))

    assert "obstacle" not in remedy
    assert remedy["what"].startswith("Load in")
    assert "pickling" not in remedy["what"]
    assert remedy["process_start_ms"] < 10


@pytest.mark.usefixtures("spawn")
def test_a_large_data_set_is_named_with_its_size_and_its_start(runs: Runs) -> None:
    remedy = remedy_of(runs, Data(images=np.zeros(200 << 20, np.uint8)))

    assert "Each process gets about 200 MiB by pickling" in words(remedy["what"])
    assert remedy["process_start_ms"] > 100


def test_with_fork_nothing_is_said_of_what_cannot_be_pickled(runs: Runs) -> None:
    multiprocessing.set_start_method("fork", force=True)
    remedy = remedy_of(runs, Data(lock=threading.Lock(), images=np.zeros(200 << 20, np.uint8)))

    assert not {"obstacle", "process_start_ms"} & remedy.keys()
    assert remedy["what"].startswith("Load in")


def test_with_fork_the_verdict_says_first_which_files_would_be_shared(runs: Runs) -> None:
    multiprocessing.set_start_method("fork", force=True)
    index = Data(database=sqlite3.connect(":memory:"))
    remedy = remedy_of(runs, PrepareFile(file=open_file(), index=index, lock=threading.Lock()))

    assert remedy["obstacle"]["kind"] == "shared_file"
    assert words(remedy["what"]).startswith(
        "First open `dataset.file` in each process, when it is first used: forked processes share "
        "an open file or database (`_io.BufferedReader`) and its state. `dataset.index.database` "
        "must be changed too. Then load in"
    )
    assert "process_start_ms" not in remedy


def check_forked(**parts: Any) -> list[str]:
    """The parts that forked processes must not share."""
    found = check_parts(parts, _settings.libraries(), (), True)
    return [] if found is None else [found["obstacle"]["part"], *found["other_obstacles"]]  # type: ignore[index]


def test_with_fork_files_that_are_written_closed_or_in_memory_are_no_obstacle(
    tmp_path: Path,
) -> None:
    closed = open_file()
    closed.close()
    with (
        (tmp_path / "log").open("w") as log,
        open(0, closefd=False) as terminal,
        open_file() as source,
        mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        kept = Data(log=log, memory=io.BytesIO(b"a"), lock=threading.Lock(), closed=closed)
        assert check_forked(dataset=kept, terminal=terminal, mapped=mapped) == []


def test_with_fork_compressed_files_and_archives_are_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "a")
    with gzip.open(tmp_path / "a.gz", "wb") as packed:
        packed.write(b"a")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, gzip.open(tmp_path / "a.gz") as packed:
        data = Data(archive=archive, packed=[Slots(packed)], files={"x": open_file()})
        assert check_forked(dataset=data) == [
            "dataset.archive",
            "dataset.packed[0].inner",
            "dataset.files['x']",
        ]


def test_with_fork_the_verdict_says_first_which_threads_would_be_missing(runs: Runs) -> None:
    multiprocessing.set_start_method("fork", force=True)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(len, "").result()
        remedy = remedy_of(runs, Data(reader=Data(pool=pool)))

    assert remedy["obstacle"]["kind"] == "threads"
    assert words(remedy["what"]).startswith(
        "First create `dataset.reader.pool` in each process, when it is first used: forked "
        "processes do not get running threads (`concurrent.futures.thread.ThreadPoolExecutor`). "
        "Then load in"
    )


class OwnThread(threading.Thread):
    """A thread whose `is_alive` and `__eq__` must not be called."""

    def is_alive(self) -> bool:
        raise AssertionError

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = threading.Thread.__hash__


class OwnPool(ThreadPoolExecutor):
    """An executor of the program."""


def test_with_fork_running_threads_and_pools_that_have_some_are_named() -> None:
    end = threading.Event()
    thread = OwnThread(target=end.wait)
    thread.start()
    with OwnPool(1) as executor, multiprocessing.pool.ThreadPool(1) as pool:
        executor.submit(len, "").result()
        try:
            assert check_forked(dataset=Data(executor=executor, inner=[pool], thread=thread)) == [
                "dataset.executor",
                "dataset.inner[0]",
                "dataset.thread",
            ]
        finally:
            end.set()
            threading.Thread.join(thread)


def test_with_fork_threads_that_are_not_running_or_fork_themselves_are_no_obstacle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A thread refers to it, and pytest replaces it by a file that can be read.
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    finished, unstarted = threading.Thread(), threading.Thread()
    finished.start()
    finished.join()
    ended = ThreadPoolExecutor(1)
    ended.submit(len, "").result()
    ended.shutdown()
    data = Data(unused=ThreadPoolExecutor(1), ended=ended, finished=finished, unstarted=unstarted)
    found = []

    def check_here() -> None:
        here = Data(data=data, current=threading.current_thread(), main=threading.main_thread())
        found.append(check_forked(dataset=here))

    training = threading.Thread(target=check_here)
    training.start()
    training.join()
    assert found == [[]]


def test_with_fork_a_thread_of_a_log_is_no_obstacle() -> None:
    log = logging.getLogger("headspace-test.threads")
    handler = logging.NullHandler()
    end = threading.Event()
    handler.thread = threading.Thread(target=end.wait)  # type: ignore[attr-defined]
    handler.thread.start()  # type: ignore[attr-defined]
    log.addHandler(handler)
    try:
        assert check_forked(dataset=Data(log=log)) == []
    finally:
        log.removeHandler(handler)
        end.set()


class Registry(dict[str, Any]):
    """A dictionary with code of its own."""

    def items(self) -> Any:
        raise AssertionError


def test_with_fork_no_code_of_a_library_or_of_the_program_runs() -> None:
    class Raises:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise AssertionError

    held = Registry(a=Raises(open_file()))
    assert check_forked(dataset=held) == ["dataset['a'].inner"]


def test_the_first_four_parts_that_cannot_be_pickled_are_named() -> None:
    data = Data(
        lock=threading.Lock(),
        file=open_file(),
        number=3,
        call=lambda: 0,
        again=threading.Lock(),
        fifth=threading.Lock(),
    )
    found = check(dataset=data)

    assert found["obstacle"]["part"] == "dataset.lock"
    assert found["other_obstacles"] == ["dataset.file", "dataset.call", "dataset.again"]


def test_a_pipeline_of_spdl_is_checked_when_it_is_built(program: Programs) -> None:
    pytest.importorskip("spdl.pipeline")
    run = program("spdl_sent_parts.py")

    sent = of_kind(run.records(), "run")[0]["loader"]["sent"]

    assert sent["obstacle"]["part"].startswith("pipeline.pipes[0]")
    assert sent["obstacle"]["kind"] == "local"
    assert sent["obstacle"]["type_name"].endswith("decode")


def test_a_class_of_an_interactive_session_is_named() -> None:
    code = (
        "import sys; from headspace._processes.pickle_check import check_parts\n"
        "class Data: pass\n"
        "print(check_parts({'dataset': Data()}, [])['obstacle'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "'kind': 'interactive'" in done.stdout
    assert "'type_name': 'Data'" in done.stdout
