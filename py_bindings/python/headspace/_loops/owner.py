"""Names the stages, queues and workers of a loader after its loop."""

from __future__ import annotations

from headspace._loops.names import name_beside_loader
from headspace._native import stage_of_loop, watch_queue
from headspace._processes.hand_off import hand_off_stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from headspace import _native
    from headspace._loops.nesting import Enclosing

#: The loop or queue that first used a prefix for a kind of stages, by prefix and kind.
_owners: dict[tuple[str, str], tuple[str, str]] = {}


def claim_prefix(
    prefix: str,
    owner: tuple[Literal["loop", "queue"], str],
    stages: Literal["all but the hand-off", "hand-off"],
) -> str:
    """Returns `prefix`, or the owner's name if another owner uses `prefix` already.

    Args:
        owner: A loop, or a queue whose loop is not known, with its name.
        stages: Which stages get the prefix.
    """
    if _owners.setdefault((prefix, stages), owner) == owner:
        return prefix
    return f"{owner[1]} "


class Owner:
    """The loop that owns the stages and queues of a loader. It is sent to the workers."""

    def __init__(self, loop: _native.Loop | Enclosing) -> None:
        self.loop_name = loop.name
        kind = loop.type_name.rpartition(".")[2]
        # `DataLoader (evaluation)`: its stages begin with `evaluation`. The loop's name has the type with or without its
        # leading underscore (`_SubprocessIterable`). The shorter rest is the right one.
        beside = min(
            (name_beside_loader(self.loop_name, name) for name in (kind, kind.lstrip("_"))), key=len
        )
        prefix = f"{beside} " if beside else ""
        #: Prefix of the names of its stages, queues and workers, so that no two loops share a name.
        self.prefix = claim_prefix(prefix, ("loop", self.loop_name), "all but the hand-off")
        self._hand_off_prefix = self.prefix

    def claim_hand_off(self) -> None:
        """Claims the names of the hand-off, before the owner is sent to the workers."""
        self._hand_off_prefix = claim_prefix(self.prefix, ("loop", self.loop_name), "hand-off")

    def stage(self, name: str, concurrency: int | None = None) -> _native.Stage:
        return stage_of_loop(f"{self.prefix}{name}", self.loop_name, concurrency=concurrency)

    def hand_off(self, end: Literal["send", "receive"]) -> _native.Stage:
        """An end of the hand-off of batches from workers to the training thread."""
        return hand_off_stage(end, self.loop_name, self._hand_off_prefix)

    def watch_queue(self, name: str, read: Callable[[], tuple[int, int] | None]) -> None:
        """Watches the queue that the training loop takes its batches from.

        Args:
            read: Returns depth and capacity; None when the queue is gone or at rest.
        """
        watch_queue(f"{self.prefix}{name}", read, True, self.loop_name)
