"""A small 3-D convolutional network in NumPy, with manual gradients.

The network has two convolutions over time and space, each followed by a ReLU. Then come the mean over all positions
and a linear layer. The loss is softmax cross-entropy. The optimiser is stochastic gradient descent with momentum
(Polyak, 1964).

A convolution is one matrix product of the gathered neighbourhoods ("im2col") and the weights. The layout of arrays is
`(batch, time, height, width, channels)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
_KERNEL = (3, 3, 3)
# Each convolution halves the width and the height. The number of frames does not change.
_STRIDE = (1, 2, 2)


@dataclass
class Conv3d:
    """A 3×3×3 convolution with zero padding. The shape of `weight` is `(27 · in, out)`."""

    weight: Array
    bias: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        """The output, and the gathered neighbourhoods that `backward` needs."""
        batch, channels = x.shape[0], x.shape[-1]
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (1, 1), (0, 0)))
        shape = _out_shape(x.shape)
        columns = np.empty((batch, *shape, 27, channels), x.dtype)
        for place, window in enumerate(_windows(shape)):
            columns[..., place, :] = padded[window]
        flat = columns.reshape(-1, 27 * channels)
        out = flat @ self.weight + self.bias
        return out.reshape(batch, *shape, -1), flat

    def backward(self, flat: Array, grad: Array) -> tuple[Array, Array]:
        """Gradients of weight and bias."""
        grad = grad.reshape(-1, grad.shape[-1])
        return flat.T @ grad, grad.sum(axis=0)

    def backward_input(self, shape: tuple[int, ...], grad: Array) -> Array:
        """Gradient of an input of `shape`."""
        batch, time, height, width, channels = shape
        columns = (grad.reshape(-1, grad.shape[-1]) @ self.weight.T).reshape(
            *grad.shape[:-1], 27, channels
        )
        padded = np.zeros((batch, time + 2, height + 2, width + 2, channels), grad.dtype)
        for place, window in enumerate(_windows(grad.shape[1:4])):
            padded[window] += columns[..., place, :]
        return padded[:, 1:-1, 1:-1, 1:-1]


def _out_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-length // stride) for length, stride in zip(shape[1:4], _STRIDE, strict=True))


def _windows(shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """For each position in the kernel, the slices of the padded input that it covers over all outputs."""
    return [
        (
            slice(None),
            *(
                slice(at, at + stride * (n - 1) + 1, stride)
                for at, n, stride in zip(place, shape, _STRIDE, strict=True)
            ),
        )
        for place in product(*map(range, _KERNEL))
    ]


class VideoNet:
    """Classifies clips. `train_step` is one step of training."""

    def __init__(
        self,
        classes: int,
        *,
        channels: tuple[int, int] = (8, 16),
        learning_rate: float = 0.02,
        momentum: float = 0.9,
        seed: int = 0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        rng = np.random.default_rng(seed)

        def weight(inputs: int, outputs: int) -> Array:
            # He et al. (2015): with this scale, a layer with a ReLU does not change the variance.
            return (rng.standard_normal((inputs, outputs)) * np.sqrt(2.0 / inputs)).astype(dtype)

        first, second = channels
        self.dtype = dtype
        self.conv1 = Conv3d(weight(27 * 3, first), np.zeros(first, dtype))
        self.conv2 = Conv3d(weight(27 * first, second), np.zeros(second, dtype))
        self.weight, self.bias = weight(second, classes), np.zeros(classes, dtype)
        self._learning_rate, self._momentum = learning_rate, momentum
        self._velocity = [np.zeros_like(parameter) for parameter in self.parameters()]

    def parameters(self) -> list[Array]:
        """The arrays that training modifies in place."""
        return [
            self.conv1.weight,
            self.conv1.bias,
            self.conv2.weight,
            self.conv2.bias,
            self.weight,
            self.bias,
        ]

    def train_step(
        self, clips: NDArray[np.uint8], labels: NDArray[np.int64]
    ) -> tuple[float, float]:
        """Trains on one batch. Returns its loss and its accuracy in `[0, 1]`, both before the update."""
        loss, accuracy, gradients = self.gradients(clips, labels)
        for parameter, velocity, gradient in zip(
            self.parameters(), self._velocity, gradients, strict=True
        ):
            velocity *= self._momentum
            velocity -= self._learning_rate * gradient
            parameter += velocity
        return loss, accuracy

    def gradients(
        self, clips: NDArray[np.uint8], labels: NDArray[np.int64]
    ) -> tuple[float, float, list[Array]]:
        """Loss, accuracy, and the gradient of each of `parameters`."""
        x = clips.astype(self.dtype) / 127.5 - 1.0
        out1, columns1 = self.conv1.forward(x)
        hidden1 = np.maximum(out1, 0)
        out2, columns2 = self.conv2.forward(hidden1)
        hidden2 = np.maximum(out2, 0)
        pooled = hidden2.mean(axis=(1, 2, 3))
        scores = pooled @ self.weight + self.bias

        rows = np.arange(len(labels))
        shifted = scores - scores.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        loss = float(-log_p[rows, labels].mean())
        accuracy = float((scores.argmax(axis=1) == labels).mean())

        d_scores = np.exp(log_p)
        d_scores[rows, labels] -= 1.0
        d_scores /= len(labels)
        d_pooled = d_scores @ self.weight.T
        places = hidden2.shape[1] * hidden2.shape[2] * hidden2.shape[3]
        d_out2 = (out2 > 0) * (d_pooled / places)[:, None, None, None, :]
        d_hidden1 = self.conv2.backward_input(hidden1.shape, d_out2)
        d_out1 = (out1 > 0) * d_hidden1
        return (
            loss,
            accuracy,
            [
                *self.conv1.backward(columns1, d_out1),
                *self.conv2.backward(columns2, d_out2),
                pooled.T @ d_scores,
                d_scores.sum(axis=0),
            ],
        )
