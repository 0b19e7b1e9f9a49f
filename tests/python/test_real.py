"""Programs that use a framework as its documentation does: same exit code and output under
`headspace run`, in `measure` and in `probe`, and the training loop is recognised.

`make real` runs them longer, with programs of public repositories beside them, and compares the numbers
with the truth (docs/real.md).
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "real"))

import outputs
import packages
from case import Case, Edit
from examine import Examination
from workplace import NotHere, Workplace

#: Enough for most probes to have handed out cached batches, also while other tests use the cores: the first live
#: window lasts until the loop has settled.
STEPS = 240

#: An epoch is a sixth of the program's steps, and a window of the probe ends with its epoch.
MORE_STEPS = {"torchdata": 360}

#: Programs whose first cached batch comes later: several ranks switch on a fixed schedule, and the number of
#: batches in Grain's workers is unknown.
LATE = ("accelerate", "grain")

#: Programs whose packages are in requirements/test.txt and torch.txt.
HERE = (
    *("accelerate", "datasets", "grain", "lightning", "monai", "spdl", "torchdata", "trainer"),
    "webdataset",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("real"), checkouts=None, steps=STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_a_program_behaves_the_same_with_and_without_headspace(place: Workplace, name: str) -> None:
    (case,) = (case for case in packages.CASES if case.name == name)
    place = dataclasses.replace(place, steps=MORE_STEPS.get(name, STEPS))
    try:
        examination = Examination(case, place, truth_runs=0)
    except NotHere as missing:
        pytest.skip(str(missing))

    result = examination()

    assert not any(result.differences.values()), "\n".join(result.differences.values())
    assert result.measured is not None
    assert (result.measured.loop, result.measured.steps) == (case.loop, place.steps)
    assert result.is_recognised
    assert result.probed is not None
    assert result.probed.replayed_steps > 0 or name in LATE


def test_only_values_that_change_between_runs_are_masked() -> None:
    def shown(text: str, *, computed: bool) -> list[str]:
        return outputs.masked(text, (), computed=computed, unordered=False)

    plain = "1/2 [00:01, 3.1it/s]\r2/2 [00:02, 4.2it/s]\nloss 0.5, epoch 1 took 3.2 s\n"
    slower = "2/2 [00:09, 0.2it/s]\nloss 0.5, epoch 1 took 9.9 s\n"
    assert shown(plain, computed=False) == shown(slower, computed=False)

    other_loss = slower.replace("0.5", "0.6")
    assert shown(plain, computed=False) != shown(other_loss, computed=False)
    assert shown(plain, computed=True) == shown(other_loss, computed=True)

    longer = slower.replace("2/2", "3/2")
    assert shown(plain, computed=True) != shown(longer, computed=True)


def test_a_knob_belongs_to_the_program_if_its_command_or_an_edit_sets_it() -> None:
    command = ("{python}", "train.py", "--workers", "{num_workers}")
    edit = Edit("train.py", "depth = 2", "depth = {prefetch_factor}")
    case = Case("train", command, modules=(), edits=(edit,))

    knobs = ("num_workers", "prefetch_factor", "decode.concurrency")
    assert [case.takes(knob) for knob in knobs] == [True, True, False]
