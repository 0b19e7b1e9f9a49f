"""Fills knobs into the command's placeholders: `python train.py --threads {threads} {mtp:--mtp}`.

`{knob}` becomes the value. `{knob:WORDS}` becomes WORDS if a yes-or-no knob is yes, and nothing if it
is no. A command word that is then empty is omitted. `{knob:YES|NO}` has words for both cases.
`{what_if:YES|NO}` becomes YES in the run of the baseline with a what-if, which needs more steps, and NO in
all others. `{probe:YES|NO}` is the same, for commands of older versions. `{{knob}}` becomes `{knob}`. Other
braces stay as they are.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence

from headspace.tune.errors import TuneError
from headspace.tune.space.knobs import Space, Value

#: Names of the placeholder for the run with a what-if.
WHAT_IF = ("what_if", "probe")

_PLACE = re.compile(r"\{\{(\w+(?::[^{}]*)?)\}\}|\{([A-Za-z_]\w*)(?::([^{}]*))?\}")


class Template:
    """The words of a command with placeholders."""

    def __init__(self, words: Sequence[str], space: Space) -> None:
        """Checks that every placeholder is a knob and every knob has a placeholder.

        Raises:
            TuneError: If one is missing. The message names the placeholder or the knob.
        """
        if not words:
            raise TuneError("there is no command (write it after `--`)")
        self.words = tuple(words)
        self._space = space
        used: set[str] = set()
        names = [knob.name for knob in space.knobs]
        for word in self.words:
            for place in _PLACE.finditer(word):
                name, given = place[2], place[3]
                if place[1] is not None or (name in WHAT_IF and given is not None):
                    continue
                if name not in names:
                    near = difflib.get_close_matches(name, names, 1)
                    hint = f"did you mean `{{{near[0]}}}`?" if near else "add a `--knob` for it"
                    raise TuneError(
                        f"`{{{name}}}` in the command is not a knob: {hint} (`{{{{{name}}}}}` becomes "
                        f"the text `{{{name}}}`)"
                    )
                if given is not None and not space[name].is_switch:
                    raise TuneError(
                        f"`{{{name}:{given}}}` in the command needs a switch, and the values of the "
                        f"knob `{name}` are not `yes,no` (write `{{{name}}}`)"
                    )
                used.add(name)
        for name in names:
            if name not in used:
                raise TuneError(
                    f"the knob `{name}` has no placeholder in the command (write `{{{name}}}` where its "
                    "value belongs)"
                )

    def fill(self, config: Mapping[str, Value], what_if: bool = False) -> list[str]:
        """The command for a configuration; with `what_if`, for the run with a what-if."""
        filled = []
        for word in self.words:
            whole = _PLACE.sub(lambda place: self._value(place, config, what_if), word)
            if whole or not _PLACE.fullmatch(word):
                filled.append(whole)
        return filled

    def line(self, config: Mapping[str, Value]) -> str:
        """The command for a configuration as one shell line."""
        return shlex.join(self.fill(config))

    def _value(self, place: re.Match[str], config: Mapping[str, Value], what_if: bool) -> str:
        if place[1] is not None:
            return f"{{{place[1]}}}"
        name = place[2]
        if place[3] is None:
            return self._space[name].text(config[name])
        yes, _, no = place[3].partition("|")
        return yes if (what_if if name in WHAT_IF else config[name]) else no
