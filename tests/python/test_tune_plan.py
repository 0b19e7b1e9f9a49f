"""The next experiment of `headspace tune`, given made-up outcomes."""

from __future__ import annotations

import io
import json
import random
import re
import statistics
from collections.abc import Collection
from typing import Any

import pytest
from tune_replay import SEARCHES, Grid, grid_of, needed, read_grid

from headspace._native import t_quantile
from headspace.tune.experiment import Experiment, Kind, Outcome, Proposal, State, Trial
from headspace.tune.output import results
from headspace.tune.output.plots import progress_svg
from headspace.tune.output.progress import Progress
from headspace.tune.output.report import report
from headspace.tune.output.summary import summarize
from headspace.tune.output.tree_plot import tree_svg
from headspace.tune.plan import predictions, remedies, what_if
from headspace.tune.plan.bounds import bound
from headspace.tune.plan.objective import Cost, Objective, cost, gain, pool, spread_of
from headspace.tune.plan.planner import (
    Done,
    Limits,
    Planner,
    Wait,
    confirmed_gain,
    standing,
    winner_of,
)
from headspace.tune.plan.sampler import suggest
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Config, Space, key, make_knob, parse_knob

SPACE = Space(
    tuple(map(parse_knob, ("decode_threads=1..8", "prefetch=1,2,4", "queue=1,4", "mtp=no,yes")))
)


def outcome(ms: float, half: float = 0.5, **summary: Any) -> Outcome:
    summary = {"steady_step_mean_ms": ms, **summary}
    return Outcome(State.FINISHED, ms, (ms - half, ms + half), 100, 9.0, summary=summary)


def remedy(knob: str | None, to: object, ms: float, code: str = "", **more: Any) -> dict[str, Any]:
    start = str(more.pop("start", 1))
    target, _, setting = knob.rpartition(".") if knob else ("", "", "")
    change = (
        {"knob": knob, "target": target, "setting": setting, "from": start, "to": str(to)}
        if knob
        else None
    )
    return {
        "code": code, "what": f"Turn {knob or code}.", "change": change,
        "predicted_step_ms": ms, "confidence": 0.8, **more,
    }  # fmt: skip


class Made:
    """A search whose outcomes come from a function."""

    def __init__(self, tell: Any, space: Space = SPACE, **limits: Any) -> None:
        self.planner = Planner(space, Limits(**limits))
        self.trials: list[Trial] = []
        self.tell = tell

    def step(self) -> Proposal | Done | Wait:
        proposed = self.planner.next(self.trials)
        if isinstance(proposed, Proposal):
            outcome = self.tell(proposed)
            self.trials.append(Trial(len(self.trials), proposed, outcome=outcome))
        return proposed

    def run(self) -> Done:
        while not isinstance(said := self.step(), Done):
            assert isinstance(said, Proposal), "it waits for nothing"
        return said

    def kinds(self) -> list[str]:
        return [trial.kind.value for trial in self.trials]


def simple(proposal: Proposal) -> Outcome:
    """A pipeline with one stage that decodes, on a machine with enough cores for all threads."""
    knobs = proposal.knobs
    threads = int(knobs["decode_threads"])
    ms = 10 + 80 / threads + (0 if knobs["mtp"] else 3)
    found = [remedy("decode.concurrency", 2 * threads, 0.7 * ms, start=threads)]
    asked = {"compute_ms": 9.0, "what_if": [answer("decode", 9.0, 90.0, "cut")]}
    return outcome(ms, remedies=found, **(asked if proposal.kind is Kind.BASELINE else {}))


def answer(stage: str, ms: float, gain_pct: float, intervention: str = "free") -> dict[str, Any]:
    """An answer of the what-if."""
    return {
        "stage": stage, "intervention": intervention, "amount": 1.0, "step_ms": ms,
        "step_ci_ms": [0.99 * ms, 1.01 * ms], "gain_pct": gain_pct,
        "gain_ci_pct": [gain_pct - 0.5, gain_pct + 0.5], "steps": 100, "inputs_not_trained_on": 300,
    }  # fmt: skip


def test_the_search_runs_the_baseline_the_remedies_and_then_the_sampler():
    search = Made(simple, patience=4)
    search.run()
    assert search.kinds()[:4] == ["baseline", "remedy", "remedy", "remedy"]
    assert [t.knobs["decode_threads"] for t in search.trials[:4]] == [1, 2, 4, 8]
    assert [t.proposal.parent for t in search.trials[:4]] == [None, 0, 1, 2]
    assert "sample" in search.kinds()[4:]
    promised = search.trials[1].proposal.predicted_ms
    assert promised == pytest.approx(0.7 * 93)
    assert standing(search.trials, Objective.STEP).floor_ms == 9.0


