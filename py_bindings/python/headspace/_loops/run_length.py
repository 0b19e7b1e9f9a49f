"""Holds the length of the run, as the trainer of a framework states it."""

from __future__ import annotations

#: Number of epochs, and number of batches. None if unknown.
epochs: int | None = None
total_steps: int | None = None


def set_length(of_epochs: int | None, of_steps: int | None) -> None:
    """Sets the length of the run that begins now. Loops that begin later have it.

    Args:
        of_epochs: Number of epochs.
        of_steps: Number of batches.
    """
    global epochs, total_steps
    epochs, total_steps = (
        length if isinstance(length, int) and length > 0 else None
        for length in (of_epochs, of_steps)
    )
