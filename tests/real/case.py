"""What a case is: one program that is not ours to change, and how to run, compare and measure it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: Where the training loop gets its iterator, for the truth: `module:Class.method`.
TORCH = "torch.utils.data.dataloader:DataLoader.__iter__"

#: The truth's steps of a program without a loader run from one backward pass to the next.
BACKWARD = "backward"


@dataclass(frozen=True)
class Edit:
    """One text of the program's copy is replaced: a constant for which it has no option."""

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
    #: Modules that it imports. The case is skipped, and said so, where one is missing.
    modules: tuple[str, ...]
    #: Folder within `REAL_DIR`. It is copied, and the program runs within the copy.
    checkout: str = ""
    #: Part of that folder that the program needs.
    folder: str = "."
    edits: tuple[Edit, ...] = ()
    #: Makes the data in an empty folder, once.
    data: Callable[[Path], None] | None = None
    #: Where it must lie for the program, from the folder that the program runs in.
    data_at: str = ""
    env: dict[str, str] = field(default_factory=dict)
    #: The training loop's name in the verdict.
    loop: str = "DataLoader"
    #: Options of `headspace run` that a user of this program needs.
    watch_options: tuple[str, ...] = ()
    #: The role of the loop in the verdict; None if it is unknown, as without torch.
    role: str | None = "training"
    #: Batches that the training loop takes in all. 0: as many as the harness asks our programs for;
    #: None: not known.
    steps: int | None = None
    #: The function at which the truth measures the training loop.
    source: str = TORCH
    #: For a program without a loader: what serves the first batches again and again.
    cached_edits: tuple[Edit, ...] = ()
    #: Values of the knobs as the program runs by default. A remedy's `change` names one of them.
    knobs: dict[str, str] = field(default_factory=dict)
    #: Whether the training loop's loader has a length. Without one, a probe makes an epoch longer by the
    #: batches that come again, and what the program counts is larger.
    has_length: bool = True
    #: Lines come from several processes: their order does not count.
    unordered: bool = False
    #: Texts that differ from run to run, and their replacements.
    masks: tuple[tuple[str, str], ...] = ()
    #: The same for what is computed from the batches, without a decimal point: an accuracy, say. In a
    #: probe only.
    computed: tuple[tuple[str, str], ...] = ()
    #: Whether the program computes the same numbers each time it runs.
    deterministic: bool = True
    #: Seconds that one run may take.
    timeout: float = 400.0

    def takes(self, knob: str) -> bool:
        """Whether the program's command line, or an edit, sets the knob."""
        texts = (*self.command, *(edit.new for edit in self.edits))
        return any("{" + knob + "}" in text for text in texts)