def test_a_step_in_which_the_loop_still_waits_is_no_floor():
    summary = {"compute_ms": 9.0, "what_if": [answer("decode", 12.0, 50.0, "cut")]}
    assert what_if.floor_ms(summary) is None
    summary["what_if"].append(answer("decode", 9.5, 60.0, "cut"))
    assert what_if.floor_ms(summary) == 9.5


def stage_summary(name: str, mean_ms: float, concurrency: int = 1) -> dict[str, Any]:
    """A stage with four calls per batch."""
    return {
        "name": name, "mean_ms": mean_ms, "calls_per_batch": 4, "concurrency": concurrency,
        "concurrency_known": True, "cpu_pct": 0.0, "processes": 1, "calls": 400, "out_per_in": 1.0,
        "busy_pct": 50.0,
    }  # fmt: skip


TWO_STAGES = Space(
    tuple(map(parse_knob, ("read_threads=1,2,4", "decode_threads=1,2,4", "mtp=no,yes")))
)


def test_knobs_of_stages_that_gain_nothing_are_not_tried():
    stages = [stage_summary("read", 20.0), stage_summary("decode", 1.0)]
    answers = [answer("read", 10.0, 87.0), answer("decode", 80.0, 0.1)]
    summary = {"stages": stages, "what_if": answers, "compute_ms": 10.0}
    assert [knob.name for knob in what_if.left_out(TWO_STAGES, summary)] == ["decode_threads"]
    # Without the work of `read`, `decode` would be the longest stage.
    slower = {**summary, "stages": [stages[0], stage_summary("decode", 4.0)]}
    assert what_if.left_out(TWO_STAGES, slower) == []
    without_floor = {**summary, "compute_ms": 5.0}
    assert what_if.left_out(TWO_STAGES, without_floor) == []

    def tell(proposal: Proposal) -> Outcome:
        ms = 80 / int(proposal.knobs["read_threads"])
        return outcome(ms, **(summary if proposal.kind is Kind.BASELINE else {}))

    search = Made(tell, TWO_STAGES, patience=100, repeats=0, confirm=0)
    assert search.run().reason.startswith("every configuration was tried")
    assert {t.knobs["decode_threads"] for t in search.trials} == {1}
    assert len(search.trials) == 6
    template = Template(["train", "{read_threads}", "{decode_threads}", "{mtp}"], TWO_STAGES)
    text = report(summarize(search.trials, TWO_STAGES, Objective.STEP), template, "")
    assert any(line.startswith("not tried  decode_threads: ") for line in text)


def two_waiting_stages() -> dict[str, Any]:
    """The summary of two stages in a row, which wait for 80 and 76 ms per batch."""
    return {
        "steady_step_mean_ms": 80.0, "wait_ms": 79.0, "compute_ms": 1.0,
        "stages": [stage_summary("read", 20.0), stage_summary("decode", 19.0)],
        "queues": [
            {"name": "read ones", "loop_name": None, "capacity": 8, "last": False},
            {"name": "batches", "loop_name": None, "capacity": 8, "last": True},
        ],
        "resources": {"cores_usable": 8.0, "cores_used": 0.1},
    }  # fmt: skip


def fastest(space: Space, measured: Outcome, known: Collection[str] = ()) -> Any:
    """The fastest configuration by the model of a run of the baseline."""
    predicted = predictions.predict(space, space.baseline, measured)
    return predicted and predictions.fastest(space, predicted, known)


def test_several_knobs_are_changed_at_once_by_the_model_of_the_baseline():
    measured = outcome(80.0, **two_waiting_stages())
    proposed = fastest(TWO_STAGES, measured)
    assert proposed is not None
    assert proposed.knobs == {"read_threads": 4, "decode_threads": 4, "mtp": False}
    assert proposed.predicted_ms == pytest.approx(20.0, rel=0.05)
    again = fastest(TWO_STAGES, measured, {key(proposed.knobs)})
    assert again is not None
    assert again.predicted_ms == pytest.approx(40.0, rel=0.05)
    many = Space(tuple(map(parse_knob, ("read_threads=1..40", "decode_threads=1..40"))))
    wide = fastest(many, measured)
    assert wide is not None
    assert wide.predicted_ms < 4.0


