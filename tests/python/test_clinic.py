"""The clinic's cases are complete. In short runs of some, the verdict names the cause, and the twin gets no false cure.

`make clinic` runs all cases in full, with their cures too.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from memory_groups import memory_group

CLINIC = Path(__file__).parents[1] / "clinic"
sys.path += [str(CLINIC), str(CLINIC.with_name("real"))]

from card import CASES, HELD_OUT, Card, read_cards  # noqa: E402
from diagnosis import false_cures, missed, watch  # noqa: E402
from page import excerpt  # noqa: E402

CARDS = read_cards()

#: Cases that run here, and their steps. Except for ALONE, other tests use the same cores, so the verdict on each of these
#: programs must not depend on exact times. The other cases need more steps, or they would disturb other tests.
SHORT_RUNS = {
    # Each needs at least 30 samples of the stacks of its loader or of its loop. A step takes 20 to 60 ms, and a slow
    # machine takes 5 samples per second.
    "async_device_false_wait": 350,
    "no_workers_heavy_transforms": 250,
    "small_objects_pickled": 250,
    "tone_before_crop_in_threads": 250,
    # The store becomes slower after 280 batches.
    "store_throttles_chunks": 500,
    # The loader shows at once that all ranks load the same samples. The gain of the remedy depends on the cores that
    # the ranks use, and the verdict knows these only after some seconds.
    "every_rank_tokenizes_all": 200,
    # The comparison of ranks needs at least 4 ticks, of 1 s each, after the warm-up. The line needs 30 samples, too.
    "other_rank_waits_for_data": 350,
    # The number is even, because a block of rows is two batches.
    "ray_operator_one_task": 100,
}

#: Cases that need all cores. If another test uses a core, compute becomes so slow that it hides the wait for data. In the
#: twin of `no_workers_heavy_transforms`, the loop's thread then waits for a core while it receives a batch, so the verdict
#: rightly names the hand-off.
ALONE = {
    # If its own work takes longer, the loader waits less for the device.
    "async_device_false_wait",
    # Its two ranks use both cores.
    "every_rank_tokenizes_all",
    "no_workers_heavy_transforms",
    "other_rank_waits_for_data",
    "store_throttles_chunks",
    # The loop's thread waits for a core while it receives a batch, so the verdict on its twin names the hand-off.
    "tone_before_crop_in_threads",
}


def short(runs: dict[str, int]) -> list[Any]:
    """Parameters of the tests that run these cases."""
    marks = {name: pytest.mark.alone if name in ALONE else () for name in runs}
    return [pytest.param(name, steps, marks=marks[name]) for name, steps in runs.items()]


#: The healthy twins that run here. Ray's own processes compete for the cores with other tests, so its twin may rightly
#: be told that more cores would help.
SHORT_TWINS = {name: steps for name, steps in SHORT_RUNS.items() if name != "ray_operator_one_task"}

VERDICT_OF_RANKS = """\
headspace  400 steps
rank       The numbers below, including workers and cores, are those of rank 1, the slowest of 2.
step       42.9 ms   waiting for data 28.2 ms (66 %)   compute 14.7 ms
samples    187/s
remedies   18.3 ms (−57 %)   Load in 3 worker processes instead of 1 on each
                             rank (likely).

lines                       in   share   step at half    gain     does        function
           train.py:37   fetch    99 %        21.6 ms   −50 %   sleeps   Episodes.read

ranks      2 of 2 read.
slowest    Rank 1, because of its data. The other ranks wait for it, and this wait counts as
           their compute.
steps      The ranks took between 399 and 400 steps.

rank  steps     step  waiting  compute  rank wait  floor  headspace
0       400  42.9 ms   1.2 ms  41.7 ms    27.0 ms      -          -
1 *     399  42.9 ms  28.2 ms  14.7 ms     0.0 ms      -          -
* no recorded end
"""

EXCERPT_OF_RANKS = """\
rank       The numbers below, including workers and cores, are those of rank 1, the slowest of 2.
step       42.9 ms   waiting for data 28.2 ms (66 %)   compute 14.7 ms
remedies   18.3 ms (−57 %)   Load in 3 worker processes instead of 1 on each
                             rank (likely).
lines                       in   share   step at half    gain     does        function
           train.py:37   fetch    99 %        21.6 ms   −50 %   sleeps   Episodes.read
slowest    Rank 1, because of its data. The other ranks wait for it, and this wait counts as
           their compute.
rank  steps     step  waiting  compute  rank wait  floor  headspace
0       400  42.9 ms   1.2 ms  41.7 ms    27.0 ms      -          -
1 *     399  42.9 ms  28.2 ms  14.7 ms     0.0 ms      -          -
* no recorded end"""


@pytest.mark.parametrize("name", CARDS)
def test_a_case_names_its_sources_and_its_programs_do_not_know_headspace(name: str) -> None:
    card = CARDS[name]

    assert card.threads
    assert all(thread.startswith("https://") for thread in card.threads)
    assert all(map(re.compile, (*card.says, *card.never)))
    for program in {"train.py", card.twin[0]}:
        assert "headspace" not in (card.folder / program).read_text()


def test_every_folder_is_a_case() -> None:
    cases = [path for folder in (CASES, HELD_OUT) for path in folder.iterdir() if path.is_dir()]
    assert len(cases) == len(CARDS)


def test_the_page_of_a_case_shows_the_rows_of_the_table_of_ranks() -> None:
    assert excerpt(VERDICT_OF_RANKS) == EXCERPT_OF_RANKS


def installed(name: str) -> Card:
    """The card of the case with this name. Skips the test if its modules are missing."""
    card = CARDS[name]
    if missing := card.missing_modules:
        pytest.skip(f"not installed: {', '.join(missing)}")
    return card


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), short(SHORT_RUNS))
def test_headspace_run_names_the_cause_unasked(name: str, steps: int) -> None:
    card = installed(name)

    verdict = watch(card, "train.py", [], steps)

    assert missed(card, verdict.text) == (), verdict.text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), short(SHORT_TWINS))
def test_a_healthy_twin_gets_no_false_cure(name: str, steps: int) -> None:
    card = installed(name)

    twin = watch(card, *card.twin, steps)

    assert twin.live_ms is not None, twin.text
    assert false_cures(twin) == (), twin.text


@pytest.mark.slow
@pytest.mark.alone
def test_the_slow_one_of_several_ranks_that_ray_starts_is_named_with_its_lines() -> None:
    card = installed("ray_operator_one_task")
    options = ["--ranks", "2", "--fetchers", "4", "--latency-ms", "0.5", "--norms"]

    text = watch(card, "train.py", options, 500).text

    assert "Rank 0, because of its compute" in text, text
    # The other ranks wait for rank 0 at one of its two long lines, so it may be unclear which line only rank 0 has.
    assert re.search(r"train.py:[0-9]+ +compute .* spectral_norms", text), text


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    ("limit_mb", "says"),
    [
        # Without the limit, 4.2 workers are enough: a call takes 45 ms, and a step 11 ms.
        (
            2_200,
            r"Reduce the memory of each worker process \(now [0-9.]+ [MG]iB\), then load in [2-5] instead of 1",
        ),
        (3_600, r"Load in [23] worker processes instead of 1[:;] each takes [0-9.]+ [MG]iB"),
    ],
)
def test_no_more_workers_are_proposed_than_the_memory_of_a_container_is_enough_for(
    limit_mb: int, says: str
) -> None:
    card = installed("too_few_workers_each_large")

    with memory_group(limit_mb << 20) as launch:
        text = watch(replace(card, launch=launch), "train.py", [], 200).text

    assert re.search(says, " ".join(text.split())), text
