"""Finds the loop that a new iteration of an unwrapped loader belongs to.

A loop is recognised by its loader. Programs often make a new loader for each epoch. Such a loader
continues a loop if it has the same type, is iterated at the same line of the program, and is the next
one there. `_loops/training_or_evaluation.py` decides the role of a loop.
"""

from __future__ import annotations

import sys
from _weakref import ref

from headspace import _settings
from headspace._loops import names, nesting
from headspace._loops.attributes import public_type
from headspace._loops.epochs import length_of
from headspace._loops.loader_facts import torch_loader
from headspace._loops.make_loop import make_loader_loop, mode_without_wrap
from headspace._loops.observe_torch import observe_role
from headspace._loops.training_or_evaluation import EVALUATION, TRAINING, history
from headspace._processes.worker import is_worker
from headspace._session.own_errors import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from headspace._loops.training_or_evaluation import Role, RoleState

    #: The type of a loader, and the line of the program that iterates it.
    Place = tuple[type, object, int]

#: Loops by loader and role, and by the place where a loader was last iterated in that role.
_by_loader: dict[tuple[int, Role | None], WatchedLoop] = {}
_by_place: dict[tuple[Place, Role | None], WatchedLoop] = {}

#: Most loops that are kept by loader before those with a deleted loader are dropped.
_MOST_LOADERS = 64


class WatchedLoop:
    """A loop: a loader in one role, or successive loaders at one place in the program."""

    def __init__(
        self, loader: Any, name: str, state: RoleState, batch_size: int | None = None
    ) -> None:
        mode = mode_without_wrap(name, state.role)
        options = _settings.loop_options()
        if mode == _settings.REPLAY and options["stop_after"] is None and length_of(loader) is None:
            # An epoch of cached batches would never end.
            print_notice(
                f"`{name}` has no length, so its batches are not replayed, only measured (set one "
                "with `--stop-after N`)"
            )
            mode = _settings.MEASURE
        self.mode = mode
        self.state = state
        self.loop = make_loader_loop(
            loader, name=name, mode=mode, batch_size=batch_size, role=state.role, **options
        )
        self._iterator: Callable[[], Any] = _gone
        self.set_loader(loader)

    def set_loader(self, loader: Any) -> None:
        """The loop's next epochs are over this loader."""
        self._loader = _weak_reference(loader)
        self._dataset = _weak_reference(_dataset_of(loader))

    def begin_epoch(self, source: Any, loader: Any) -> Any:
        """An iterator over `source`, recorded as an epoch of this loop.

        Args:
            source: What is iterated: the loader, or what stands for it.
            loader: The loader itself.
        """
        iterator = nesting.begin_epoch(self.loop, source, torch_loader=torch_loader(loader))
        self._iterator = _weak_reference(iterator)
        return iterator

    def is_over(self, loader: Any) -> bool:
        """Whether the loop's last epoch was over this loader."""
        return self._loader() is loader

    def running_iterator(self) -> Any:
        """The iterator of the epoch that is running. None between epochs."""
        iterator = self._iterator()
        return None if getattr(iterator, "_headspace_has_ended", True) else iterator

    def continues_with(self, loader: Any, role: Role | None) -> bool:
        """Whether a new loader, iterated in this role at this loop's place, is the loop's next epoch."""
        if self.running_iterator() is not None:
            return False  # Both are iterated at the same time.
        dataset = _dataset_of(loader)
        if dataset is not None and self._dataset() is dataset:
            return True
        if self.state.role != role:
            return False
        # The program may keep both loaders. In a probe, batches of one would be replayed in the other.
        is_measured = self.mode == _settings.MEASURE and role in (TRAINING.role, EVALUATION.role)
        return is_measured or self._loader() is None


def find_loop(loader: Any, batch_size: int | None = None) -> WatchedLoop | None:
    """The loop that an iteration which begins now is an epoch of. None if it is part of another one, or
    nothing is to be measured.

    Args:
        batch_size: Samples per batch. By default the loader's own number.
    """
    if not _settings.enabled() or nesting.enclosing_loop() is not None or is_worker():
        return None
    state = history.note(observe_role())
    if state.role == EVALUATION.role:
        nesting.interrupt_iterations()
    roles = state.roles_to_continue()
    for role in roles:
        known = _by_loader.get((id(loader), role))
        if known is not None and known.is_over(loader):
            return known
    place = _place_of(loader)
    for role in roles:
        known = _by_place.get((place, role))
        if known is not None and known.continues_with(loader, state.role):
            known.set_loader(loader)
            break
    else:
        name = public_type(loader).__name__.lstrip("_")
        name = names.make_unique(name, history.role_in_name(state))
        known = WatchedLoop(loader, name, state, batch_size)
    _keep(known, loader, place)
    return known


def _keep(loop: WatchedLoop, loader: Any, place: Place) -> None:
    if len(_by_loader) >= _MOST_LOADERS:
        # Their loaders were deleted, or have no weak references.
        for gone in [key for key, known in _by_loader.items() if known.is_over(None)]:
            del _by_loader[gone]
    _by_loader[id(loader), loop.state.role] = loop
    _by_place[place, loop.state.role] = loop


def reconsider_roles() -> None:
    """A model goes into training mode: a loop that is iterated meanwhile trains, unless its role is final."""
    for (loader_id, role), known in list(_by_loader.items()):
        iterator = known.running_iterator()
        state = known.state.after_model_trains()
        if iterator is None or state is known.state:
            continue
        known.state = state
        history.note(state)
        iterator._headspace_trains()
        del _by_loader[loader_id, role]
        _by_loader[loader_id, state.role] = known
        for key in [key for key, other in _by_place.items() if other is known]:
            del _by_place[key]
            _by_place[key[0], state.role] = known


def _place_of(loader: Any) -> Place:
    """Where the program iterates the loader: the innermost line that is not headspace's own.

    A method that headspace replaced is wrapped by `functools.wraps`, and others may be by `functools`.
    """
    frame: FrameType = sys._getframe()
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    return type(loader), frame.f_code, frame.f_lineno


def _is_own(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module == "functools" or module.partition(".")[0] == "headspace"


def _gone() -> None:
    return None


def _weak_reference(thing: Any) -> Callable[[], Any]:
    """A weak reference; if the type allows none, a reference to None."""
    try:
        return ref(thing)
    except TypeError:
        return _gone


def _dataset_of(loader: Any) -> Any:
    """The dataset of a torch loader. None for any other loader."""
    inner = torch_loader(loader)
    return None if inner is None else getattr(inner, "dataset", None)