def test_a_run_without_a_model_proposes_nothing_by_it():
    assert fastest(SPACE, outcome(80.0)) is None
    assert fastest(SPACE, Outcome(State.CRASHED)) is None


def test_a_model_that_promised_too_much_is_not_used_again_and_the_search_goes_on():
    def tell(proposal: Proposal) -> Outcome:
        ms = 60.0 if proposal.knobs["mtp"] else 80.0
        return outcome(ms, **(two_waiting_stages() if proposal.kind is Kind.BASELINE else {}))

    search = Made(tell, TWO_STAGES, patience=100, repeats=0, confirm=0)
    search.run()
    assert search.kinds()[:3] == ["baseline", "model", "single"]
    assert search.kinds().count("model") == 1
    assert search.trials[2].knobs["mtp"]
    assert "Only `mtp` is changed" in search.trials[2].proposal.reason


def test_a_value_of_zero_is_not_predicted_and_knobs_with_many_values_are_not_tried_one_by_one():
    space = Space(tuple(map(parse_knob, ("read_threads=2,0,4", "batch=1..64", "codec=a,b"))))
    predicted = predictions.predict(space, space.baseline, outcome(80.0, **two_waiting_stages()))
    assert predicted is not None
    assert {one.config["read_threads"] for one in predicted.steps.values()} == {2, 4}
    single = predictions.without_prediction(space, space.baseline, predicted)
    assert [knob.name for knob, _ in single] == ["codec"]


def test_no_configuration_is_searched_twice_and_the_search_ends_when_all_were_tried():
    space = Space(SPACE.knobs[1:2] + SPACE.knobs[3:] + (parse_knob("decode_threads=1..4"),))
    search = Made(simple, space, patience=1000, experiments=1000, repeats=0, confirm=0)
    said = search.run()
    searched = [key(t.knobs) for t in search.trials]
    assert len(searched) == len(set(searched)) == space.size
    assert said.reason == "every configuration was tried"


def test_the_search_ends_at_the_limit_of_experiments_without_progress_or_at_the_floor():
    assert "6 experiments were run" in Made(simple, experiments=6).run().reason
    assert "no gain of 1 %" in Made(simple, patience=3).run().reason
    near = Made(lambda p: outcome(9.3, floor_step_ms=9.0))
    assert "within 5 % of the floor" in near.run().reason
    assert near.kinds() == ["baseline"]


def test_a_baseline_that_fails_ends_the_search_with_its_reason():
    search = Made(lambda p: Outcome(State.CRASHED, detail="exit code 1\nValueError: no"))
    said = search.run()
    assert said.failed
    assert "crashed: exit code 1" in said.reason
    assert search.kinds() == ["baseline"]


def test_experiments_that_fail_are_not_the_best_and_the_search_goes_on():
    def tell(proposal: Proposal) -> Outcome:
        if proposal.knobs["mtp"]:
            return Outcome(State.CRASHED, step_ms=0.1, interval_ms=(0.1, 0.1))
        return simple(proposal)

    search = Made(tell, patience=1000, experiments=30)
    search.run()
    best = standing(search.trials, Objective.STEP).best_trial
    assert best is not None
    assert best.knobs["mtp"] is False
    assert best.knobs["decode_threads"] == 8


def test_a_second_tuner_waits_for_the_baseline_and_repeats_no_experiment():
    planner = Planner(SPACE, Limits())
    first = planner.next([])
    assert isinstance(first, Proposal)
    assert isinstance(planner.next([], [Experiment(0, first)]), Wait)
    trials = [Trial(0, first, outcome=simple(first))]
    running: list[Experiment] = []
    for number in range(1, 12):
        proposed = planner.next(trials, running)
        assert isinstance(proposed, Proposal)
        assert proposed.key not in {e.proposal.key for e in running}
        running.append(Experiment(number, proposed))
    assert running[0].kind is Kind.REMEDY


def lucky(seed: int) -> Any:
    """Every configuration has the same mean step, and runs vary with a standard deviation of 3 ms."""
    rng = random.Random(seed)
    return lambda proposal: outcome(rng.gauss(50, 3), 6.0)


def test_a_lucky_run_does_not_win():
    claimed = 0
    for seed in range(12):
        search = Made(lucky(seed), experiments=14, patience=14)
        search.run()
        confirmed = confirmed_gain(search.trials, Objective.STEP)
        claimed += confirmed is not None and confirmed.sure
    assert claimed <= 1
    assert search.kinds().count("repeat") == 3


