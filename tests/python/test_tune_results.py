"""The results of a search: classes of experiments, the hit rate, the ladder, and their pictures and reports."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from test_tune_plan import SPACE, Made, outcome, searched
from tune_replay import read_grid, replay

from headspace.tune.experiment import Kind, Outcome, Proposal, State, Trial
from headspace.tune.output import results
from headspace.tune.output.drawing import ticks_of
from headspace.tune.output.ladder_plot import ladder_svg
from headspace.tune.output.plots import progress_svg
from headspace.tune.output.report import report
from headspace.tune.output.summary import SearchSummary, seconds_by_group, summarize
from headspace.tune.output.tree_plot import tree_svg
from headspace.tune.output.wording import NO_DURATION, NO_SM, format_contribution
from headspace.tune.plan.classes import (
    Class,
    Group,
    classify,
    count_classes,
    count_since_kept,
)
from headspace.tune.plan.objective import Objective
from headspace.tune.plan.planner import Limits
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Config, Space, parse_knob

SMALL = Space(tuple(map(parse_knob, ("threads=1,2,4", "depth=1,2", "turbo=no,yes"))))
SVG = "{http://www.w3.org/2000/svg}"


def config(threads: int = 1, depth: int = 1, turbo: bool = False) -> Config:
    return {"threads": threads, "depth": depth, "turbo": turbo}


def trials_of(*runs: tuple[Kind, Config, Outcome]) -> list[Trial]:
    """Experiments in this order."""
    return [
        Trial(number, Proposal(kind, knobs, "A test.", 0 if number else None), outcome=ended)
        for number, (kind, knobs, ended) in enumerate(runs)
    ]


def summary_of(*runs: tuple[Kind, Config, Outcome]) -> SearchSummary:
    return summarize(trials_of(*runs), SMALL, Objective.STEP)


def classes(trials: Sequence[Trial], objective: Objective = Objective.STEP) -> list[Class]:
    return [one.category for one in classify(trials, objective)]


def test_each_ending_of_an_experiment_has_its_class():
    failed = {
        State.TIMEOUT: Class.TIMEOUT,
        State.STALLED: Class.STALLED,
        State.CRASHED: Class.CRASHED,
        State.STARTUP_FAILED: Class.STARTUP_FAILED,
    }
    runs = [(Kind.BASELINE, config(), outcome(100.0))]
    runs += [(Kind.SAMPLE, config(), Outcome(state)) for state in failed]
    runs += [
        (Kind.SAMPLE, config(2), Outcome(State.FINISHED, steps=3)),
        (Kind.SAMPLE, config(2, 2), Outcome(State.STOPPED_EARLY, 130.0, (129.0, 131.0))),
        (Kind.SAMPLE, config(4), outcome(101.0)),
        (Kind.MODEL, config(4, 2), outcome(90.0)),
        (Kind.REPEAT, config(4, 2), outcome(80.0)),
        (Kind.CONFIRM, config(), Outcome(State.CRASHED)),
    ]
    trials = trials_of(*runs)
    assert classes(trials) == [
        Class.BASELINE, *failed.values(), Class.UNMEASURED, Class.STOPPED_EARLY, Class.NO_GAIN,
        Class.KEPT, Class.RERUN, Class.CRASHED,
    ]  # fmt: skip
    counts = count_classes(classify(trials, Objective.STEP))
    assert counts[Class.CRASHED] == 1, "a rerun is no part of the search"
    assert Class.RERUN not in counts
    assert {category.group for category in failed.values()} == {Group.FAILED}


def test_an_experiment_is_kept_if_it_gains_one_percent_over_the_last_kept_one():
    trials = trials_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.SAMPLE, config(2), outcome(99.1)),
        (Kind.SAMPLE, config(4), outcome(98.9)),
        (Kind.SAMPLE, config(4, 2), outcome(98.5)),
        (Kind.SAMPLE, config(2, 2), outcome(60.0)),
        (Kind.SAMPLE, config(1, 2), outcome(59.9)),
    )
    found = summarize(trials, SMALL, Objective.STEP)
    assert classes(trials) == [
        Class.BASELINE, Class.NO_GAIN, Class.KEPT, Class.NO_GAIN, Class.KEPT, Class.NO_GAIN,
    ]  # fmt: skip
    assert [one.significant for one in found.experiments] == [False] * 4 + [True, False]
    assert (found.hit_rate.kept, found.hit_rate.significant, found.hit_rate.experiments) == (
        2,
        1,
        5,
    )
    assert found.hit_rate.pct == 40.0
    assert count_since_kept(found.experiments) == 1
    assert count_since_kept(found.experiments[:4]) == 1


def test_without_samples_no_experiment_has_a_class_by_throughput():
    trials = trials_of((Kind.BASELINE, config(), Outcome(State.FINISHED, 9.0, (8.9, 9.1), 99)))
    assert classes(trials, Objective.THROUGHPUT) == [Class.UNMEASURED]
    found = summarize(trials, SMALL, Objective.THROUGHPUT)
    assert found.ladder is None
    assert found.hit_rate.pct is None


def test_the_gains_of_the_ladder_add_up_to_the_gain_of_the_winner():
    found = summary_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.MODEL, config(4, 1), outcome(60.0)),
        (Kind.SINGLE, config(4, 1, True), outcome(50.0)),
        (Kind.SAMPLE, config(1, 2, True), outcome(90.0)),
        (Kind.SAMPLE, config(4, 2, True), outcome(49.0)),
    )
    assert found.ladder is not None
    rungs = found.ladder.rungs
    assert [[change.text for change in rung.changes] for rung in rungs] == [
        ["threads 1 → 4"], ["turbo no → yes"], ["depth 1 → 2"],
    ]  # fmt: skip
    assert [rung.gain_pct for rung in rungs] == pytest.approx([40.0, 10.0, 1.0])
    assert [rung.significant for rung in rungs] == [True, True, False]
    assert sum(rung.gain_pct for rung in rungs) == pytest.approx(found.ladder.gain_pct)


def test_a_rung_is_divided_where_an_experiment_measured_a_part_of_it():
    found = summary_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.MODEL, config(4, 2, True), outcome(40.0)),
        (Kind.SAMPLE, config(4, 1, False), outcome(70.0)),
        (Kind.SAMPLE, config(4, 1, True), outcome(72.0)),
        (Kind.SAMPLE, config(2, 2, True), outcome(50.0)),
    )
    assert found.ladder is not None
    rungs = found.ladder.rungs
    assert [rung.trial.number for rung in rungs] == [2, 3, 1], "2 threads are no part of it"
    assert [rung.gain_pct for rung in rungs] == pytest.approx([30.0, -2.0, 32.0])


def test_kept_experiments_that_reruns_disprove_and_changes_that_are_undone_are_no_rungs():
    found = summary_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.SAMPLE, config(4), outcome(60.0)),
        (Kind.SAMPLE, config(4, 2), outcome(58.0)),
        (Kind.SAMPLE, config(4, 1, True), outcome(40.0)),
        (Kind.REPEAT, config(4, 2), outcome(64.0)),
    )
    kept = [one.trial.number for one in found.experiments if one.category is Class.KEPT]
    assert kept == [1, 2, 3]
    assert found.ladder is not None
    assert [rung.trial.number for rung in found.ladder.rungs] == [1, 3]
    undone = summary_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.SAMPLE, config(4), outcome(60.0)),
        (Kind.SAMPLE, config(4, 2), outcome(50.0)),
        (Kind.SAMPLE, config(4, 1, True), outcome(40.0)),
    )
    assert undone.ladder is not None
    assert [rung.trial.number for rung in undone.ladder.rungs] == [1, 3]


def test_a_winning_baseline_has_a_ladder_without_rungs():
    found = summary_of(
        (Kind.BASELINE, config(), outcome(40.0)), (Kind.SAMPLE, config(2), outcome(50.0))
    )
    assert found.ladder is not None
    assert found.ladder.rungs == ()
    assert found.ladder.gain_pct == 0
    assert "No configuration is faster than the baseline (40.0 ms)" in ladder_svg(found)
    template = Template(["train", "{threads}", "{depth}", "{turbo}"], SMALL)
    assert not any(line.startswith("ladder") for line in report(found, template, "of a test"))


@pytest.mark.parametrize("name", ["video", "video_again", "torch"])
def test_report_and_plots_of_recorded_searches_show_the_same_values(name: str):
    from study_tune import PROGRAMS

    grid = read_grid(PROGRAMS[name].record, PROGRAMS[name].space)
    trials = list(replay(grid, Limits(experiments=20)))
    found = summarize(trials, grid.space, Objective.STEP)
    template = Template([f"{{{knob.name}}}" for knob in grid.space.knobs], grid.space)
    text = "\n".join(report(found, template, "of a test"))
    assert found.ladder is not None
    assert found.ladder.rungs
    picture = texts(ladder_svg(found))
    for rung in found.ladder.rungs:
        contribution = format_contribution(rung)
        assert contribution in text
        assert contribution in picture
        for change in rung.changes:
            assert change.text in text
            assert change.text in picture
    configs = [found.trials[0].knobs] + [rung.trial.knobs for rung in found.ladder.rungs]
    assert len({str(one) for one in configs}) == len(configs), "no configuration twice"
    total = sum(rung.gain_pct for rung in found.ladder.rungs)
    assert total == pytest.approx(found.ladder.gain_pct)
    rate = found.hit_rate
    words = f"{rate.pct:.0f} % ({rate.kept} of {rate.experiments} kept"
    assert words in text
    assert any(words in line for line in texts(progress_svg(found)))
    boxes = ElementTree.fromstring(tree_svg(found)).iter(f"{SVG}g")
    green = [
        words[0].split()[0]
        for box in boxes
        if (words := [one.text or "" for one in box.findall(f"{SVG}text")])
        and "green" in (box.findall(f"{SVG}rect")[0].get("class") or "")
    ]
    kept = [f"#{one.trial.number}" for one in found.experiments if one.category is Class.KEPT]
    assert found.winner is not None
    assert set(green) == {*kept, f"#{found.winner.number}"}


def texts(svg: str) -> list[str]:
    """The texts of a picture."""
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_panels_show_recorded_values_and_a_sentence_instead_of_missing_ones():
    search = searched()
    found = summarize(search.trials, SPACE, Objective.STEP)
    progress = progress_svg(found)
    root = ElementTree.fromstring(progress)
    known = [t for t in found.trials if "steady_sm_utilization_pct" in t.outcome.summary]
    assert 0 < len(known) < len(found.trials)
    assert sum(one.get("class") == "sm" for one in root.iter(f"{SVG}circle")) == len(known)
    assert "duration of an experiment, s" in progress
    assert NO_SM not in texts(progress)
    without = [
        Trial(t.number, t.proposal, outcome=Outcome(t.outcome.state, t.outcome.step_ms))
        for t in found.trials
    ]
    empty = progress_svg(summarize(without, SPACE, Objective.STEP))
    assert NO_SM in texts(empty)
    assert NO_DURATION in texts(empty)
    assert 'class="sm"' not in empty


def test_the_report_counts_classes_time_and_sm_utilisation():
    search = searched()
    found = summarize(search.trials, SPACE, Objective.STEP)
    template = Template(
        ["train", "{decode_threads}", "{prefetch}", "{queue}", "{mtp:--mtp}"], SPACE
    )
    lines = report(found, template, "it was enough")
    row = {line[:11].strip(): line[11:] for line in lines if line[:11].strip()}
    counts = count_classes(found.experiments)
    for category in (Class.KEPT, Class.NO_GAIN, Class.STOPPED_EARLY, Class.CRASHED):
        assert f"{counts[category]} {category.label}" in row["classes"]
    spent = seconds_by_group(found.experiments)
    measured = sum(one.trial.outcome.seconds for one in found.experiments)
    assert sum(spent.values()) == measured
    assert re.search(r"kept \d+ s, no gain \d+ s", row["time"])
    assert re.search(r"\d+ % utilised with the baseline, \d+ % with the best", row["SM"])
    without = summarize(search_without_sm(), SPACE, Objective.STEP)
    assert not any(line.startswith("SM") for line in report(without, template, "it was enough"))


def search_without_sm() -> list[Trial]:
    """A search on a machine without a GPU."""

    def tell(proposal: Proposal) -> Outcome:
        return outcome(100.0 / int(proposal.knobs["decode_threads"]))

    search = Made(tell, patience=4)
    search.run()
    return search.trials


def test_each_line_for_programs_has_the_class_of_its_experiment(tmp_path):
    found = summarize(searched().trials, SPACE, Objective.STEP)
    results.write(tmp_path, found)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / "experiments.jsonl").read_text().splitlines()
    ]
    assert [line["class"] for line in lines] == [one.category.value for one in found.experiments]
    assert (tmp_path / "ladder.svg").read_text() == ladder_svg(found)


def test_the_table_tells_an_experiment_that_was_stopped_early_from_a_failed_one():
    trials = trials_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.SAMPLE, config(2), Outcome(State.STOPPED_EARLY, 130.0, (129.0, 131.0))),
        (Kind.SAMPLE, config(4), Outcome(State.CRASHED, detail="exit code 1")),
        (Kind.SAMPLE, config(4, 2), Outcome(State.FINISHED, steps=3)),
    )
    header, *rows = [line.split("\t") for line in results.table(trials, SMALL).splitlines()]
    status, step = header.index("status"), header.index("step_time_ms")
    assert [row[status] for row in rows] == ["completed", "stopped_early", "failed", "failed"]
    assert [row[step] for row in rows[1:]] == ["130", "", ""]
    assert classes(trials)[1].value == rows[1][status]


def lines_of_confirmed(winner_ms: float, baseline_ms: float) -> list[str]:
    """The report of a search. Its winner (60 ms) and its baseline (100 ms) each ran once more."""
    trials = trials_of(
        (Kind.BASELINE, config(), outcome(100.0)),
        (Kind.MODEL, config(4), outcome(60.0)),
        (Kind.CONFIRM, config(4), outcome(winner_ms)),
        (Kind.CONFIRM, config(), outcome(baseline_ms)),
    )
    trials[2:] = [
        Trial(t.number, replace(t.proposal, parent=1, turn=turn), outcome=t.outcome)
        for turn, t in enumerate(trials[2:])
    ]
    template = Template(["train", "{threads}", "{depth}", "{turbo}"], SMALL)
    return report(summarize(trials, SMALL, Objective.STEP), template, "of a test")


def test_a_gain_from_one_run_each_has_an_interval_as_every_rung_of_the_ladder():
    lines = lines_of_confirmed(61.0, 101.0)
    at = next(place for place, line in enumerate(lines) if line.startswith("gain"))
    assert re.search(
        r"39\.6 % less time \(95 % interval 3[78]\.\d to 4[01]\.\d\), from 1 run each", lines[at]
    )
    assert lines[at + 1].strip() == (
        "The interval assumes that runs vary by 0.75 %: use `--confirm 2` to measure it"
    )
    assert any("threads 1 → 4" in line and "±" in line for line in lines)


def test_a_winner_that_was_slower_when_it_ran_again_has_no_negative_gain():
    text = "\n".join(lines_of_confirmed(110.0, 100.0))
    assert re.search(r"gain +10\.0 % more time \(95 % interval -?\d", text), text
    assert "keep the baseline" in text


def test_pictures_are_well_formed_and_show_every_experiment():
    found = summarize(searched().trials, SPACE, Objective.STEP)
    for svg in (progress_svg(found), tree_svg(found), ladder_svg(found)):
        root = ElementTree.fromstring(svg)
        assert len(list(root.iter(f"{SVG}title"))) > 3
        assert "NaN" not in svg
        assert "nan" not in svg
    progress = progress_svg(found)
    for words in ("floor 9.0 ms", "best ", "SM utilisation", "stopped early"):
        assert words in progress
    nothing = summarize([], SPACE, Objective.STEP)
    for svg in (progress_svg(nothing), tree_svg(nothing), ladder_svg(nothing)):
        ElementTree.fromstring(svg)


def test_axis_ticks_are_round_numbers_within_the_range():
    assert ticks_of(0, 97) == [0, 20, 40, 60, 80]
    assert ticks_of(5, 5) == [5]
