"""The prefetching example: its cache, its loader, and runs of the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from running import Runs, clean_environment, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))

from video.clips import Clip, balanced_order, cut, find_videos  # noqa: E402
from video.prefetch import ClipCache, PrefetchingLoader, Settings  # noqa: E402
from video.stages import Batch  # noqa: E402

QUICK = Settings(batch_size=3, frames=2, size=16, ahead=4, threads=2)


def quick_clips(count: int) -> list[Clip]:
    """Clips of the two smaller videos only, because these decode fast."""
    small = [video for video in find_videos() if "bunny" not in video.name]
    return cut(small, count, seconds=0.1, max_skip=0.1, seed=1)


def frames(count: int) -> NDArray[np.uint8]:
    return np.zeros(count, np.uint8)


def indices(batches: list[Batch]) -> list[int]:
    return [int(index) for batch in batches for index in batch.indices]


# --- cache ----------------------------------------------------------------------------------


def test_a_full_cache_drops_the_clip_that_is_used_last() -> None:
    cache = ClipCache(20)
    for index, next_use in ((0, 100), (1, 300), (2, 200)):
        cache.put(index, next_use, frames(10))

    assert [cache.get(index, 400) is not None for index in range(3)] == [True, False, True]
    assert (cache.bytes, cache.hits, cache.misses) == (20, 2, 1)


def test_a_cache_never_holds_more_than_its_bound_and_counts_a_replaced_clip_once() -> None:
    cache = ClipCache(25)
    cache.put(0, 1, frames(10))
    cache.put(0, 2, frames(12))
    assert cache.bytes == 12

    cache.put(1, 1, frames(26))

    assert (cache.bytes, cache.get(1, 3)) == (0, None)


# --- loader ---------------------------------------------------------------------------------


def test_batches_have_the_order_of_the_epoch_for_each_number_of_threads_and_cache_size() -> None:
    clips = quick_clips(20)
    for settings in (
        QUICK,
        Settings(batch_size=3, frames=2, size=16, ahead=50, threads=1, cache_mib=0),
    ):
        with PrefetchingLoader(clips, settings, seed=5) as loader:
            for epoch in range(3):
                loader.set_epoch(epoch)
                batches = list(loader)
                assert len(batches) == len(loader) == 7
                assert indices(batches) == balanced_order(clips, epoch, 5)


def test_cached_clips_have_the_same_frames_as_decoded_ones() -> None:
    clips = quick_clips(9)
    with PrefetchingLoader(clips, QUICK) as cached:
        epochs = []
        for epoch in range(2):
            cached.set_epoch(epoch)
            epochs.append(
                {
                    int(index): clip
                    for batch in cached
                    for index, clip in zip(batch.indices, batch.clips, strict=True)
                }
            )
        assert cached.cache.hits >= 9
    assert all(np.array_equal(epochs[0][index], epochs[1][index]) for index in range(9))


def test_the_pool_works_ahead_up_to_the_bound_and_into_the_next_epoch() -> None:
    with PrefetchingLoader(quick_clips(6), QUICK) as loader:
        iterator = iter(loader)
        next(iterator)
        # An epoch has two batches.
        wait_until(lambda: loader.finished == 4, "four finished batches")
        assert loader.cache.hits + loader.cache.misses >= 15
        iterator.close()


def test_after_an_epoch_that_was_left_early_the_next_one_is_complete() -> None:
    clips = quick_clips(12)
    with PrefetchingLoader(clips, QUICK) as loader:
        for _ in loader:
            break
        loader.set_epoch(1)
        assert indices(list(loader)) == balanced_order(clips, 1, 0)


def test_closing_ends_the_threads() -> None:
    before = set(threading.enumerate())
    with PrefetchingLoader(quick_clips(12), QUICK) as loader:
        next(iter(loader))

    left = [one for one in set(threading.enumerate()) - before if "prefetch" in one.name]
    assert left == []


def test_what_a_thread_raises_reaches_the_loop(tmp_path: Path) -> None:
    clips = [Clip(tmp_path / "missing.mp4", 0.0, 0.1, 0)]
    with PrefetchingLoader(clips, QUICK) as loader, pytest.raises(FileNotFoundError):
        next(iter(loader))


@pytest.mark.parametrize("name", ["ahead", "threads", "batch_size"])
def test_a_setting_that_is_too_small_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` is at least 1: `0`"):
        Settings(**{name: 0})


# --- program --------------------------------------------------------------------------------


QUICK_ARGS = [
    "--clips=24",
    "--batch-size=4",
    "--frames=2",
    "--size=16",
    "--channels=2",
    "--ahead=12",
]


def command(*args: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / "prefetching.py"), *QUICK_ARGS, *args]


def environment(runs: Runs) -> dict[str, str]:
    return {**clean_environment(), "HEADSPACE_DIR": str(runs.path), "OMP_NUM_THREADS": "1"}


def test_the_program_declares_its_stages_its_queue_its_pool_and_its_cache(runs: Runs) -> None:
    done = subprocess.run(
        command("--steps", "150"), env=environment(runs), capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "150 steps" in done.stdout
    summary = runs.summary()
    stages = {stage["name"]: stage for stage in summary["stages"]}
    assert (stages["load"]["concurrency"], stages["load"].get("within")) == (2, None)
    queues = {queue["name"]: queue for queue in summary["queues"]}
    assert (queues["loaded"]["capacity"], queues["loaded"]["last"]) == (12, True)
    assert queues["loaded"]["filled_by"] == "load"
    assert queues["cache (MiB)"]["capacity"] == 16
    assert queues["pool"]["concurrency"] == 2
    # Four clips of two frames of 16 x 16 pixels in three colours, four labels and four indices.
    assert summary["delivered_batch"]["object_bytes"] == 4 * 2 * 16 * 16 * 3 + 2 * 4 * 8


def test_measuring_is_switched_off_and_on_while_a_reader_follows_the_pipe(
    runs: Runs, tmp_path: Path
) -> None:
    pipe = tmp_path / "records"
    os.mkfifo(pipe, 0o600)
    output = tmp_path / "output"
    with output.open("w") as out:
        process = subprocess.Popen(
            command("--steps", "0", "--pipe", str(pipe)),
            env=environment(runs),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    received: list[str] = []

    def follow() -> None:
        with pipe.open() as reader:
            received.extend(json.loads(line)["kind"] for line in reader)

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        wait_until(lambda: epochs_in(output) >= 2, "two epochs")
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: "measurement paused" in output.read_text(), "the pause")
        paused_at = epochs_in(output)
        wait_until(lambda: epochs_in(output) >= paused_at + 6, "six epochs in the pause")
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: "measurement resumed" in output.read_text(), "the end of the pause")
        resumed_at = epochs_in(output)
        wait_until(lambda: epochs_in(output) >= resumed_at + 2, "two more epochs")
    finally:
        process.terminate()
        process.wait()
        reader.join()

    # The last epoch may be incomplete. An epoch has six steps.
    trained = 6 * (epochs_in(output) + 1)
    assert 0 < runs.summary()["steps"] <= trained - 6 * 5
    assert received[0] == "run"
    assert {"tick", "summary"} <= set(received)


def epochs_in(output: Path) -> int:
    return sum(line.startswith("epoch ") for line in output.read_text().splitlines())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ahead", "0"], "`ahead` is at least 1: `0`"),
        (["--cache-mib", "-1"], "`cache_mib` is at least 0: `-1`"),
        (["--data", "/nowhere"], "no .mp4 file below `/nowhere`"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_runs(
    runs: Runs, args: list[str], message: str
) -> None:
    done = subprocess.run(command(*args), env=environment(runs), capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"prefetching.py: {message}"]
