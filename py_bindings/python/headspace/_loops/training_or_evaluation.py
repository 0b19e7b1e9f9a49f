"""Defines the role of a loop (training, evaluation, background) as one state machine for all loops.

==================== ============================================ ===========================
state                a loop that begins in it                     later
==================== ============================================ ===========================
`UNKNOWN`            no model has a mode yet                      a model trains: `TRAINING`
`TRAINING`           a model is in training mode, gradients on    stays
`LIKELY_EVALUATION`  all models in evaluation mode, gradients on  a model trains: `TRAINING`
`EVALUATION`         gradients are off                            stays
`BACKGROUND`         on another thread, which sets no mode        stays
==================== ============================================ ===========================

An evaluation with gradients on is only likely: some trainers set the mode of a model after they have
received the first batch. The caller decides what a likely evaluation means:

- `headspace run` keeps it, and looks again when a model goes into training mode
  (:meth:`RoleState.after_model_trains`);
- for the function of `--batch-from` the program's past decides (:meth:`RoleHistory.resolve`);
- a wrapped loader is the loop that the user means, so only a sure evaluation takes it away from
  training (:meth:`RoleState.of_wrapped_loader`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    Role: TypeAlias = Literal["training", "evaluation", "background"]


class RoleState:
    """A role, or None for unknown, and whether it is final. There are five; see the module."""

    __slots__ = ("is_final", "role")

    def __init__(self, role: Role | None, *, is_final: bool) -> None:
        #: As records have it.
        self.role = role
        self.is_final = is_final

    def after_model_trains(self) -> RoleState:
        """The state of a loop that is iterated while a model goes into training mode."""
        return self if self.is_final else TRAINING

    def of_wrapped_loader(self) -> RoleState:
        """Training, a sure evaluation, or unknown."""
        return UNKNOWN if self in (LIKELY_EVALUATION, BACKGROUND) else self

    def roles_to_continue(self) -> tuple[Role | None, ...]:
        """Roles of earlier loops whose next epoch may begin in this state, the likeliest first."""
        if self is LIKELY_EVALUATION:
            return TRAINING.role, UNKNOWN.role, EVALUATION.role
        return (self.role,)


UNKNOWN = RoleState(None, is_final=False)
TRAINING = RoleState("training", is_final=True)
LIKELY_EVALUATION = RoleState("evaluation", is_final=False)
EVALUATION = RoleState("evaluation", is_final=True)
BACKGROUND = RoleState("background", is_final=True)


def role_at_begin(modes: list[bool], *, gradients: bool, is_main_thread: bool) -> RoleState:
    """The state of a loop that begins now.

    Args:
        modes: For each model that the loop may iterate for: whether it is in training mode.
        gradients: Whether gradients are on.
        is_main_thread: Whether the loop is on the main thread.
    """
    if not gradients:
        return EVALUATION
    if modes:
        return TRAINING if any(modes) else LIKELY_EVALUATION
    return UNKNOWN if is_main_thread else BACKGROUND


class RoleHistory:
    """Whether a loop of this process has trained, by which a likely evaluation is judged."""

    _has_trained = False

    def note(self, state: RoleState) -> RoleState:
        """Records that a loop is in this state, and returns the state."""
        self._has_trained = self._has_trained or state is TRAINING
        return state

    def resolve(self, state: RoleState) -> RoleState:
        """A likely evaluation is one if something has trained before. Else nothing is known."""
        if state is LIKELY_EVALUATION:
            return EVALUATION if self._has_trained else UNKNOWN
        return state

    def role_in_name(self, state: RoleState) -> Role | None:
        """The role that the name of a new loop states, if any.

        If nothing has trained yet, a likely evaluation may turn out to be the training.
        """
        return EVALUATION.role if self.resolve(state) is EVALUATION else None


#: What is known of this process.
history = RoleHistory()