def test_contenders_are_rerun_and_the_winner_alternates_with_the_baseline():
    search = Made(lambda p: outcome(simple(p).step_ms or 0, 4.0), patience=6, confirm=2)
    search.run()
    assert search.kinds()[-4:] == ["confirm"] * 4
    assert 1 <= search.kinds().count("repeat") <= 3
    sides = [t.knobs for t in search.trials[-4:]]
    assert sides[0] == sides[3] != SPACE.baseline
    assert sides[1] == sides[2] == SPACE.baseline
    confirmed = confirmed_gain(search.trials, Objective.STEP)
    assert confirmed is not None
    assert confirmed.sure
    assert confirmed.low < confirmed.pct < confirmed.high


def test_a_single_contender_is_not_rerun():
    space = Space((parse_knob("threads=1,2,4"),))
    search = Made(lambda p: outcome(80 / int(p.knobs["threads"])), space, confirm=2)
    search.run()
    assert len(standing(search.trials, Objective.STEP).contenders()) == 1
    assert search.kinds() == ["baseline", *["sample"] * 2, *["confirm"] * 4]


def test_the_interval_of_several_runs_covers_their_differences():
    runs = [Cost(10, 9.9, 10.1), Cost(14, 13.9, 14.1)]
    both = pool(runs)
    assert both.ms == 12
    assert both.low < 10 < 14 < both.high
    assert both.span == (10, 14)
    assert pool([runs[0], runs[0]]).half < both.half / 10
    found = gain(runs, [Cost(9, 8.9, 9.1), Cost(9.2, 9.1, 9.3)])
    assert found is not None
    assert not found.sure


def test_two_runs_with_narrow_intervals_give_a_narrow_interval():
    """A regression: two runs with ±2 once gave 58.7 ±37.3."""
    both = pool([Cost(55.8, 53.8, 57.8), Cost(61.6, 59.6, 63.6)])
    assert both.ms == pytest.approx(58.7)
    assert 2.9 < both.half < 5, "both lie in it"


def test_the_spread_is_pooled_over_all_rerun_configurations():
    def twice(ms: float, apart: float) -> list[Cost]:
        return [Cost(one, one - 0.5, one + 0.5) for one in (ms - apart / 2, ms + apart / 2)]

    calm = [twice(ms, 0.2) for ms in (30.0, 40.0, 50.0, 60.0)]
    restless = [twice(ms, 6.0) for ms in (30.0, 40.0, 50.0, 60.0)]
    lucky = twice(45.0, 0.2)
    among_calm = pool(lucky, spread_of([lucky, *calm]))
    among_restless = pool(lucky, spread_of([lucky, *restless]))
    assert among_restless.half > 3 * among_calm.half


def test_students_t_quantiles_match_published_tables():
    assert [round(t_quantile(f), 2) for f in (1, 2, 5, 7, 30)] == [12.71, 4.30, 2.57, 2.36, 2.04]
    assert round(t_quantile(7, 0.995), 3) == 3.499


def test_a_gain_within_the_spread_between_starts_is_not_sure():
    def is_sure(ms: float) -> bool:
        found = gain([Cost(100, 99.99, 100.01)], [Cost(ms, ms - 0.01, ms + 0.01)])
        assert found is not None
        return found.sure

    assert not is_sure(98.5)
    assert is_sure(90.0)


def test_a_new_best_that_more_experiments_find_is_confirmed_again():
    search = Made(simple, experiments=4, patience=100, near_floor=0.0, confirm=1)
    search.run()
    first = winner_of(search.trials, Objective.STEP)
    search.run()
    assert winner_of(search.trials, Objective.STEP) is first, "nothing new is nothing to confirm"
    search.planner = Planner(SPACE, Limits(experiments=9, patience=100, near_floor=0, confirm=1))
    search.run()
    second = winner_of(search.trials, Objective.STEP)
    assert first is not None
    assert second is not None
    assert (second.outcome.step_ms or 0) < (first.outcome.step_ms or 0)
    made = [t for t in search.trials if t.kind is Kind.CONFIRM]
    assert [t.proposal.parent for t in made] == [first.number] * 2 + [second.number] * 2
    assert len({t.proposal.key for t in made}) == 4
    confirmed = confirmed_gain(search.trials, Objective.STEP)
    assert confirmed is not None
    assert confirmed.pairs == 1
    better = 1 - (second.outcome.step_ms or 0) / (search.trials[0].outcome.step_ms or 1)
    assert confirmed.pct == pytest.approx(100 * better)


