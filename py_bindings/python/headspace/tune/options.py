"""Parses the command line of `headspace tune`, and the TOML file that may replace it."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headspace._native import LEAST_WHAT_IF_STEPS
from headspace._settings import duration
from headspace.tune.errors import TuneError
from headspace.tune.plan.objective import Objective
from headspace.tune.space.command import WHAT_IF
from headspace.tune.space.constraints import Constraint
from headspace.tune.space.knobs import Knob, Space, make_knob, parse_knob

_EPILOG = """\
In COMMAND, {knob} becomes the value of the knob. If the knob is a switch, {knob:--flag} becomes --flag if
the switch is yes, and nothing if it is no. {what_if:1200|200} becomes 1200 in the first run of the baseline,
which measures what each stage gains, and 200 in all other runs.

Knobs:
  n=1..8          every integer from 1 to 8
  n=2..16:2       every second integer
  n=1..64:log     1, 2, 4, ... 64
  n=1,2,4,8       these values: numbers or words
  n=yes,no        a switch
The baseline is the first value, or the value after @, as in n=1..8@4.

The folder DIR contains study.db (Optuna), results.tsv (a row per experiment), experiments.jsonl, progress.svg,
tree.svg, and the log and the run of each experiment. If a search was killed, the same command continues it.
Tuners with the same --storage and --study share one study.

Exit code: 0 if the search is complete; 1 if the baseline could not be measured or the storage failed; 2 for an
error in the command line or the file; 130 if the search was interrupted."""


_HELP = {
    "--knob": "a knob and its values",
    "--constraint": "an expression that must be true, such as 'decode_threads + demux_threads <= 4'",
    "--file": "a TOML file with [knobs], constraints, command and options (in their names, write _ for -; "
    "for --no-what-if, write what_if = false). The command line overrides the file",
    "--dir": "folder for all results (default: %(default)s)",
    "--objective": "step: minimise the time per step; throughput: minimise the time per sample, if a knob "
    "changes the batch size",
    "--experiments": "maximum number of experiments (default: %(default)s)",
    "--time": "start no new experiment after this time, such as 90m (default: no limit)",
    "--patience": "stop after N experiments without a gain of 1 %% (default: %(default)s)",
    "--near-floor": "stop when the best step is within PERCENT of the floor (default: %(default)s)",
    "--measure": "end an experiment after this much training, not counting warm-up; `inf`: the program ends by itself "
    "(default: %(default)s)",
    "--timeout": "maximum time of one experiment (default: %(default)s)",
    "--startup": "maximum time from the start of an experiment to its first step (default: %(default)s)",
    "--stall": "time without a step after which an experiment counts as hung (default: %(default)s)",
    "--repeats": "how many times to rerun a configuration whose interval overlaps that of the best one "
    "(default: %(default)s)",
    "--confirm": "at the end, run the best configuration and the baseline N times each, in turn (default: "
    "%(default)s)",
    "--parallel": "number of experiments at the same time; cores and GPUs are divided among them "
    "(default: %(default)s)",
    "--storage": "an Optuna storage: sqlite:///PATH, journal:PATH, or the URL of a database, as "
    "docs/tune.md shows (default: study.db in the folder)",
    "--study": "name of the study in the storage",
    "--seed": "seed of the sampler (default: %(default)s)",
    "--what-if-steps": "maximum number of steps in which the baseline's stages are changed in turn, to measure what "
    "each gains (default: %(default)s)",
    "--no-what-if": "only measure the baseline, not what each stage gains, nor the floor",
    "--no-early-stop": "do not stop an experiment early if it is slower than the best one",
    "--no-inject": "the program calls headspace.wrap itself: do not start it under `headspace run`",
    "--quiet": "print only the result",
}


#: Options of files for older versions, and their names now.
_RENAMED = {"probe": "what_if"}


@dataclass(frozen=True)
class ParsedArguments:
    """The parsed command line."""

    space: Space
    command: list[str]
    options: argparse.Namespace


def parse(words: Sequence[str]) -> ParsedArguments:
    """Reads the command line.

    Raises:
        TuneError: If knobs, constraints, the file or the command are invalid.
        SystemExit: If argparse finds an error (exit code 2), or prints the help.
    """
    words = list(words)
    split = words.index("--") if "--" in words else len(words)
    own, command = words[:split], words[split + 1 :]
    options = parser()
    first = options.parse_args(own)
    kept: Mapping[str, Any] = read_file(first.file) if first.file else {}
    options.set_defaults(**_defaults(options, kept))
    arguments = options.parse_args(own)
    knobs = {knob.name: knob for knob in _file_knobs(kept)}
    given = list(map(parse_knob, arguments.knob))
    for knob in given:
        if sum(other.name == knob.name for other in given) > 1:
            raise TuneError(f"`--knob {knob.name}=…` is given twice (remove one of them)")
        # The command line overrides the file.
        knobs[knob.name] = knob
    for reserved in WHAT_IF:
        if reserved in knobs:
            raise TuneError(
                f"a knob cannot have the name `{reserved}`, because `{{{reserved}:YES|NO}}` is reserved for the "
                "first run of the baseline (rename the knob)"
            )
    constraints = [*_texts(kept, "constraints"), *arguments.constraint]
    space = Space(tuple(knobs.values()), tuple(map(Constraint, constraints)))
    if not command:
        command = _file_command(kept)
    return ParsedArguments(space, command, arguments)


def read_file(path: Path) -> dict[str, Any]:
    """A TOML file.

    Raises:
        TuneError: If it cannot be read.
    """
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise TuneError(
                "a TOML file needs Python 3.11 or later, or the package `tomli` "
                "(`python -m pip install tomli`)"
            ) from error
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TuneError(f"cannot read `{path}`: {error.strerror}") from error
    except ValueError as error:
        raise TuneError(f"`{path}` is not a valid TOML file: {error}") from error
    return found


def _file_knobs(kept: Mapping[str, Any]) -> list[Knob]:
    knobs = kept.get("knobs", {})
    if not isinstance(knobs, dict):
        raise TuneError(
            '`knobs` in the file is not a table (write `[knobs]`, then `name = "1..8"`)'
        )
    found = []
    for name, spec in knobs.items():
        if not isinstance(spec, dict):
            found.append(
                parse_knob(f"{name}={spec}") if isinstance(spec, str) else make_knob(name, spec)
            )
            continue
        unknown = set(spec) - {"values", "baseline", "turns"}
        if unknown or "values" not in spec:
            what = f"an unknown key `{unknown.pop()}`" if unknown else "no key `values`"
            raise TuneError(
                f"the knob `{name}` in the file has {what} (the keys are `values`, and optionally "
                "`baseline` and `turns`)"
            )
        turns = spec.get("turns")
        turns = [turns] if isinstance(turns, str) else turns
        found.append(make_knob(name, spec["values"], spec.get("baseline"), turns))
    return found


def _file_command(kept: Mapping[str, Any]) -> list[str]:
    command = kept.get("command", [])
    return shlex.split(command) if isinstance(command, str) else _texts(kept, "command")


def _texts(kept: Mapping[str, Any], name: str) -> list[str]:
    found = kept.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TuneError(f'`{name}` in the file is not a list of strings (write `{name} = ["…"]`)')
    return list(found)


def _defaults(options: argparse.ArgumentParser, kept: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the file as defaults, converted as argparse converts them."""
    known = {action.dest: action for action in options._actions}
    found: dict[str, Any] = {}
    for name, value in kept.items():
        if name in ("knobs", "constraints", "command"):
            continue
        name = _RENAMED.get(name, name)
        action = known.get(name)
        if action is None or name in ("help", "file", "knob", "constraint"):
            raise TuneError(
                f"`{name}` in the file is not an option (`headspace tune --help` lists the options)"
            )
        if isinstance(action.const, bool):
            if not isinstance(value, bool):
                raise TuneError(f"`{name}` in the file is not a boolean (write `true` or `false`)")
            found[name] = value
            continue
        try:
            found[name] = action.type(str(value)) if callable(action.type) else str(value)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise TuneError(f"`{name}` in the file: {error}") from error
        if action.choices is not None and found[name] not in action.choices:
            choices = ", ".join(f"`{choice}`" for choice in action.choices)
            raise TuneError(
                f"`{name}` in the file cannot be `{found[name]}` (write one of {choices})"
            )
    return found


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"`{text}` is less than 0")
    return number


