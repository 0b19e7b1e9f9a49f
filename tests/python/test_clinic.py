"""The clinic's cases are complete, and a verdict names the cause of two of them.

`make clinic` runs all cases with their cures and healthy twins.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

CLINIC = Path(__file__).parents[1] / "clinic"
sys.path += [str(CLINIC), str(CLINIC.with_name("real"))]

tomllib = pytest.importorskip("tomllib", reason="platform: Python 3.10 has no tomllib")

from card import CASES, HELD_OUT, read_cards  # noqa: E402

CARDS = read_cards()


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no_workers_heavy_transforms", "small_objects_pickled"])
def test_headspace_run_names_the_cause_unasked(name: str) -> None:
    pytest.importorskip("torch")
    from diagnosis import missed, watch

    verdict = watch(CARDS[name], "train.py", [], steps=150)

    assert missed(CARDS[name], verdict.text) == (), verdict.text