def test_a_confirmed_configuration_can_lose_to_a_later_one():
    now = SPACE.baseline
    first, second = {**now, "decode_threads": 2}, {**now, "decode_threads": 3}
    made = [
        Proposal(Kind.BASELINE, now, ""),
        Proposal(Kind.SAMPLE, first, ""),
        Proposal(Kind.CONFIRM, first, "", 1),
        Proposal(Kind.CONFIRM, now, "", 1, turn=1),
        Proposal(Kind.SAMPLE, second, ""),
    ]
    step = {key(now): 90.0, key(first): 50.0, key(second): 48.0}
    trials = [
        Trial(number, one, outcome=outcome(step[key(one.knobs)], 5.0))
        for number, one in enumerate(made)
    ]
    assert winner_of(trials[:-1], Objective.STEP) is trials[1]
    assert winner_of(trials, Objective.STEP) is trials[4]


def test_one_tuner_runs_all_turns_of_a_confirmation_while_it_is_alive():
    limits = Limits(experiments=4, patience=100, confirm=1, repeats=0)
    mine, other = (Planner(SPACE, limits, tuner) for tuner in ("mine", "other"))
    search = Made(simple)
    search.planner = mine
    while "confirm" not in search.kinds():
        search.step()
    assert isinstance(other.next(search.trials, others={"mine"}), Wait)
    own = mine.next(search.trials, others={"other"})
    assert isinstance(own, Proposal)
    assert (own.by, own.turn) == ("mine", 1)
    anew = other.next(search.trials)
    assert isinstance(anew, Proposal)
    assert (anew.by, anew.turn, anew.attempt) == ("other", 0, 1)
    assert anew.key != search.trials[-1].proposal.key
    search.planner = other
    search.run()
    assert isinstance(mine.next(search.trials), Done), "it is confirmed"
    confirmed = confirmed_gain(search.trials, Objective.STEP)
    assert confirmed is not None
    assert confirmed.pairs == 1


def test_objective_throughput_without_samples_is_refused_with_a_remedy():
    said = Made(simple, objective=Objective.THROUGHPUT).run()
    assert said.failed
    assert "batch_size=N" in said.reason


def test_objective_throughput_compares_batch_sizes_by_time_per_sample():
    small = outcome(10, throughput_samples_per_s=400.0)
    large = outcome(16, throughput_samples_per_s=1000.0)
    ms = [cost(one, Objective.THROUGHPUT) for one in (small, large)]
    assert [one.ms for one in ms if one] == pytest.approx([2.5, 1.0])


def moved(now: Config, *found: dict[str, Any], queues: Any = ()) -> list[Config]:
    summary = {"remedies": list(found), "queues": list(queues)}
    return [
        {k: v for k, v in p.knobs.items() if v != now[k]}
        for p in remedies.proposals(SPACE, now, summary)
    ]


def test_sure_remedies_are_tried_together_first_and_then_one_by_one():
    now = SPACE.baseline
    got = moved(
        now,
        remedy("decode.concurrency", 3, 40),
        remedy("after decode.capacity", 4, 45),
        remedy(None, None, 50, "subprocess", at_least=True),
        queues=[{"name": "after decode", "last": False}],
    )
    assert got[0] == {"decode_threads": 3, "queue": 4}
    assert got[1] == {"decode_threads": 3, "queue": 4, "mtp": True}
    assert got[2:] == [{"decode_threads": 3}, {"queue": 4}, {"mtp": True}]


def test_processes_that_would_not_start_are_not_tried():
    obstacle = {"part": "dataset.lock", "type_name": "_thread.lock", "kind": "lock"}
    blocked = remedy(None, None, 30, "subprocess", obstacle=obstacle)
    allowed = remedy(None, None, 30, "subprocess", obstacle=None)

    assert moved(SPACE.baseline, blocked) == []
    assert moved(SPACE.baseline, allowed) == [{"mtp": True}]


def test_a_remedy_beyond_the_range_of_the_knob_has_no_prediction():
    asks = [remedy("decode.concurrency", 9, 20.0, start=2)]
    now = {**SPACE.baseline, "decode_threads": 2}
    (proposed,) = remedies.proposals(SPACE, now, {"remedies": asks})
    assert proposed.knobs["decode_threads"] == 8
    assert not proposed.is_predicted
    assert "`decode_threads` has no value 9. It is set to 8." in proposed.reason
    asks = [remedy("decode.concurrency", 7, 20.0, start=2)]
    (proposed,) = remedies.proposals(SPACE, now, {"remedies": asks})
    assert proposed.is_predicted


