"""The input of `headspace tune`: knobs, constraints, placeholders of the command, and the file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headspace.tune.errors import TuneError
from headspace.tune.options import parse
from headspace.tune.space.command import Template
from headspace.tune.space.constraints import Constraint
from headspace.tune.space.knobs import Space, key, parse_knob


@pytest.mark.parametrize(
    ("text", "values", "baseline"),
    [
        ("a=1..4", (1, 2, 3, 4), 1),
        ("a=2..9:3", (2, 5, 8), 2),
        ("a=1..8:log", (1, 2, 4, 8), 1),
        ("a=3..20:log", (3, 6, 12, 20), 3),
        ("a=8,1,4", (1, 4, 8), 8),
        ("a=1..8@4", (1, 2, 3, 4, 5, 6, 7, 8), 4),
        ("a=0.5,2", (0.5, 2.0), 0.5),
        ("a=no,yes", (False, True), False),
        ("a=true,false@false", (True, False), False),
        ("a=shared, dedicated", ("shared", "dedicated"), "shared"),
    ],
)
def test_knobs_are_read_with_their_values_and_the_first_is_the_baseline(text, values, baseline):
    knob = parse_knob(text)
    assert (knob.values, knob.baseline) == (values, baseline)


@pytest.mark.parametrize(
    "text",
    ["a", "a=", "a=4..1", "a=0..8:log", "a=1..9:0", "a=1,,2", "a=1,1", "1a=1..2", "a=1..2@5",
     "a=1..1000000", "a=b..3", "a=1..3,7"],
)  # fmt: skip
def test_knobs_that_cannot_be_read_are_refused_with_their_name(text):
    with pytest.raises(TuneError, match="a"):
        parse_knob(text)


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("decode_threads", ("decode.concurrency",)),
        ("num_workers", ("num_workers",)),
        ("prefetch", ("prefetch_factor", "last.capacity")),
        ("queue_depth", ("*.capacity",)),
        ("mtp", ("subprocess",)),
        ("pool", ()),
    ],
)
def test_the_meaning_of_a_knob_is_guessed_from_its_name(name, turns):
    assert parse_knob(f"{name}=1,2").turns == turns


def test_a_knob_that_is_named_twice_is_refused():
    with pytest.raises(TuneError, match="`--knob a=…` is given twice"):
        parse(["--knob", "a=1,2", "--knob", "a=3,4", "--", "true", "{a}"])


def test_constraints_support_arithmetic_and_comparison():
    values = {"a": 3, "b": 2, "pool": "shared", "on": True}
    for holds in ("a + b <= 5", "1 < b < a", "pool == 'shared' or a > 9", "not (on == no)",
                  "a % 2 == 1 and a // 2 == 1", "-a < 0"):  # fmt: skip
        assert Constraint(holds).holds(values), holds
    for fails in ("a + b < 5", "on == no", "pool != 'shared'"):
        assert not Constraint(fails).holds(values), fails


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "a.b < 1", "a[0]", "[a]", "a ** 9", "lambda: 1", "a if b else 1",
     "f'{a}'", "a := 1", "a <", "", "a in b", "b'x' == a"],
)  # fmt: skip
def test_anything_but_arithmetic_in_a_constraint_is_refused(text):
    with pytest.raises(TuneError):
        Constraint(text)


def space_of(*knobs: str, constraints: tuple[str, ...] = ()) -> Space:
    return Space(tuple(map(parse_knob, knobs)), tuple(map(Constraint, constraints)))


def test_a_constraint_with_an_unknown_knob_or_one_that_the_baseline_violates_is_refused():
    with pytest.raises(TuneError, match="`c`, which is not a knob"):
        space_of("a=1..3", constraints=("a + c < 4",))
    with pytest.raises(TuneError, match=r"the baseline .* violates"):
        space_of("a=1..3", constraints=("a > 1",))


def test_only_configurations_that_satisfy_the_constraints_are_listed():
    space = space_of("a=1..3", "b=1..3", constraints=("a + b <= 4",))
    assert space.size == 9
    assert len({key(config) for config in space.all()}) == 6


def test_placeholders_are_replaced_and_a_switch_adds_its_words_or_nothing():
    space = space_of("n=1..4", "mtp=no,yes", "way=a b,c")
    template = Template(
        ["run", "--n={n}", "{mtp:--mtp}", "{mtp:--on|--off}", "{way}", "{{n}}", '{"json": 1}',
         "{what_if:1000|200}", "{probe:1000|200}"],
        space,
    )  # fmt: skip
    off = {"n": 2, "mtp": False, "way": "a b"}
    on = {"n": 2, "mtp": True, "way": "c"}
    assert template.fill(off) == [
        "run",
        "--n=2",
        "--off",
        "a b",
        "{n}",
        '{"json": 1}',
        "200",
        "200",
    ]
    assert template.fill(on, what_if=True)[2:4] == ["--mtp", "--on"]
    assert template.fill(on, what_if=True)[-2:] == ["1000", "1000"]
    assert template.line(off) == """run --n=2 --off 'a b' '{n}' '{"json": 1}' 200 200"""


def test_a_placeholder_without_a_knob_and_a_knob_without_a_placeholder_are_refused():
    space = space_of("threads=1..4", "mtp=no,yes")
    with pytest.raises(TuneError, match=r"did you mean `\{threads\}`"):
        Template(["{thread}", "{mtp}"], space)
    with pytest.raises(TuneError, match="`mtp` has no placeholder"):
        Template(["{threads}"], space)
    with pytest.raises(TuneError, match="`yes,no`"):
        Template(["{threads:--x}", "{mtp}"], space)
    with pytest.raises(TuneError, match="no command"):
        Template([], space)


FILE = """
command = ["python", "train.py", "{threads}", "{queue}", "{mtp:--mtp}"]
constraints = ["threads <= queue"]
experiments = 12
stall = "90s"
early_stop = false
probe = false