def _count(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is less than 1")
    return number


def _what_if_steps(text: str) -> int:
    number = _whole(text)
    if number < LEAST_WHAT_IF_STEPS:
        raise argparse.ArgumentTypeError(
            f"`{text}` is less than {LEAST_WHAT_IF_STEPS}, the fewest steps that can answer a question"
        )
    return number


def _percent(text: str) -> float:
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 <= share <= 10:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a percentage from 0 to 1000 (write for example `5%`)"
        )
    return share


def _duration(text: str) -> float:
    seconds = duration(text, m=60.0, h=3600.0)
    if seconds is None or not seconds > 0:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a duration above 0 (write for example `90s`, `30m` or `2h`)"
        )
    return seconds


def parser() -> argparse.ArgumentParser:
    """Creates the parser. The file has the `dest` names of its options as keys."""
    made = argparse.ArgumentParser(
        prog="headspace tune",
        usage="headspace tune [OPTIONS] --knob NAME=VALUES ... -- COMMAND ...",
        description="Finds the values of the knobs with which training runs fastest. It runs the "
        "baseline and\nmeasures what each stage gains. Then it tries what the verdicts and the model propose, and the "
        "knobs that\nthe model does not contain. Then a sampler chooses among the other configurations.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def add(name: str, *aliases: str, **how: Any) -> None:
        made.add_argument(name, *aliases, help=_HELP[name], **how)

    add("--knob", action="append", default=[], metavar="NAME=VALUES")
    add("--constraint", action="append", default=[], metavar="EXPRESSION")
    add("--file", type=Path, metavar="FILE")
    add("--dir", type=Path, default="headspace-tune", metavar="DIR")
    add("--objective", choices=[o.value for o in Objective], default="step")
    # `type` reads a default that is a string, too.
    add("--experiments", type=_count, default="40", metavar="N")
    add("--time", type=_duration, default="inf", metavar="TIME")
    add("--patience", type=_count, default="10", metavar="N")
    add("--near-floor", type=_percent, default="5%", metavar="PERCENT")
    add("--measure", type=_duration, default="60s", metavar="TIME")
    add("--timeout", type=_duration, default="30m", metavar="TIME")
    add("--startup", type=_duration, default="10m", metavar="TIME")
    add("--stall", type=_duration, default="2m", metavar="TIME")
    add("--repeats", type=_whole, default="1", metavar="N")
    add("--confirm", type=_whole, default="2", metavar="N")
    add("--parallel", type=_count, default="1", metavar="N")
    add("--storage", metavar="URL")
    add("--study", default="headspace-tune", metavar="NAME")
    add("--seed", type=_whole, default="0", metavar="N")
    add("--what-if-steps", type=_what_if_steps, default="1000", metavar="N")
    add("--no-what-if", "--no-probe", dest="what_if", action="store_false")
    add("--no-early-stop", dest="early_stop", action="store_false")
    add("--no-inject", dest="inject", action="store_false")
    add("--quiet", action="store_true")
    return made
