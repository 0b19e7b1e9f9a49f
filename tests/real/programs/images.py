"""Common parts of the programs in this folder: image files, their tensors, and a small network.

None of these programs uses headspace.
"""

import argparse
import pathlib

import numpy as np
from PIL import Image


def options(**defaults):
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    for name, value in {"steps": 900, "workers": 0, "width": 16, **defaults}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def files(folder):
    return sorted(pathlib.Path(folder, "train").rglob("*.jpg"))


def label_of(path):
    return int(path.parent.name.removeprefix("class"))


def decoded(path, size=64):
    """An image file as an array of `3 x size x size`."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB").resize((size, size)), dtype=np.float32)
    return pixels.transpose(2, 0, 1) / 255.0


class ImageFiles:
    """A map-style dataset of image files, repeated up to `length` items."""

    def __init__(self, folder, length):
        self.files = files(folder)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        path = self.files[index % len(self.files)]
        return decoded(path), label_of(path)


def network(width=16, classes=10):
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * width, classes),
    )
