"""Makes the names of loops in the records unique within a process."""

from __future__ import annotations

#: How often each name was asked for.
_uses: dict[str, int] = {}


def make_unique(name: str) -> str:
    """The name, with a number appended if another loop has it."""
    _uses[name] = _uses.get(name, 0) + 1
    return name if _uses[name] == 1 else f"{name}-{_uses[name]}"


def evaluation_name(name: str) -> str:
    """The name of a loader's loop for evaluation, beside its loop for training."""
    return f"{name} (evaluation)"


def training_name(name: str) -> str:
    """The name of a loader's loop for training, where its first loop was for evaluation."""
    return f"{name} (training)"
