"""Defines knobs, their values, and the space of configurations; parses `--knob NAME=VALUES`.

A knob's values are a finite list. So no configuration is tried twice, and the search knows when all
were tried. A range of numbers is the list of its steps.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from headspace.tune.errors import TuneError
from headspace.tune.space.constraints import Constraint

#: A knob's value.
Value = int | float | str | bool

#: A value for each knob, by name.
Config = dict[str, Value]

#: Maximum number of values of a knob.
MOST_VALUES = 10_000

#: Maximum number of configurations that are enumerated to find one that was not tried.
MOST_LISTED = 50_000

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(log|\d+))?")
_WORDS = (("yes", "no"), ("true", "false"), ("on", "off"))


@dataclass(frozen=True)
class Knob:
    """A parameter of the command."""

    name: str
    values: tuple[Value, ...]
    """All allowed values: numbers ascending, words in the order of the option."""
    baseline: Value
    """The value of the baseline, to which gains are relative."""
    turns: tuple[str, ...] = ()
    """The settings that it changes, in the terms of remedies: `decode.concurrency`, `num_workers`,
    `*.capacity`, `last.capacity` (the queue before the loop), or a remedy's code such as `subprocess`."""
    words: tuple[str, str] = ("yes", "no")
    """The words for yes and no."""

    @property
    def is_switch(self) -> bool:
        """Whether it is yes or no."""
        return isinstance(self.values[0], bool)

    @property
    def is_number(self) -> bool:
        """Whether its values have an order."""
        return not self.is_switch and not isinstance(self.values[0], str)

    def text(self, value: Value) -> str:
        """The value as it is written on the command line."""
        if isinstance(value, bool):
            return self.words[0 if value else 1]
        return str(value)

    def value_towards(self, now: float, wanted: float) -> Value | None:
        """The value that a change from `now` to `wanted` leads to.

        This is `wanted` itself, or the nearest value between `now` and `wanted`. If there is no such value, it is the
        first one beyond `wanted`. None if the knob has no value in this direction, or if there is no change.
        """
        if wanted == now:
            return None
        sign = 1 if wanted > now else -1
        ahead = [v for v in self.values[::sign] if sign * (_number(v) - now) > 0]
        reached = [v for v in ahead if is_same_value(v, wanted) or sign * (wanted - _number(v)) > 0]
        return reached[-1] if reached else next(iter(ahead), None)

    def read(self, given: object) -> Value:
        """The value that is given as a text, or as a number in the file.

        Raises:
            TuneError: If the knob has no such value.
        """
        for value in self.values:
            same_type = isinstance(value, bool) == isinstance(given, bool)
            if (same_type and value == given) or self.text(value) == str(given).strip():
                return value
        allowed = ", ".join(map(self.text, self.values[:12]))
        more = ", …" if len(self.values) > 12 else ""
        raise TuneError(
            f"`{given}` is not a value of the knob `{self.name}` (write {allowed}{more})"
        )


def is_same_value(value: Value, wanted: float) -> bool:
    """Whether the value is the wanted number, which may have a rounding error."""
    return math.isclose(_number(value), wanted)


def _number(value: Value) -> float:
    return float(value) if not isinstance(value, str) else math.nan


def parse_knob(text: str) -> Knob:
    """Reads `NAME=SPEC` or `NAME=SPEC@BASELINE`.

    SPEC is `1..8`, `2..16:2` (every second), `1..64:log` (each twice the one before), `1,2,4,8`,
    `yes,no`, or words. Without BASELINE, the baseline is the first value as written.

    Raises:
        TuneError: If the text has another form.
    """
    name, equals, spec = text.partition("=")
    if not equals:
        raise TuneError(f"`--knob {text}` has no values (write `--knob {text}=1..8`)")
    spec, at, baseline = spec.partition("@")
    return make_knob(name.strip(), spec, baseline if at else None)


