"""Ranks that train on the same batches are found by the contents of their first batches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from running import Programs

from headspace._loops.batch_digest import digest_batch


@pytest.mark.parametrize(("batches", "found"), [("same", 2), ("own", None)])
def test_ranks_that_train_on_the_same_batches_are_found(
    program: Programs, tmp_path: Path, batches: str, found: int | None
) -> None:
    for rank in range(2):
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "two"}
        run = program("rank_batches.py", batches, env=env, runs=tmp_path / "runs")
        assert run.exit_code == 0, run.stderr
        assert len(run.summary(rank)["batch_digests"]) == 4

    def report(*options: str) -> str:
        command = [sys.executable, "-m", "headspace", "report", str(run.folder), *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert json.loads(report("--json"))["ranks"]["ranks_with_same_batches"] == found
    is_said = "2 ranks train on the same batches." in " ".join(report().split())
    assert is_said == (found is not None)


def test_a_single_rank_has_no_digests(program: Programs) -> None:
    run = program("rank_batches.py", "same")
    assert "batch_digests" not in run.summary()


def tensors(kind: str) -> Any:
    torch = pytest.importorskip("torch")
    return {"pixels": torch.arange(6, dtype=getattr(torch, kind)).reshape(2, 3), "labels": [1, 2]}


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "uint8"])
def test_equal_tensors_have_equal_digests(kind: str) -> None:
    first, second, changed = tensors(kind), tensors(kind), tensors(kind)
    changed["pixels"][1, 2] = 9

    assert digest_batch(first) == digest_batch(second)
    assert digest_batch(first) != digest_batch(changed)


def test_batches_of_a_tokenizer_have_a_digest_and_unreadable_ones_have_none() -> None:
    assert digest_batch(UserDict(ids=[1, 2])) == digest_batch({"ids": [1, 2]})
    assert digest_batch(object()) is None
    assert digest_batch([]) is None
