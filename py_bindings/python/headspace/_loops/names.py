"""Makes the names of loops in the records unique within a process."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headspace._loops.training_or_evaluation import Role

#: How often each name was asked for.
_uses: dict[str, int] = {}

#: Of a loop whose name says what it is for: the name of its loader, and the rest of its name. By its name.
_parts: dict[str, tuple[str, str]] = {}


def name_with_role(name: str, role: Role | None) -> str:
    """The name of a loop over a loader that is called `name`, if it has a loop for each role."""
    return name if role is None else f"{name} ({role})"


def make_unique(name: str, role: Role | None = None) -> str:
    """The name, with the role if there is one, and with a number if another loop has it."""
    full = name_with_role(name, role)
    _uses[full] = _uses.get(full, 0) + 1
    number = "" if _uses[full] == 1 else f"-{_uses[full]}"
    if role is not None:
        _parts[full + number] = name, role + number
    return full + number


def name_beside_loader(loop_name: str, loader_name: str) -> str:
    """What a loop's name says besides the name of its loader. Empty if it says nothing else."""
    if loop_name == loader_name:
        return ""
    of_loader, rest = _parts.get(loop_name, ("", ""))
    return rest if of_loader == loader_name else loop_name
