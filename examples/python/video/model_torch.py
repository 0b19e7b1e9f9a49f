"""R3D-18 and R(2+1)D-18 (Tran et al., 2018) in PyTorch, with a configurable width.

With `width=1`, the number of channels is that of the paper. On a CPU, use 1/8.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Kind = Literal["r3d18", "r2plus1d"]
Triple = tuple[int, int, int]


def _conv3d(inputs: int, outputs: int, kernel: Triple, stride: Triple) -> list[nn.Module]:
    padding = tuple(size // 2 for size in kernel)
    conv = nn.Conv3d(inputs, outputs, kernel, stride, cast(Triple, padding), bias=False)
    return [conv, nn.BatchNorm3d(outputs)]


def _conv2plus1d(inputs: int, outputs: int, kernel: Triple, stride: Triple) -> list[nn.Module]:
    """A convolution over space, then one over time. Together they have as many weights as one 3-D convolution."""
    time, height, width = kernel
    middle = max(
        1, time * height * width * inputs * outputs // (height * width * inputs + time * outputs)
    )
    space = _conv3d(inputs, middle, (1, height, width), (1, stride[1], stride[2]))
    return [
        *space,
        nn.ReLU(inplace=True),
        *_conv3d(middle, outputs, (time, 1, 1), (stride[0], 1, 1)),
    ]


class _Block(nn.Module):
    def __init__(
        self,
        conv: Callable[[int, int, Triple, Triple], list[nn.Module]],
        inputs: int,
        outputs: int,
        stride: int,
    ) -> None:
        super().__init__()
        steps: Triple = (stride, stride, stride)
        self.body = nn.Sequential(
            *conv(inputs, outputs, (3, 3, 3), steps),
            nn.ReLU(inplace=True),
            *conv(outputs, outputs, (3, 3, 3), (1, 1, 1)),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*_conv3d(inputs, outputs, (1, 1, 1), steps))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """Maps `(batch, 3, time, height, width)` to one score per class."""

    def __init__(self, kind: Kind, classes: int, width: float = 0.125) -> None:
        super().__init__()
        conv = _conv3d if kind == "r3d18" else _conv2plus1d
        channels = [max(1, round(count * width)) for count in (64, 128, 256, 512)]
        # In the paper, the first R(2+1)D layer has 45 channels between its two convolutions.
        if kind == "r3d18":
            stem = _conv3d(3, channels[0], (3, 7, 7), (1, 2, 2))
        else:
            middle = max(1, round(45 * width))
            stem = [
                *_conv3d(3, middle, (1, 7, 7), (1, 2, 2)),
                nn.ReLU(inplace=True),
                *_conv3d(middle, channels[0], (3, 1, 1), (1, 1, 1)),
            ]
        blocks: list[nn.Module] = []
        inputs = channels[0]
        for place, outputs in enumerate(channels):
            blocks += [
                _Block(conv, inputs, outputs, 1 if place == 0 else 2),
                _Block(conv, outputs, outputs, 1),
            ]
            inputs = outputs
        self.features = nn.Sequential(*stem, nn.ReLU(inplace=True), *blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.head(self.features(x).mean(dim=(2, 3, 4))))


@dataclass(frozen=True)
class Training:
    """Settings of the training."""

    learning_rate: float = 0.02
    bf16: bool = False
    """Compute the forward pass in bfloat16 (autocast). The weights stay in float32."""
    fused_optimizer: bool = False
    """Use the fused implementation of the optimiser."""
    compile: bool = False
    """Compile the network with `torch.compile`, after a few steps without it."""
    ddp: bool = False
    """Average the gradients over all ranks. `torch.distributed` must be initialised."""


@dataclass
class CompileTimes:
    """Compute times of steps before and after the compilation. They show its cost and its gain."""

    batch_size: int = 0
    """Clips in a compiled batch. Batches of another size, such as a shorter last one, run without compilation."""
    eager_s: list[float] = field(default_factory=list)
    first_s: float = math.nan
    """Compute time of the step in which the network was compiled."""
    compiled_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.compiled_s:
            return "torch.compile: the run ended before a compiled step"
        eager, compiled = median(self.eager_s), median(self.compiled_s)
        warm_up = self.first_s - compiled
        times = f"{1e3 * compiled:.1f} ms instead of {1e3 * eager:.1f} ms"
        if compiled >= eager:
            return (
                f"torch.compile: {warm_up:.1f} s of warm-up and no gain: compute takes {times} "
                "(medians), so no number of steps pays for it"
            )
        steps = math.ceil(warm_up / (eager - compiled))
        return (
            f"torch.compile: {warm_up:.1f} s of warm-up; then compute takes {times} (medians), "
            f"so it breaks even after {steps:,} steps in which the loop does not wait for data"
        )


class TorchTrainer:
    """A network with its optimiser. `train_step` is one step of training."""

    # Less than the number of steps that headspace counts as warm-up, so that the compilation is part of the warm-up.
    EAGER_STEPS = 10

    def __init__(
        self,
        kind: Kind,
        classes: int,
        *,
        width: float = 0.125,
        seed: int = 0,
        training: Training | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self.training = training or Training()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network: nn.Module = ResNet18(kind, classes, width).to(self.device)
        if self.training.ddp:
            self.network = DistributedDataParallel(self.network)
        self._optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=self.training.learning_rate,
            momentum=0.9,
            fused=self.training.fused_optimizer,
        )
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self.compile_times = CompileTimes()

    def train_step(
        self, clips: NDArray[np.uint8] | Tensor, labels: NDArray[np.int64] | Tensor
    ) -> tuple[float, float]:
        """Trains on one batch. Returns its loss and its accuracy in `[0, 1]`, both before the update."""
        if self.training.compile:
            return self._timed_step(clips, labels)
        return self._step(self.network, clips, labels)

    def _step(
        self,
        network: Callable[[Tensor], Tensor],
        clips: NDArray[np.uint8] | Tensor,
        labels: NDArray[np.int64] | Tensor,
    ) -> tuple[float, float]:
        x = torch.as_tensor(clips).to(self.device).permute(0, 4, 1, 2, 3).float() / 127.5 - 1.0
        y = torch.as_tensor(labels).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.bf16):
            scores = network(x)
            loss = nn.functional.cross_entropy(scores, y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        # Both conversions to `float` wait for the device, so the step is complete when this method returns.
        return float(loss.detach()), float((scores.detach().argmax(dim=1) == y).float().mean())

    def _timed_step(
        self, clips: NDArray[np.uint8] | Tensor, labels: NDArray[np.int64] | Tensor
    ) -> tuple[float, float]:
        times = self.compile_times
        eager = len(times.eager_s) < self.EAGER_STEPS
        if not eager and self._compiled is None:
            self._compiled = cast(Callable[[Tensor], Tensor], torch.compile(self.network))
            times.batch_size = len(labels)
        if self._compiled is None or len(labels) != times.batch_size:
            network: Callable[[Tensor], Tensor] = self.network
        else:
            network = self._compiled
        began = time.perf_counter()
        result = self._step(network, clips, labels)
        seconds = time.perf_counter() - began
        if eager:
            times.eager_s.append(seconds)
        elif network is self._compiled and math.isnan(times.first_s):
            times.first_s = seconds
        elif network is self._compiled:
            times.compiled_s.append(seconds)
        return result
