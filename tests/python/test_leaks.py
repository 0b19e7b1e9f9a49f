"""The verdicts on planted leaks and on their healthy twins."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from planted_leaks import LEAKS, NEED_TORCH, find_missing_words
from running import PROGRAMS, Programs, Ran

from headspace._memory import safe

#: A process with torch has many objects, and the memory of workers is read once per second.
SECONDS = {"graph": 32, "losses": 32, "workers": 36}


def kinds(*marks: pytest.MarkDecorator) -> list[Any]:
    """The kinds of leaks. `marks` are for those that need torch."""
    has_torch = importlib.util.find_spec("torch") is not None
    of_torch = [pytest.mark.skipif(not has_torch, reason="torch is not installed"), *marks]
    return [pytest.param(kind, marks=of_torch if kind in NEED_TORCH else []) for kind in LEAKS]


def run(program: Programs, kind: str, variant: str, memory: str = "types") -> Ran:
    # The program first reuses the memory that an examination has freed. `tracemalloc` frees more, so this takes longer.
    seconds = 22 if memory == "tracemalloc" else SECONDS.get(kind, 9)
    settings = {"HEADSPACE_INTERVAL": "0.1", "HEADSPACE_STACKS": "0", "HEADSPACE_MEMORY": memory}
    ran = program("leaks.py", kind, variant, seconds, env=settings)
    assert ran.exit_code == 0, ran.stderr
    return ran


def growth_texts(ran: Ran) -> list[str]:
    findings = ran.summary()["findings"]
    return [finding["text"] for finding in findings if finding["code"] == "memory_grows"]


# On a busy machine, counting the objects of torch takes so long that the run has too few counts.
@pytest.mark.parametrize("kind", kinds(pytest.mark.alone))
def test_a_leak_is_named_with_what_holds_it(program: Programs, kind: str) -> None:
    ran = run(program, kind, "leak")
    texts = growth_texts(ran)
    expected = LEAKS[kind]
    if expected is None:
        assert texts == []
        return
    assert len(texts) == 1, ran.summary()["resources"]
    cause = ran.summary()["resources"]["memory_growth_cause"]["cause"]
    assert (cause, find_missing_words(kind, texts[0])) == (expected[0], []), texts


@pytest.mark.parametrize("kind", kinds())
def test_its_healthy_twin_causes_no_finding(program: Programs, kind: str) -> None:
    assert growth_texts(run(program, kind, "healthy")) == []


def test_with_tracemalloc_the_line_that_allocates_is_named(program: Programs) -> None:
    texts = growth_texts(run(program, "list", "leak", "tracemalloc"))
    line = next(
        number
        for number, text in enumerate((PROGRAMS / "leaks.py").read_text().splitlines(), 1)
        if "numpy.full(" in text
    )
    assert f"made at leaks.py:{line}" in texts[0], texts


def test_nothing_is_counted_if_that_is_turned_off(program: Programs) -> None:
    ran = run(program, "list", "leak", "off")
    assert len(growth_texts(ran)) == 1
    assert "memory_growth_cause" not in ran.summary()["resources"]


def test_a_failed_count_ends_the_counts_with_a_notice_and_training_continues(
    program: Programs,
) -> None:
    settings = {"HEADSPACE_INTERVAL": "0.1", "HEADSPACE_MEMORY": "types"}
    ran = program("broken_census.py", 6, env=settings)

    assert ran.exit_code == 0, ran.stderr
    assert "`memory` is off for this run: RuntimeError: no frames today." in ran.stderr
    assert ran.stderr.count("no frames today") == 1
    assert ran.summary()["steps"] > 100


def test_a_container_is_described_with_the_first_array_in_it() -> None:
    numpy = pytest.importorskip("numpy")
    image = numpy.zeros((2, 3))

    assert safe.describe(image) == "numpy.ndarray float64[2, 3]"
    assert safe.describe({"name": "a", "image": image}) == "dict with numpy.ndarray float64[2, 3]"
    assert safe.describe((image, 3)) == "tuple with numpy.ndarray float64[2, 3]"
    assert safe.describe([1, 2]) == "list"


def test_tuples_that_threads_fill_meanwhile_are_not_referred_to(program: Programs) -> None:
    """CPython cannot resize a tuple to which anything else refers, and raises `SystemError` in the program."""
    settings = {"HEADSPACE_INTERVAL": "0.1", "HEADSPACE_STACKS": "0"}
    ran = program("unfinished_tuples.py", 9, env=settings)

    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout == "0\n"
    assert any("`history`" in text for text in growth_texts(ran)), ran.stderr