@pytest.mark.parametrize(
    ("values", "now", "wanted", "expected"),
    [
        ("1,2,4,8", 8, 3, 4),
        ("1,2,4,8", 8, 2, 2),
        ("1,2,8", 8, 3, 2),
        ("2,4,8", 2, 1, None),
        ("1,2,4,8", 1, 6, 4),
        ("1,2,4,8", 2, 3, 4),
        ("1,2,4,8", 2, 99, 8),
        ("1,2,4,8", 8, 99, None),
        ("1,2,4,8", 4, 4, None),
        ("0.1,0.3", 0.1, 3 * 0.1, 0.3),
    ],
)
def test_a_knob_without_the_wanted_value_takes_the_nearest_one_on_the_way_or_else_the_next_beyond(
    values: str, now: float, wanted: float, expected: float | None
):
    knob = make_knob("threads", [float(v) if "." in v else int(v) for v in values.split(",")])

    assert knob.value_towards(now, wanted) == expected


FEWER_THREADS = Space((parse_knob("decode_threads=1,2,4,8@8"),))


@pytest.mark.parametrize(
    ("to", "unknown", "expected", "promised"),
    [(4, False, 4, 5.0), (4, True, 4, None), (3, False, 4, None), (3, True, 4, None)],
)
def test_an_experiment_has_a_prediction_only_if_the_gain_is_known_and_the_knob_has_the_value(
    to: int, unknown: bool, expected: int, promised: float | None
):
    asks = [remedy("decode.concurrency", to, 5.0, start=8, at_least=unknown)]
    search = Made(lambda _: outcome(6.3, remedies=asks), FEWER_THREADS, repeats=0, confirm=0)
    search.step()

    proposed = search.step()

    assert isinstance(proposed, Proposal)
    assert (proposed.kind, proposed.knobs["decode_threads"]) == (Kind.REMEDY, expected)
    assert proposed.predicted_ms == promised
    assert ("The gain is unknown." in proposed.reason) == unknown
    assert ("has no value 3. It is set to 4." in proposed.reason) == (to == 3)


def test_remedies_together_have_no_prediction_if_the_gain_of_one_is_unknown():
    asks = [
        remedy("decode.concurrency", 2, 40.0),
        remedy(None, None, 93.0, "subprocess", at_least=True),
    ]
    sure, every, *_ = remedies.proposals(SPACE, SPACE.baseline, {"remedies": asks})

    assert (sure.predicted_ms, sure.is_predicted) == (40.0, True)
    assert every.knobs == {**sure.knobs, "mtp": True}
    assert not every.is_predicted


def test_a_missing_prediction_is_shown_as_missing():
    asks = [remedy("decode.concurrency", 3, 6.3, start=8, at_least=True)]
    search = Made(lambda _: outcome(6.3, remedies=asks), FEWER_THREADS, repeats=0, confirm=0)
    search.step()
    search.step()
    found = summarize(search.trials, FEWER_THREADS, Objective.STEP)
    stream = io.StringIO()
    Progress(FEWER_THREADS, Limits(), stream=stream).ended(search.trials[1])

    tree, plot = tree_svg(found), progress_svg(found)

    assert "remedy, no gain, no prediction" in tree
    assert "predicted 6.3" not in tree
    assert plot.count('class="promise"') == 1, "only in the legend"
    assert "predicted" not in stream.getvalue()
    assert results.line(found.experiments[1])["predicted_ms"] is None
    assert "Predicted" not in results.notes(search.trials[1])


def measured(knobs: Config, ms: float, **decode: Any) -> Trial:
    """A run with 4 calls of `decode` per batch, 20 ms each, by default one at a time."""
    stage = {
        "name": "decode",
        "mean_ms": 20.0,
        "calls_per_batch": 4.0,
        "concurrency": 1.0,
        **decode,
    }
    return Trial(0, Proposal(Kind.SAMPLE, knobs, ""), outcome=outcome(ms, stages=[stage]))


def test_configurations_above_the_bound_of_a_measured_stage_come_last():
    now = SPACE.baseline
    least = bound(SPACE, [measured(now, 85.0, cpu_pct=90.0)], Objective.STEP)

    # A batch needs 80 ms of calls, which 1, 2 or 8 threads share.
    assert [least({**now, "decode_threads": n}) for n in (1, 2, 8)] == [80.0, 40.0, 10.0]
    # Larger queues do not change the calls. Another process changes them, unless the calls only wait.
    assert least({**now, "prefetch": 4, "queue": 4}) == 80.0
    assert least({**now, "mtp": True}) == 0.0
    waiting = bound(SPACE, [measured(now, 85.0, cpu_pct=2.0)], Objective.STEP)
    assert waiting({**now, "mtp": True}) == 80.0