[knobs]
threads = "1..8"
queue = { values = [4, 8, 16], baseline = 8, turns = "after decode.capacity" }
mtp = "no,yes"
"""


def test_the_command_line_overrides_the_file(tmp_path: Path):
    pytest.importorskip("tomllib", reason="platform: Python 3.10 has no tomllib")
    file = tmp_path / "tune.toml"
    file.write_text(FILE)
    asked = parse(["--file", str(file), "--knob", "threads=1,2", "--patience", "3"])
    assert asked.space["threads"].values == (1, 2)
    assert asked.space["queue"].baseline == 8
    assert asked.space["queue"].turns == ("after decode.capacity",)
    assert asked.command[-1] == "{mtp:--mtp}"
    options = asked.options
    assert (options.experiments, options.patience, options.stall) == (12, 3, 90.0)
    assert options.early_stop is False
    assert options.what_if is False
    assert options.what_if_steps == 1000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("experimants = 3\n[knobs]\na = '1..2'", "`experimants`"),
        ("experiments = 'many'\n[knobs]\na = '1..2'", "`many`"),
        ("[knobs]\na = { turns = 'x' }", "`values`"),
        ("[knobs\n", "not a valid TOML file"),
        ("knobs = 3", "not a table"),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(tmp_path: Path, text, told):
    pytest.importorskip("tomllib", reason="platform: Python 3.10 has no tomllib")
    file = tmp_path / "tune.toml"
    file.write_text(text)
    with pytest.raises(TuneError, match=told):
        parse(["--file", str(file), "--", "true", "{a}"])


ROOT = Path(__file__).parents[2]


def test_the_commands_in_the_documentation_are_understood():
    page = (ROOT / "docs/tune.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith("headspace tune")]
    assert commands
    for line in commands:
        asked = parse(shlex.split(line)[2:])
        assert Template(asked.command, asked.space).fill(asked.space.baseline)


def test_the_example_file_and_the_one_in_the_documentation_are_understood(tmp_path: Path):
    pytest.importorskip("tomllib", reason="platform: Python 3.10 has no tomllib")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "docs/tune.md").read_text(),
                          re.MULTILINE | re.DOTALL)  # fmt: skip
    file = tmp_path / "tune.toml"
    file.write_text(block)
    for path in (file, ROOT / "examples/python/tune.toml"):
        asked = parse(["--file", str(path)])
        assert Template(asked.command, asked.space).fill(asked.space.baseline, what_if=True)
    assert asked.space.size == 96
    from study_tune import PROGRAMS

    assert asked.space == PROGRAMS["video"].space
