"""Loaders and pools that are created repeatedly are one loop and one row in all views."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from headspace_run import run
from running import Programs, Ran, words


def page(ran: Ran) -> str:
    """The run as a page."""
    file = ran.path.parent / "page.html"
    command = [sys.executable, "-m", "headspace", "report", "--html", str(file), str(ran.folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return file.read_text()


def text(ran: Ran) -> str:
    """The verdict in one line."""
    return words(ran.stderr)


def ticked(ran: Ran, kind: str) -> set[str]:
    """Names of the series of loops, stages or queues."""
    return {entry["name"] for tick in ran.kind("tick") for entry in tick.get(kind, [])}


def rows(html: str, name: str) -> int:
    """Rows of tables for that name."""
    return html.count(f'<th scope="row">{name}<') + html.count(f'<th scope="row">{name} <')


def check(ran: Ran, training: tuple[str, int, int], evaluation: tuple[str, int, int]) -> Any:
    """Checks that training and evaluation are one loop each in all views.

    `training` and `evaluation` are name, number of iterations, and number of steps.
    """
    summary = ran.summary()
    assert (summary["loop"], summary["epochs"], summary["steps"]) == training
    assert summary["loop_role"] == "training"
    (other,) = summary["other_loops"]
    assert (other["name"], other["epochs"], other["steps"]) == evaluation
    assert other["role"] == "evaluation"

    name, times, _ = evaluation
    assert f"Not included: {name[:-1]}, {times} times, " in text(ran)
    assert ticked(ran, "loops") == {epoch["loop"] for epoch in ran.kind("epoch")}
    assert ticked(ran, "loops") == {training[0], name}
    html = page(ran)
    assert rows(html, name) == 1
    assert f">{times}<" in html
    return summary


def test_new_loaders_and_kept_loaders_are_one_loop_each(program: Programs) -> None:
    pytest.importorskip("torch")
    ran = run(program, "new_loaders_and_pools.py", "loaders")

    assert ran.stdout == f"{6 * (80 + 160)}\n"
    check(ran, ("DataLoader", 6, 240), ("DataLoader (evaluation)", 60, 480))
    assert ticked(ran, "stages") == {"fetch", "collate", "evaluation fetch", "evaluation collate"}


@pytest.mark.parametrize("workers", [0, 2])
def test_the_evaluations_of_hugging_faces_trainer_are_one_row(
    program: Programs, workers: int
) -> None:
    pytest.importorskip("transformers")
    ran = run(program, "hf_trainer.py", "--workers", workers, timeout=240.0)

    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (0, "120"), ran.stderr
    shard = "DataLoaderShard"
    summary = check(ran, (shard, 2, 120), (f"{shard} (evaluation)", 12, 48))
    assert "model in training mode" in text(ran)
    named = {stage["name"]: stage for stage in summary["stages"]}
    for name in named.keys() & {"fetch", "evaluation fetch"}:
        labels = {worker["worker"] for worker in named[name]["workers"]}
        prefix = name.removesuffix("fetch")
        assert labels <= {f"{prefix}worker {number}" for number in range(workers)}


def test_workers_of_successive_pools_are_counted_as_workers_of_one_pool(program: Programs) -> None:
    ran = program("new_loaders_and_pools.py", "pools")

    assert ran.stdout == f"{6 * 20540}\n", ran.stderr
    (stage,) = (stage for stage in ran.summary()["stages"] if stage["name"] == "square")
    assert stage["calls"] == 240
    assert {worker["worker"] for worker in stage["workers"]} == {"pool worker", "pool worker #2"}
    assert (stage["processes"], stage["concurrency"]) == (2, 2)
    assert rows(page(ran), "square") == 1