def test_a_measured_stage_gives_no_bound_for_a_lower_concurrency():
    """Concurrent calls slow each other: with 14 decoders, a call takes over twice as long as with 7."""
    crowded = measured(
        {**SPACE.baseline, "decode_threads": 8}, 90.0, mean_ms=160.0, concurrency=8.0
    )
    least = bound(SPACE, [crowded], Objective.STEP)
    assert least({**SPACE.baseline, "decode_threads": 4}) == 0.0
    # If there are two measurements, the one with the shorter calls counts.
    both = bound(SPACE, [crowded, measured(SPACE.baseline, 85.0)], Objective.STEP)
    assert both({**SPACE.baseline, "decode_threads": 8}) == 10.0


def test_the_sampler_tries_known_bad_values_last():
    tried = [(SPACE.baseline, 85.0)]

    def bad(config: Config) -> bool:
        return int(config["decode_threads"]) < 5

    for _ in range(SPACE.size // 2):
        config = suggest(SPACE, tried, [], 0, put_off=bad)
        assert config is not None
        assert not bad(config)
        tried.append((config, 50.0))
    config = suggest(SPACE, tried, [], 0, put_off=bad)
    assert config is not None
    assert bad(config)


def test_a_remedy_changes_the_best_matching_knob_within_its_range():
    now = SPACE.baseline
    queues = [{"name": "after collate", "last": True}]
    assert moved(now, remedy("after collate.capacity", 3, 40), queues=queues) == [{"prefetch": 2}]
    assert moved(now, remedy("decode.concurrency", 99, 40)) == [{"decode_threads": 8}]
    assert moved({**now, "decode_threads": 8}, remedy("decode.concurrency", 99, 40)) == []
    assert moved(now, remedy("resize.concurrency", 2, 40)) == []
    fewer = remedy("decode.concurrency", 2, 40, start=8)
    assert moved({**now, "decode_threads": 8}, fewer) == [{"decode_threads": 2}]
    assert moved(now, fewer) == []


def grid() -> Grid:
    """A pipeline on two cores, like the video example. Decoding limits it at first, and then the cores do."""
    space = Space(
        tuple(map(parse_knob, (
            "decode_threads=1,2,4", "demux_threads=1,2", "prefetch=1,3", "queue_depth=1,4",
            "pool=shared,dedicated", "subprocess=no,yes",
        )))
    )  # fmt: skip
    rows = []
    for config in space.all():
        decode = 120 / int(config["decode_threads"]) ** 0.8
        if config["decode_threads"] == 4:
            decode += 14
        ms = max(decode, 55) + (0 if config["queue_depth"] == 4 else 6)
        ms += (0 if config["subprocess"] else 5) + (0 if config["pool"] == "dedicated" else 3)
        ms += 0 if config["prefetch"] == 3 else 2
        found = []
        if config["decode_threads"] == 1:
            found.append(remedy("decode.concurrency", 2, 0.6 * ms))
        if config["queue_depth"] == 1:
            found.append(remedy("after decode.capacity", 4, 0.9 * ms))
        if not config["subprocess"]:
            found.append(remedy(None, None, ms, "subprocess", at_least=True))
        row = {
            "kind": "grid", "knobs": config, "state": "finished", "step_ms": ms,
            "interval_ms": [0.98 * ms, 1.02 * ms], "loader": {}, "summary": {
                "remedies": found, "steady_step_mean_ms": ms,
                "queues": [{"name": "after decode", "last": False}],
            },
        }  # fmt: skip
        rows.append(json.loads(json.dumps(row)))
    return grid_of(rows, space)


def test_the_search_needs_fewer_experiments_than_tpe_and_random_on_recorded_outcomes():
    recorded = grid()
    medians = {
        name: statistics.median(needed(recorded, search, seed) for seed in range(5))
        for name, search in SEARCHES.items()
    }
    mine = medians.pop("headspace tune")
    assert all(mine < other for other in medians.values()), (mine, medians)


@pytest.mark.parametrize("name", ["video", "video_again", "torch"])
def test_on_the_recorded_grids_the_search_needs_fewest_experiments(name: str):
    """`make study` prints the same comparison."""
    from study_tune import PROGRAMS, compare, needs_fewest

    program = PROGRAMS[name]
    found = compare(read_grid(program.record, program.space))
    assert needs_fewest(found, program.most), found


def test_the_same_outcomes_lead_to_the_same_search():
    first, second = (Made(simple, patience=6) for _ in range(2))
    first.run()
    second.run()
    assert first.trials == second.trials


def searched() -> Made:
    """A search with an outcome of every kind."""
    rng = random.Random(3)

    def tell(proposal: Proposal) -> Outcome:
        if proposal.kind is Kind.SAMPLE and proposal.knobs["prefetch"] == 4:
            return Outcome(State.CRASHED, detail="exit code 1\n<ValueError> & \t more")
        if proposal.kind is Kind.SAMPLE and proposal.knobs["mtp"]:
            ms = 60.0
            return Outcome(State.STOPPED_EARLY, ms, (ms - 1, ms + 1), detail="slower")
        found = simple(proposal)
        sm = {"steady_sm_utilization_pct": min(100.0, 900 / (found.step_ms or 1))}
        return Outcome(**{**vars(found), "summary": {**found.summary, **sm}})

    search = Made(tell, patience=8, seed=rng.randrange(100))
    search.run()
    return search


def test_the_table_has_the_columns_of_spdls_master_table_and_spdl_can_load_it(tmp_path):
    visualization = pytest.importorskip("spdl.autoresearch._common._visualization")
    from spdl.autoresearch.pipeline_optimization._ops._analysis_ops import MASTER_TABLE_HEADERS

    assert list(results.COLUMNS) == MASTER_TABLE_HEADERS
    search = searched()
    path = tmp_path / "results.tsv"
    path.write_text(results.table(search.trials, SPACE))
    rows = visualization._load_tsv(path)
    assert len(rows) == len(search.trials) + 1
    assert rows.pop(1)["status"] == "HEADSPACE"
    statuses = {trial.number: row["status"] for trial, row in zip(search.trials, rows)}
    crashed = [t.number for t in search.trials if t.outcome.state is State.CRASHED]
    assert crashed
    assert all(statuses[number] == "CRASH" for number in crashed)
    assert rows[0]["status"] == "VALID"
    assert "<ValueError>" in rows[crashed[0]]["notes"]
    slower = [t.number for t in search.trials if t.outcome.state is State.STOPPED_EARLY]
    assert slower
    assert all(statuses[number] == "VALID" for number in slower), "SPDL counts no crash"


def test_the_report_ends_with_the_best_command_and_the_remaining_headspace():
    search = searched()
    template = Template(
        ["python", "train script.py", "{decode_threads}", "{prefetch}", "{queue}", "{mtp:--mtp}"],
        SPACE,
    )
    lines = report(summarize(search.trials, SPACE, Objective.STEP), template, "it was enough")
    won = winner_of(search.trials, Objective.STEP)
    assert won is not None
    assert lines[-1] == "    " + template.line(won.knobs)
    assert "'train script.py'" in lines[-1]
    assert any(re.search(r"a headspace of [\d.]+ % is left", line) for line in lines)
    assert any("runs each of the best configuration" in line for line in lines)
    best = next(line for line in lines if line.startswith("best "))
    assert all(f"{knob.name} " in best for knob in SPACE.knobs), "all knobs, changed or not"
    assert re.search(r"±[\d.]+ \(\d+ runs, [\d.]+ to [\d.]+\)", best), best


def test_each_progress_line_has_all_knobs():
    stream = io.StringIO()
    progress = Progress(SPACE, Limits(), stream=stream)
    for trial in searched().trials:
        progress.ended(trial)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("#")]
    assert len(lines) > 5
    assert all(f"{knob.name} " in line for line in lines for knob in SPACE.knobs)
    assert " baseline: " in lines[0]


def test_the_reason_why_an_experiment_was_stopped_is_printed_whole_below_its_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    reason = "significantly slower than the best configuration (upper end of its 95 % interval: 12.34 ms per step)"
    stopped = Outcome(State.STOPPED_EARLY, 20.0, (19.0, 21.0), detail=reason)
    stream = io.StringIO()
    proposal = Proposal(Kind.SAMPLE, SPACE.baseline, "")
    Progress(SPACE, Limits(), stream=stream).ended(Trial(3, proposal, outcome=stopped))
    first, *rest = stream.getvalue().splitlines()
    assert re.fullmatch(r"#3   stopped early +decode_threads 1, .*", first)
    assert " ".join(line.strip() for line in rest) == reason
    assert all(len(line) <= 80 and line.startswith("     ") for line in rest)
