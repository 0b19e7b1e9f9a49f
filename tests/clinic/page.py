"""Writes the page of the clinic: each case with its symptom, its cause, and what headspace says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

from card import GROUPS
from diagnosis import LOSS_PCT, Result, count_healthy, count_lossy, count_named

#: The project's folder.
ROOT = Path(__file__).parents[2]

#: Rows of the verdict that the page shows.
ROWS = ("rank", "step", "episodes", "bottleneck", "remedies", "lines", "found", "slowest")

INTRODUCTION = """\
# The clinic: slow training programs from public threads

Each case rebuilds a problem from public issue threads as a small program with the same cause (`tests/clinic/`).
The programs run on two CPU cores, and nothing in them names a stage for headspace. `make clinic` runs each program
under `headspace run`, and its healthy twin, and the program with the cure. With `CLINIC_ARGS="--page FILE"`, it writes
this page.

If a card has a prediction, the program and the cured one run in turn, three to six times, until the standard error of
the mean error is at most 3 percentage points. Which of the two runs first alternates. The tables then contain the mean
of these runs, and the error of each (`runs`). This is necessary because a shared virtual machine becomes faster and
slower while it runs: with the same program and without headspace, the mean compute of seven runs was 24 to 33 ms. The
other programs run once. The verdict shown for a case is from one run.

*Named* means that the verdict of most runs contains the words that the case's card demands. The card also has the
sources of the symptom, the cause and the cure.

The prediction is that of the remedy, or of the step without the costliest episode, or without the excess of the slowest
rank, as the card says. There is none if headspace predicts no number for the cure. The cured program may go further than
the remedy: `other_rank_waits_for_data` runs four workers, where two or three are proposed, and `ray_operator_one_task`
four fetchers, where two calls are proposed.

A *false cure* of a healthy twin is a likely remedy that promises at least 5 % of the step, or a plausible one that
promises at least 10 %. A run that loses time names the latter unasked.

The cards were written before headspace was first run on the programs. At first, it named 11 of the 14 causes, and one
twin got a false cure. headspace was then improved for these cases. Their cards also changed:

- Twelve cards demand more words: those that were there also matched verdicts of other cases, or left out a part of the
  cause.
- That of `tone_before_crop_in_threads` forbade the proposal of a second worker process, but the measurement shows that
  it makes the step 10 % shorter.
- That of `ray_operator_one_task` forbade the names of the fast operators anywhere. It now forbids them only as the
  bottleneck, because the table of stages names all operators.
- Three cards demanded numbers that are only right on the first machine: the length of a stall in
  `prefetch_window_stalls`, the number of workers in `too_few_workers_each_large`, and the first slow step in
  `page_cache_full`. They now accept a wider range, because another machine's cores are half as fast.
- In `page_cache_full`, 240 instead of 160 steps come before the cache is full: headspace had too few readings of them
  to compare.
- The healthy twins of `no_workers_heavy_transforms`, `ray_operator_one_task` and `too_few_workers_each_large` have a
  larger network. The loader of the first was almost as slow as its loop. In the second, Ray's own processes needed the
  cores of the training thread, so the proposal of a third core was no false cure. In the third, the hand-off of batches
  took 11 % of the step: with loading in threads, which was proposed, the step was 7 and 19 % shorter.

So these cases show what headspace can name. How it does on threads that it was not improved for is
[below](#symptoms-of-held-out-threads)."""

HELD_OUT = """\
## Symptoms of held-out threads

These ten threads were chosen, and the words that the verdict must contain were written, before headspace was run on the
programs. headspace was not changed for them. The card of `slow_samples_hold_batches` became stricter later: the word
"prefetch" alone named its cause before."""


def page(results: list[Result], machine: str) -> str:
    """The whole page."""
    ordered = sorted(
        results, key=lambda result: (GROUPS.index(result.card.group), result.card.title)
    )
    parts = [INTRODUCTION, f"The numbers are from {machine}."]
    for held_out, heading in ((False, "## Symptoms"), (True, HELD_OUT)):
        group = [result for result in ordered if result.card.held_out == held_out]
        if group:
            parts += [heading, *summary(group), *map(case, group)]
    return "\n\n".join(parts) + "\n"


def summary(results: list[Result]) -> Iterable[str]:
    yield fill(
        f"The cause is named in {count_named(results)} of {len(results)} cases, and "
        f"{count_healthy(results)} of {len(results)} healthy twins get no false cure. The verdict on "
        f"{count_lossy(results)} of them has an episode or a slowest rank that costs at "
        f"least {LOSS_PCT:.0f} % of the step.",
        120,
    )
    rows = [
        "| first seen | symptom | cause named | cured step: predicted, measured |",
        "| --- | --- | --- | --- |",
    ]
    for result in results:
        anchor = re.sub(r"[^a-z0-9 -]", "", result.card.title.lower()).replace(" ", "-")
        link = f"[{result.card.title}](#{anchor})"
        rows.append(f"| {result.card.group} | {link} | {named(result)} | {cured(result)} |")
    yield "\n".join(rows)


def named(result: Result) -> str:
    """Whether the cause is named, and in how many runs if they differ."""
    answer = "yes" if result.is_named else "no"
    runs = len(result.rounds)
    if result.named_rounds in (0, runs):
        return answer
    return f"{answer}: in {result.named_rounds} of {runs} runs"


def cured(result: Result) -> str:
    """Step of the cured program: predicted, and measured, with the error of each round."""
    if result.problem:
        return result.problem.partition("\n")[0]
    measured = "-" if result.cured_ms is None else f"{result.cured_ms:.1f} ms"
    if result.predicted_ms is None or result.error_pct is None:
        return f"no prediction, {measured}"
    errors = ", ".join(signed(error) for error in result.errors_pct)
    return (
        f"{result.predicted_ms:.1f} ms, {measured} ({signed(result.error_pct)} %; runs: {errors})"
    )


def signed(percent: float) -> str:
    return f"{percent:+.0f}"


def case(result: Result) -> str:
    card = result.card
    texts = [f"### {card.title}"]
    for label, text in (
        ("Symptom", card.symptom),
        ("Cause", card.cause),
        ("Cure", card.cure),
        ("Gain there", card.gain),
    ):
        if text:
            texts.append(
                fill(f"**{label}.** {' '.join(text.split())}", 120, break_long_words=False)
            )
    texts.append("Threads: " + ", ".join(f"<{thread}>" for thread in card.threads))
    texts.append(f"Program: `{card.folder.relative_to(ROOT)}/train.py`")
    if not result.rounds:
        texts.append(f"Not measured: {result.problem}")
    else:
        texts.append(f"```text\n{excerpt(result.shown.sick.text)}\n```")
        missing = ", ".join(f"`{text}`" for text in result.shown.missed)
        texts.append("headspace names the cause." if result.is_named else f"Not named: {missing}")
    if result.false_cures:
        texts.append(f"False cures of the healthy twin: {', '.join(result.false_cures)}")
    if result.twin_losses:
        texts.append(f"In the verdict on the healthy twin: {', '.join(result.twin_losses)}")
    return "\n\n".join(texts)


def excerpt(text: str) -> str:
    """The rows of a verdict that matter for a cause, and the table of ranks."""
    kept, shown = [], False
    for line in text.splitlines():
        # A label begins with a letter, and so does the heading of the table of ranks. The rows of that table begin
        # with a number, and its footnotes with a mark.
        if line[:1].isalpha():
            shown = line.split(" ")[0] in ROWS
        if shown and line.strip():
            kept.append(line.rstrip())
    return "\n".join(kept)
