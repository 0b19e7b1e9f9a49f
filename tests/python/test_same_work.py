"""Ranks and workers that do the same work are found: by the contents of their batches, and by the files they read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from running import Programs, Runs, rank_environment, words

from headspace._loops.batch_digest import digest_batch


def report(run: Runs, *options: str) -> str:
    command = [sys.executable, "-m", "headspace", "report", str(run.folder), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_said(run: Runs, sentence: str) -> bool:
    return sentence in words(report(run))


@pytest.mark.parametrize(("batches", "found"), [("same", 2), ("own", None)])
def test_ranks_that_train_on_the_same_batches_are_found(
    program: Programs, tmp_path: Path, batches: str, found: int | None
) -> None:
    for rank in range(2):
        env = rank_environment(rank)
        run = program("rank_batches.py", batches, env=env, runs=tmp_path / "runs")
        assert run.exit_code == 0, run.stderr
        assert len(run.summary(rank)["batch_digests"]) == 16

    assert json.loads(report(run, "--json"))["ranks"].get("ranks_with_same_batches") == found
    assert is_said(run, "2 ranks train on the same batches.") == (found is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "found"), [(0, 2), (4, None)])
def test_ranks_that_read_the_same_files_in_the_same_order_are_found(
    program: Programs, tmp_path: Path, first: int, found: int | None
) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(8):
        (shards / f"{number}.bin").write_bytes(bytes([number]) * 6000)
    started = [
        program.start(
            "shards.py", shards, rank * first, env=rank_environment(rank), runs=tmp_path / "runs"
        )
        for rank in range(2)
    ]
    run, _ = (process.finish() for process in started)

    names = [Path(file["path"]).name for file in run.summary()["data_files"]]
    assert names == [f"{number}.bin" for number in range(8)]
    ranks = json.loads(report(run, "--json"))["ranks"]
    assert ranks.get("ranks_reading_same_files") == found


def test_a_single_rank_has_no_digests(program: Programs) -> None:
    run = program("rank_batches.py", "same")
    assert "batch_digests" not in run.summary()


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "is_found"), [("whole", True), ("split", False)])
def test_workers_that_each_load_the_whole_stream_are_found(
    program: Programs, parts: str, is_found: bool
) -> None:
    pytest.importorskip("torch")
    run = program("stream_workers.py", parts)

    assert run.exit_code == 0, run.stderr
    codes = [finding["code"] for finding in run.summary()["findings"]]
    assert ("same_batches_in_workers" in codes) == is_found
    assert is_said(run, "Each of the 2 worker processes loads the whole stream") == is_found


def tensors(kind: str) -> Any:
    torch = pytest.importorskip("torch")
    return {"pixels": torch.arange(6, dtype=getattr(torch, kind)).reshape(2, 3), "labels": [1, 2]}


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "uint8"])
def test_equal_tensors_have_equal_digests(kind: str) -> None:
    first, second, changed = tensors(kind), tensors(kind), tensors(kind)
    changed["pixels"][1, 2] = 9

    assert digest_batch(first) == digest_batch(second)
    assert digest_batch(first) != digest_batch(changed)


def test_batches_of_a_tokenizer_have_a_digest() -> None:
    assert digest_batch(UserDict(ids=[1, 2])) == digest_batch({"ids": [1, 2]})


class ArrayOnGpu:
    shape = (2, 3)
    dtype = "float32"
    device = "cuda:0"


@pytest.mark.parametrize("batch", [(ArrayOnGpu(), 7), {"image": object(), "label": 1}, [], [None]])
def test_batches_that_cannot_be_read_have_no_digest(batch: Any) -> None:
    assert digest_batch(batch) is None


def test_a_missing_value_does_not_prevent_a_digest() -> None:
    assert digest_batch({"mask": None, "ids": [1, 2]}) is not None


@pytest.mark.parametrize("size", [3, 400, 100_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, bytes.decode])
def test_texts_that_differ_only_at_the_end_have_different_digests(kind: Any, size: int) -> None:
    first, second = (kind(b"a" * size + end) for end in (b"b", b"c"))
    assert digest_batch([first]) != digest_batch([second])


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("size", [1, 64, 65, 100, 127, 128, 1000])
def test_arrays_that_differ_only_in_the_last_element_have_different_digests(
    library: str, size: int
) -> None:
    module = pytest.importorskip(library)
    first, second = module.zeros(size), module.zeros(size)
    second[-1] = 1

    assert digest_batch((first, 1)) != digest_batch((second, 1))


def test_an_array_without_elements_has_a_digest() -> None:
    numpy = pytest.importorskip("numpy")
    assert digest_batch(numpy.zeros((0, 3))) != digest_batch(numpy.zeros((0, 4)))
