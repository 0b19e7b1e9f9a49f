"""Logs metrics to TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headspace.integrations._sink import Sink, import_library


class TensorBoard(Sink):
    """Logs metrics named ``headspace/...`` to TensorBoard. The x axis is the step of the main loop.

        headspace.start(to=TensorBoard("runs/x"))
        headspace.start(to=TensorBoard(writer))  # torch.utils.tensorboard.SummaryWriter

    Args:
        to: A folder, to which rank 0 writes with the package ``tensorboard``. Or your own
            ``SummaryWriter`` of torch or tensorboardX, which headspace does not close.

    Raises:
        ImportError: If ``to`` is a folder and ``tensorboard`` is not installed.
    """

    def __init__(self, to: str | os.PathLike[str] | Any) -> None:
        self._folder: str | None = None
        self._writer: Any = None
        if hasattr(to, "add_scalar"):
            self._writer = to
        else:
            self._folder = os.fspath(to)
            self._summary = import_library("tensorboard.summary", "TensorBoard", "tensorboard")

    def open(self, rank: int) -> bool:
        if self._folder is None:
            return True
        if rank == 0:
            self._writer = self._summary.Writer(self._summary.DirectoryOutput(self._folder))
        return rank == 0

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            tag = f"headspace/{name}"
            if self._folder is None:
                self._writer.add_scalar(tag, value, step, time)
            else:
                self._writer.add_scalar(tag, value, step, wall_time=time)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        if self._folder is not None:
            self._writer.close()