def make_knob(
    name: str, spec: object, baseline: object = None, turns: Sequence[str] | None = None
) -> Knob:
    """Makes a knob from its parts, as in a file: `spec` is a text or a list of values.

    Raises:
        TuneError: If a part cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise TuneError(
            f"`{name}` is not a valid name of a knob (use letters, digits and `_`, and begin with a "
            "letter or `_`)"
        )
    written: list[Value]
    words = ("yes", "no")
    if isinstance(spec, str):
        written, words = _written(name, spec.strip())
    elif isinstance(spec, list) and spec and all(isinstance(v, int | float | str) for v in spec):
        written = list(spec)
    else:
        raise TuneError(
            f"the values of the knob `{name}` are neither a text nor a list of values: `{spec!r}` (write "
            '`"1..8"` or `[1, 2, 4]`)'
        )
    if len(set(map(_key_of, written))) < len(written):
        raise TuneError(
            f"the knob `{name}` has the same value twice: `{spec}` (remove one of them)"
        )
    kinds = {type(value) for value in written}
    if len(kinds) > 1 and kinds != {int, float}:
        raise TuneError(
            f"the values of the knob `{name}` have different types: `{spec}` (write only numbers, only "
            "words, or only booleans)"
        )
    ordered = sorted(written, key=_number) if kinds <= {int, float} else written
    knob = Knob(name, tuple(ordered), written[0], tuple(turns or guess(name)), words)
    return knob if baseline is None else replace(knob, baseline=knob.read(baseline))


def _written(name: str, spec: str) -> tuple[list[Value], tuple[str, str]]:
    """The values in the order in which they are written, and the words for yes and no."""
    words = ("yes", "no")
    if found := _RANGE.fullmatch(spec):
        first, last, step = int(found[1]), int(found[2]), found[3]
        if last < first or (step == "log" and first < 1) or step == "0":
            raise TuneError(
                f"the range of the knob `{name}` is invalid: `{spec}` (the last number must be at least the "
                "first, the step at least 1, and the first number of a `:log` range at least 1)"
            )
        if step == "log":
            doubled = itertools.takewhile(lambda v: v < last, (first << k for k in range(64)))
            return [*doubled, last], words
        values = range(first, last + 1, int(step or 1))
        if len(values) > MOST_VALUES:
            raise TuneError(
                f"the knob `{name}` has {len(values)} values: `{spec}` (at most {MOST_VALUES} are allowed: "
                "use a larger step, or `:log`)"
            )
        return list(values), words
    parts = [part.strip() for part in spec.split(",")]
    if not all(parts):
        raise TuneError(
            f"the knob `{name}` has an empty value: `{spec}` (write for example `1..8`, `1..64:log`, "
            "`1,2,4` or `yes,no`)"
        )
    if any(".." in part for part in parts):
        raise TuneError(
            f"the values of the knob `{name}` contain `..`, but are not a single range of whole numbers: "
            f"`{spec}` (write for example `1..8`, `2..16:2` or `1..64:log`)"
        )
    if set(parts) in map(set, _WORDS):
        on, off = next(words for words in _WORDS if set(words) == set(parts))
        return [part == on for part in parts], (on, off)
    for read in (int, float):
        try:
            numbers = [read(part) for part in parts]
        except ValueError:
            continue
        if all(math.isfinite(number) for number in numbers):
            return list(numbers), words
    return list(parts), words


def guess(name: str) -> tuple[str, ...]:
    """Guesses by common names which settings a knob changes. Empty if the name is unclear."""
    lower = name.lower()
    if lower in ("workers", "num_workers", "n_workers", "dataloader_num_workers"):
        return ("num_workers",)
    if lower.startswith("prefetch"):
        return ("prefetch_factor", "last.capacity")
    if "subprocess" in lower or lower in ("mtp", "multiprocess"):
        return ("subprocess",)
    if lower in ("pin_memory", "gc_between_epochs"):
        return (lower,)
    stage = re.fullmatch(r"(?:num_|n_)?(\w+?)_(?:threads|concurrency|workers|jobs)", lower)
    if stage:
        return (f"{stage[1]}.concurrency",)
    if any(word in lower for word in ("queue", "buffer", "capacity")):
        return ("*.capacity",)
    return ()


@dataclass(frozen=True)
class Space:
    """All knobs, and the constraints between them."""

    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if not self.knobs:
            raise TuneError("there is no knob (write `--knob NAME=1..8`, or `[knobs]` in a file)")
        names = [knob.name for knob in self.knobs]
        for name in names:
            if names.count(name) > 1:
                raise TuneError(f"there are two knobs with the name `{name}` (rename one)")
        for constraint in self.constraints:
            constraint.check_names(names)
            if not constraint.holds(self.baseline):
                raise TuneError(
                    f"the baseline ({self.describe(self.baseline)}) violates the constraint "
                    f"`{constraint.text}` (set another baseline value with `--knob NAME=VALUES@VALUE`)"
                )

    @property
    def baseline(self) -> Config:
        """The configuration in which every knob has its baseline value."""
        return {knob.name: knob.baseline for knob in self.knobs}

    @property
    def size(self) -> int:
        """Number of configurations, without regard to constraints."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def __getitem__(self, name: str) -> Knob:
        return {knob.name: knob for knob in self.knobs}[name]

    def knobs_of(self, *names: str) -> list[Knob]:
        """The knobs that change a setting.

        Args:
            names: The names of the setting, the most specific one first.

        Returns:
            The knobs whose `turns` have one of the names, those with the most specific one first. If there is none,
            the knobs with a pattern that matches, such as ``*.concurrency``.
        """
        exact: list[Knob] = []
        for name in names:
            exact += [knob for knob in self.knobs if name in knob.turns and knob not in exact]
        return exact or [
            knob
            for knob in self.knobs
            if any(fnmatchcase(name, pattern) for name in names for pattern in knob.turns)
        ]

    def allowed(self, config: Mapping[str, Value]) -> bool:
        """Whether all constraints hold."""
        return all(constraint.holds(config) for constraint in self.constraints)

    def __contains__(self, config: Mapping[str, Value]) -> bool:
        """Whether every knob has the value of the configuration, without regard to constraints."""
        return all(config[knob.name] in knob.values for knob in self.knobs)

    def with_fixed(self, knobs: Collection[Knob]) -> Space:
        """The space in which these knobs keep their baseline values."""
        kept = [
            replace(knob, values=(knob.baseline,)) if knob in knobs else knob for knob in self.knobs
        ]
        return replace(self, knobs=tuple(kept))

    def describe(
        self, config: Mapping[str, Value], since: Mapping[str, Value] | None = None
    ) -> str:
        """The knobs as text; with `since`, only those that differ from it."""
        return ", ".join(
            f"{knob.name} {knob.text(config[knob.name])}"
            for knob in self.knobs
            if since is None or since[knob.name] != config[knob.name]
        )

    def all(self) -> Iterator[Config]:
        """Every allowed configuration. The first knob varies slowest."""
        names = [knob.name for knob in self.knobs]
        for values in itertools.product(*(knob.values for knob in self.knobs)):
            config = dict(zip(names, values))
            if self.allowed(config):
                yield config

    def random(
        self,
        taken: set[str],
        rng: random.Random,
        put_off: Callable[[Config], bool],
    ) -> Config | None:
        """A random configuration that is allowed and not `taken`; None if there is none left.

        One for which `put_off` holds is returned only if no other is left.
        """
        if self.size <= MOST_LISTED:
            left = [config for config in self.all() if key(config) not in taken]
            first = [config for config in left if not put_off(config)] or left
            return rng.choice(first) if first else None
        for _ in range(MOST_LISTED):
            config = {knob.name: rng.choice(knob.values) for knob in self.knobs}
            if self.allowed(config) and key(config) not in taken:
                return config
        return None


def key(config: Mapping[str, Value]) -> str:
    """A text that identifies a configuration."""
    return " ".join(f"{name}={_key_of(config[name])}" for name in sorted(config))


def _key_of(value: Value) -> str:
    return f"{type(value).__name__[0]}:{value}"
