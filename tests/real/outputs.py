"""Whether two runs of a program said the same, apart from what differs from run to run anyway."""

from __future__ import annotations

import difflib
import re

#: In every program's output: times of day, durations and rates.
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

#: In a probe batches come again, so what is computed from them differs; what is counted does not.
COMPUTED = ((r"(?<![\w.])[-+]?(\d+\.\d+([eE][-+]?\d+)?|\b(nan|inf)\b)", "<number>"),)

#: Steps that a program counts, where its loader has no length and a probe makes the epoch longer.
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
    # A progress bar writes over its line: only what it ends with stays on the screen.
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
    """The first lines that differ; empty where none does."""
    lines = difflib.unified_diff(expected, actual, "plain", "watched", n=0, lineterm="")
    return "\n".join([line[:160] for line in lines if not line.startswith("@@")][: most + 2])
