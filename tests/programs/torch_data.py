"""A torch loader whose samples take some time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Any, int]:
        time.sleep(self.seconds)
        return torch.zeros(8), number


def make_loader(samples: Samples, **options: Any) -> Any:
    return DataLoader(samples, **options)
