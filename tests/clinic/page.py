"""Writes the page of the clinic: each case with its symptom, its cause, and what headspace says."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import fill

from card import CAUSE_FROM, GROUPS
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
)

#: The project's folder.
ROOT = Path(__file__).parents[2]

#: Rows of the verdict that the page shows.
ROWS = ("rank", "step", "episodes", "bottleneck", "remedies", "lines", "found", "slowest")

HEADING = """\
# The clinic: slow training programs from public threads

Each case rebuilds a problem from public issue threads as a small program with the same symptom. Find yours in the
table: its section shows the rows of `headspace report` that matter, and what changed in the cured program. The same rows
for your program:

```console
$ headspace run -- python train.py
```

headspace was [developed](#how-the-clinic-runs) with the cases without a mark. Those with a * were
[held out](#symptoms-of-held-out-threads).

The column *step* has the step of the program, in the run that its section shows. The last column has the step that
headspace predicts without the cause, the measured step of the cured program, the error of the prediction in percent, and
that of each run. Some predictions are those of a remedy, others are those of the step without a slow part of the run."""

SYMPTOMS = """\
## Symptoms

headspace was developed with these cases."""

HELD_OUT = """\
## Symptoms of held-out threads

These ten threads were chosen, and the words that the verdict must contain were written, before headspace was run on the
programs. The history of the repository does not show this: the cards and the programs came in one commit. headspace was
not changed for them. Two cards changed later: in `slow_samples_hold_batches`, the word "prefetch" alone named the cause
before, and in `every_graph_batch_compiles`, `lower` also matched "slower"."""

METHOD = f"""\
## How the clinic runs

The programs are in `tests/clinic/`. They run on two CPU cores, and nothing in them names a stage for headspace. Slow
disks and devices are simulated, and so are most stores. `make clinic` runs each program under `headspace run`, its
healthy twin, and the program with the cure. With `CLINIC_ARGS="--page FILE"`, it writes this page.

If a card has a prediction, the program and the cured one run in turn, {ROUNDS[0]} to {ROUNDS[1]} times, until the
standard error of the mean error is at most 3 percentage points. Which of the two runs first alternates. The table then
contains the mean of these runs, and the error of each (`runs`). This is necessary because a shared virtual machine
becomes faster and slower while it runs: with the same program and without headspace, the mean compute of seven runs was
24 to 33 ms. The other programs run once. The verdict shown for a case is from one run.

Earlier runs of the whole clinic, on other shared machines and with earlier versions, named the cause of 13 or 14 of the
14 cases, and 8 to 10 of 10 or 11 predictions were within 10 %.

*Named* means that the verdict of most runs contains the words that the case's card demands. The card also has the
sources of the symptom, the cause and the cure.

The prediction is that of the remedy, or of the step without the costliest episode, or without the excess of the slowest
rank, as the card says. There is none if the card names no such prediction, or if headspace makes none. The cured program
may go further than the remedy: `other_rank_waits_for_data` runs four workers, where two or three are proposed. For
`ray_operator_one_task`, headspace once predicted a step that was wrong by -47 to +15 % from machine to machine: with
Ray, a call takes 106 ms if one runs at a time, and 169 to 198 ms if two to four run, although cores are free. A run with
one call at a time does not show this, so headspace now says that the gain of more calls is unknown.

A *false cure* of a healthy twin is a likely remedy that promises at least 5 % of the step, or a plausible one that
promises at least 10 %. A run that loses time names the latter unasked. Guesses and remedies without a predicted number
do not count.

The cards were written before headspace was first run on the programs. At first, it named 11 of the 14 causes, and one
twin got a false cure. headspace was then improved for these cases. Their cards also changed:

- Fourteen cards demand more words: those that were there also matched verdicts of other cases, or left out a part of the
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
- The cured program of `too_few_workers_each_large` has three workers instead of four. The verdict proposes three or
  four.
- That of `prefetch_window_stalls` has four readers instead of eight: its store now runs on the same cores. With eight
  readers, the mean error was -7 %, and those of six runs -21 to +1 %.
- The healthy twins of `no_workers_heavy_transforms`, `ray_operator_one_task` and `too_few_workers_each_large` have a
  larger network. The loader of the first was almost as slow as its loop. In the second, Ray's own processes needed the
  cores of the training thread, so the proposal of a third core was no false cure. In the third, the hand-off of batches
  took 11 % of the step. headspace proposed loading in threads, and this really made the step 7 % shorter in one run,
  and 19 % in another.
- `demux_threads_share_lock` was added later, and headspace named its cause in its first run. In the thread, eight threads
  are slower than three. Here they are as fast, so the verdict proposes to avoid the lock, and no number of threads. The
  program then changed twice: the lock is held while a thread waits for the store, not while it works, and the network is
  larger. Before, the loader's threads needed the cores of the training thread in the cured program, and the predictions
  were 4 to 28 % too short.
- `store_throttles_chunks` was added last, and headspace did not name its cause at first. It found two series of stalls
  instead of one change, and the line of the training loop that a worker inherits from its parent instead of the line
  that downloads. It also proposed a second worker, and a longer buffer.

So the cases without a mark show what headspace can name. The held-out ones show how it does on threads that it was
not improved for."""


def page(results: list[Result], machine: str) -> str:
    """The whole page."""
    ordered = sorted(
        results, key=lambda result: (GROUPS.index(result.card.group), result.card.title)
    )
    parts = [HEADING, table(ordered)]
    for held_out, heading in ((False, SYMPTOMS), (True, HELD_OUT)):
        group = [result for result in ordered if result.card.held_out == held_out]
        if group:
            parts += [heading, counts(group), *map(case, group)]
    return "\n\n".join([*parts, METHOD, f"The numbers are from {machine}."]) + "\n"


def table(results: list[Result]) -> str:
    """The symptoms of all cases, with what the user sees first."""
    rows = [
        "| first seen | symptom | cause named | step | cured step: predicted, measured |",
        "| --- | --- | --- | --- | --- |",
    ]
    last = None
    for result in results:
        card = result.card
        anchor = re.sub(r"[^a-z0-9 -]", "", card.title.lower()).replace(" ", "-")
        link = f"[{card.title}](#{anchor}){' *' if card.held_out else ''}"
        group = "" if card.group == last else card.group
        step = shown_step(result)
        rows.append(f"| {group} | {link} | {named(result)} | {step} | {cured(result)} |")
        last = card.group
    return "\n".join(rows)


def counts(results: list[Result]) -> str:
    """The number of named causes, of right predictions, and of twins without a false cure, as a paragraph."""
    close, predicted = count_predicted(results)
    close_runs, runs = count_close_runs(results)
    predictions = (
        f"{close} of {predicted} predicted steps are within 10 % of the measured ones, and so are {close_runs} of the "
        f"{runs} single runs. "
        if predicted
        else ""
    )
    confirmed = [result for result in results if result.card.is_cause_confirmed]
    return fill(
        f"The cause is named in {count_named(results)} of {len(results)} cases. The threads confirm the cause of "
        f"{len(confirmed)} of them, and {count_named(confirmed)} of these are named. "
        f"{predictions}{count_healthy(results)} of {len(results)} healthy twins get no false cure. The words of the "
        f"card are also in the verdict on the healthy twin in {count_named_twins(results)} cases. The verdict on "
        f"{count_lossy(results)} of them has an episode or a slowest rank that costs at least {LOSS_PCT:.0f} % of the "
        f"step.",
        120,
    )


def named(result: Result) -> str:
    """Whether the cause is named, and in how many runs if they differ."""
    answer = "yes" if result.is_named else "no"
    runs = len(result.rounds)
    if result.named_rounds in (0, runs):
        return answer
    return f"{answer}: in {result.named_rounds} of {runs} runs"


def shown_step(result: Result) -> str:
    """Step of the program in the run whose verdict the page shows."""
    step_ms = result.shown.sick.live_ms if result.rounds else None
    return "-" if step_ms is None else f"{step_ms:.1f} ms"


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
    return f"{round(percent):+d}"


def case(result: Result) -> str:
    card = result.card
    texts = [f"### {card.title}"]
    for label, text in (
        ("Symptom", card.symptom),
        (f"Cause ({CAUSE_FROM[card.cause_from]})", card.cause),
        ("Cure", card.cure),
        ("Gain there", card.gain),
    ):
        if text:
            texts.append(
                fill(f"**{label}.** {' '.join(text.split())}", 120, break_long_words=False)
            )
    texts.append("Threads: " + ", ".join(f"<{thread}>" for thread in card.threads))
    program = f"`{card.folder.relative_to(ROOT)}/train.py`"
    cured_by = f", cured by `{' '.join(card.apply)}`: {card.applied}" if card.apply else ""
    texts.append(f"Program: {program}{cured_by}")
    if not result.rounds:
        texts.append(f"Not measured: {result.problem}")
    else:
        texts.append(f"```text\n{excerpt(result.shown.sick.text)}\n```")
        missing = ", ".join(f"`{text}`" for text in result.shown.missed)
        answer = f"headspace does not name the cause. The verdict lacks {missing}."
        texts.append("headspace names the cause." if result.is_named else answer)
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
