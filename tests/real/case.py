"""The description of a case: a program of others, and how to run, compare and measure it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: The method from which the training loop gets its iterator (`module:Class.method`). The truth is measured there.
TORCH = "torch.utils.data.dataloader:DataLoader.__iter__"

#: For a program without a loader, the truth measures a step from one backward pass to the next.
BACKWARD = "backward"


@dataclass(frozen=True)
class Edit:
    """Replaces one text in the copy of the program: a constant for which the program has no option."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Case:
    """A program.

    Commands and environment may name `{python}`, `{bin}` (the folder of its scripts), `{data}` (what
    `data` made), `{programs}` (our own programs) and the knobs.
    """

    name: str
    command: tuple[str, ...]
    #: Modules that the program imports. If one is missing, the case is skipped and the table says so.
    modules: tuple[str, ...]
    #: Folder within `REAL_DIR`. It is copied, and the program runs within the copy.
    checkout: str = ""
    #: Part of that folder that the program needs.
    folder: str = "."
    edits: tuple[Edit, ...] = ()
    #: Makes the data in an empty folder, once.
    data: Callable[[Path], None] | None = None
    #: Paths of links to the data, relative to the folder in which the program runs (separated by commas).
    data_at: str = ""
    env: dict[str, str] = field(default_factory=dict)
    #: The training loop's name in the verdict.
    loop: str = "DataLoader"
    #: Options of `headspace run` that a user of this program needs.
    watch_options: tuple[str, ...] = ()
    #: The role of the loop in the verdict; None if it is unknown, as without torch.
    role: str | None = "training"
    #: Number of batches that the training loop takes. 0: the number of steps that the harness sets for our
    #: programs. None: unknown.
    steps: int | None = None
    #: The function at which the training loop is measured for the truth.
    source: str = TORCH
    #: For a program without a loader: edits that make it repeat batches from a cache.
    cached_edits: tuple[Edit, ...] = ()
    #: Default values of the knobs. A remedy's `change` names one of them.
    knobs: dict[str, str] = field(default_factory=dict)
    #: Whether the training loop's loader has a length. Without a length, a probe adds the repeated batches to
    #: an epoch, so the program counts more steps.
    has_length: bool = True
    #: Whether several processes print the lines, so that their order is not compared.
    unordered: bool = False
    #: Texts that differ from run to run, and their replacements.
    masks: tuple[tuple[str, str], ...] = ()
    #: The same for values that are computed from the batches and have no decimal point, such as an accuracy.
    #: They are not compared in a probe, or if the program is not deterministic.
    computed: tuple[tuple[str, str], ...] = ()
    #: Whether the program computes the same numbers each time it runs.
    deterministic: bool = True
    #: Seconds that one run may take.
    timeout: float = 400.0

    def takes(self, knob: str) -> bool:
        """Whether the program's command line, or an edit, sets the knob."""
        texts = (*self.command, *(edit.new for edit in self.edits))
        return any("{" + knob + "}" in text for text in texts)
