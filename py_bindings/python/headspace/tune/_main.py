"""Runs `headspace tune`: from the command line to the exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from headspace._settings import enabled
from headspace.tune.errors import TuneError
from headspace.tune.options import ParsedArguments, parse
from headspace.tune.output.progress import Progress
from headspace.tune.output.report import report
from headspace.tune.output.summary import summarize
from headspace.tune.plan.objective import Objective
from headspace.tune.plan.planner import Limits
from headspace.tune.run.launch import Patience, Setup
from headspace.tune.run.resources import places
from headspace.tune.run.search import Job, Search
from headspace.tune.space.command import Template
from headspace.tune.store import StorageError, Store

EXIT_OK, EXIT_UNMEASURED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(words: Sequence[str]) -> int:
    """Runs the command. Returns its exit code.

    Args:
        words: The arguments after `headspace tune`.
    """
    try:
        return tune(parse(words))
    except StorageError as error:
        text = f"the storage failed: {error} (recorded outcomes are kept; repeat the command to continue)"
        print(f"headspace tune: {text}", file=sys.stderr)
        return EXIT_UNMEASURED
    except (TuneError, OSError) as error:
        print(f"headspace tune: {error}", file=sys.stderr)
        return EXIT_USAGE


def tune(arguments: ParsedArguments) -> int:
    """Searches, and prints the result.

    Raises:
        TuneError: If an option is invalid. Nothing was run then.
    """
    if not enabled():
        raise TuneError(
            "the environment variable `HEADSPACE` turns headspace off, so no experiment can be measured "
            "(unset it)"
        )
    options, space = arguments.options, arguments.space
    template = Template(arguments.command, space)
    limits = Limits(
        experiments=options.experiments,
        patience=options.patience,
        near_floor=options.near_floor,
        repeats=options.repeats,
        confirm=options.confirm,
        objective=Objective(options.objective),
        seed=options.seed,
    )
    patience = Patience(options.measure, options.timeout, options.startup, options.stall)
    what_if_steps = options.what_if_steps if options.what_if else 0
    setup = Setup(patience, options.inject, options.early_stop, limits.objective, what_if_steps)
    divided = places(options.parallel)
    folder = options.dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    url = options.storage or f"sqlite:///{folder / 'study.db'}"
    settings = {
        "command": shlex.join(template.words),
        "knobs": {knob.name: list(knob.values) for knob in space.knobs},
        "baseline": space.baseline,
        "constraints": [constraint.text for constraint in space.constraints],
        "objective": limits.objective.value,
        "parallel": len(divided),
    }
    store = Store(url, options.study, space, settings, folder)
    job = Job(folder, space, template, limits, setup, divided, options.time)
    ended = Search(job, store, Progress(space, limits, options.quiet)).run()
    found = summarize(ended.trials, space, limits.objective)
    where = os.path.relpath(folder)
    if ended.interrupted:
        if found.winner is not None:
            print("\n".join(report(found, template, "it was interrupted")))
        text = f"interrupted; the results so far are in `{where}` (repeat the command to continue)"
        print(f"headspace tune: {text}", file=sys.stderr)
        return EXIT_INTERRUPTED
    if ended.failed:
        print(f"headspace tune: {ended.reason}", file=sys.stderr)
        if ended.trials:
            print(f"                log: {ended.trials[0].outcome.log}", file=sys.stderr)
        return EXIT_UNMEASURED
    print("\n".join(report(found, template, ended.reason)))
    return EXIT_OK
