"""Compares the outputs of two runs of a program, without the parts that differ between any two runs."""

from __future__ import annotations

import difflib
import re

#: Parts of every program's output: times of day, durations, rates, addresses and process ids.
MASKS = (
    (r"\x1b\[[0-9;]*[A-Za-z]", ""),
    (r"\d{4}-\d\d-\d\d[ T_]\d\d[:-]\d\d[:-]\d\d([.,]\d+)?", "<date>"),
    (r"\b\d+:\d\d(:\d\d)?(\.\d+)?\b", "<time>"),
    (
        r"(?<![\w.])\d+(\.\d+)?(e-\d+)? ?(it/s|s/it|batch/s|batches/s|img/s|ms/step|s/step)",
        "<rate>",
    ),
    (r"\?it/s", "<rate>"),
    (r"(?<![\w.])\d+(\.\d+)? ?(ms|µs|us|s|seconds|hours)\b", "<duration>"),
    (r"0x[0-9a-f]+", "<address>"),
    (r"\bpid[= ]\d+", "<pid>"),
)

#: A probe repeats batches, so values that are computed from them differ. Counts do not differ.
COMPUTED = ((r"(?<![\w.])[-+]?(\d+\.\d+([eE][-+]?\d+)?|\b(nan|inf)\b)", "<number>"),)

#: Counted steps. They differ if the loader has no length, because a probe then makes the epoch longer.
COUNTS = ((r"(?<![\w.])(\d+ steps|step \d+)\b", "<steps>"),)


def masked(
    text: str, masks: tuple[tuple[str, str], ...], *, computed: bool, unordered: bool
) -> list[str]:
    """The lines of `text` as they are compared.

    Args:
        text: A stream of the program.
        masks: The case's own masks, used first.
        computed: Leave out numbers with a decimal point too.
        unordered: The order of lines does not count.
    """
    # A progress bar overwrites its line, so only its last state counts.
    lines = [
        line.rstrip("\r").rpartition("\r")[2] for line in re.sub(r"\r+\n", "\n", text).split("\n")
    ]
    rules = [*masks, *MASKS, *(COMPUTED if computed else ())]
    shown = []
    for line in lines:
        for pattern, what in rules:
            line = re.sub(pattern, what, line)
        if line.strip():
            shown.append(re.sub(r"[\s\u2500-\u259f#━╸]+", " ", line).strip())
    return sorted(shown) if unordered else shown


def difference(expected: list[str], actual: list[str], most: int = 8) -> str:
    """The first lines that differ. Empty if none differs."""
    lines = difflib.unified_diff(expected, actual, "plain", "watched", n=0, lineterm="")
    return "\n".join([line[:160] for line in lines if not line.startswith("@@")][: most + 2])
