"""Runs the clinic: public problems rebuilt as programs. Does the verdict name the confirmed cause?

`python tests/clinic [--steps N] [--rounds LEAST MOST] [CASE...]`, or `make clinic`. Each case is a folder in `cases/` or
`held_out/`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "real"))

from card import Card, read_cards
from diagnosis import (
    LOSS_PCT,
    ROUNDS,
    Result,
    count_close_runs,
    count_healthy,
    count_lossy,
    count_named,
    count_named_twins,
    count_predicted,
    examine,
)
from machine import machine
from page import cured, named, page


def try_to_examine(card: Card, steps: int | None, rounds: tuple[int, int]) -> Result:
    if missing := card.missing_modules:
        return Result(card, problem=f"not installed: {', '.join(missing)}")
    try:
        return examine(card, steps, rounds)
    except RuntimeError as error:
        return Result(card, problem=str(error))


def short_name(thread: str) -> str:
    """The repository and the number of a thread, such as `webdataset#24`."""
    *_, repository, _, number = thread.split("/")
    return f"{repository}#{number}"


def row(result: Result) -> str:
    """One row of the table."""
    name, threads = result.card.name, ", ".join(map(short_name, result.card.threads))
    if not result.rounds:
        return f"| {name} | {threads} | {result.problem} | | | |"
    answer = " ".join([named(result), *(f"`{text}`" for text in result.shown.missed)])
    step = "-" if result.step_ms is None else f"{result.step_ms:.1f}"
    false = ", ".join((*result.false_cures, *result.twin_losses)) or "none"
    return f"| {name} | {threads} | {answer} | {step} | {cured(result)} | {false} |"


def print_counts(results: list[Result]) -> None:
    close, predicted = count_predicted(results)
    print(f"cause named: {count_named(results)} of {len(results)}")
    print(f"predicted step within 10 % of the measured one: {close} of {predicted}")
    close, predicted = count_close_runs(results)
    print(f"the same of the single runs: {close} of {predicted}")
    print(
        f"healthy twins whose verdict also contains the words of the card: {count_named_twins(results)}"
    )
    print(f"healthy twins without a false cure: {count_healthy(results)} of {len(results)}")
    print(
        f"healthy twins with an episode or a slowest rank of {LOSS_PCT:.0f} %: "
        f"{count_lossy(results)} of {len(results)}"
    )


def main() -> int:
    cards = read_cards()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, help="steps of each program (default: its own)")
    parser.add_argument(
        "--rounds",
        type=int,
        nargs=2,
        default=ROUNDS,
        metavar=("LEAST", "MOST"),
        help="runs of a program whose cured step is predicted, and of the cured program "
        f"(default: {ROUNDS[0]} {ROUNDS[1]})",
    )
    parser.add_argument("--verdicts", action="store_true", help="also print the verdicts")
    parser.add_argument("--page", type=Path, help="write the results to this page")
    parser.add_argument("case", nargs="*", help=f"of {', '.join(cards)}")
    args = parser.parse_args()
    if not 1 <= args.rounds[0] <= args.rounds[1]:
        parser.error("--rounds needs two numbers from 1 on, the smaller one first")
    if unknown := [name for name in args.case if name not in cards]:
        parser.error(f"no case {', '.join(unknown)}")
    print(
        "| case | threads | cause named | step (ms) | cured step: predicted, measured "
        "| false cures and losses of the twin |"
    )
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    results = []
    for name in args.case or cards:
        results.append(try_to_examine(cards[name], args.steps, tuple(args.rounds)))
        print(row(results[-1]), flush=True)
        if args.verdicts:
            for one in results[-1].rounds:
                print(one.sick.text, flush=True)
    if args.page is not None:
        args.page.write_text(page(results, machine()))
    for held_out in (False, True):
        group = [result for result in results if result.card.held_out == held_out]
        if group:
            print(f"\n{'held-out cases' if held_out else 'cases'}: {len(group)}")
            print_counts(group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
