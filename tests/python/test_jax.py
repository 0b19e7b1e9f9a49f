"""A loop whose steps JAX only enqueues: the probe must not measure the launch instead of the step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("jax", reason="jax is not installed: asynchronous dispatch is not tested")

PROGRAM = """
import os, sys, time

import jax
import jax.numpy as jnp
import numpy as np

import headspace

STEPS, EVERY = int(sys.argv[1]), int(sys.argv[2])


def batches():
    for _ in range(STEPS):
        time.sleep(0.004)
        yield np.ones((128, 384), np.float32)


def loss(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return (x * x).mean()


@jax.jit
def step(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return [w - 0.01 * g for w, g in zip(weights, gradients)], value


class Loader:
    def __iter__(self):
        return batches()


random = np.random.default_rng(0)
weights = [jnp.asarray(random.normal(size=(384, 384)).astype(np.float32)) for _ in range(4)]
for number, x in enumerate(headspace.wrap(Loader(), mode="probe")):
    weights, value = step(weights, x)
    if EVERY and number % EVERY == EVERY - 1:
        value.item()
# What the device takes by itself.
blocks = []
for _ in range(5):
    began = time.perf_counter()
    for _ in range(10):
        weights, value = step(weights, x)
    value.block_until_ready()
    blocks.append((time.perf_counter() - began) / 10 * 1e3)
# The machine may stall during a block.
print(min(blocks))
"""


def probed(tmp_path: Path, steps: int, every: int) -> tuple[dict[str, Any], float]:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    runs = tmp_path / "runs"
    done = subprocess.run(
        [sys.executable, str(program), str(steps), str(every)],
        env={**os.environ, "HEADSPACE_DIR": str(runs), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    lines = [line for path in runs.rglob("*.jsonl") for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    probes = [record for record in records if record["kind"] == "probe"]
    return probes[-1], float(done.stdout.split()[-1])


@pytest.mark.parametrize(("steps", "every"), [(280, 0), (400, 50)])
def test_a_step_that_jax_only_enqueued_is_never_the_floor(
    tmp_path: Path, steps: int, every: int
) -> None:
    probe, device_ms = probed(tmp_path, steps, every)

    floor = probe.get("floor")
    if floor is None:
        assert probe["reason"]
    else:
        # A wide margin for other load on the machine: a launch takes a hundredth of the step.
        assert floor["floor_ms"]["high"] > device_ms / 5, probe
