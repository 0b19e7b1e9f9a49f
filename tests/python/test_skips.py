"""In CI, a skipped test is a failure, unless its reason begins with `platform: ` (`conftest.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest

def test_passes(): pass
def test_lacks_a_library(): pytest.importorskip("no_such_library")
@pytest.mark.skip(reason="later")
def test_is_put_off(): pass
def test_lacks_a_kernel(): pytest.skip("platform: no such kernel")
@pytest.mark.xfail
def test_is_known_to_fail(): assert False
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(SUITE)
    return pytester


def test_in_ci_a_skip_is_a_failure_unless_the_platform_is_why(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    result = suite.runpytest_inprocess("-p", "no:cacheprovider")

    # A marker skips before the test begins, which pytest counts as an error.
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*skipped in CI: later*"])


def test_in_ci_a_module_that_cannot_be_imported_is_an_error(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    suite.makepyfile(test_other='import pytest\npytest.importorskip("no_such_library")')

    result = suite.runpytest_inprocess("-p", "no:cacheprovider", "test_other.py")

    result.assert_outcomes(errors=1)


def test_elsewhere_skips_are_counted_aloud_by_reason(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)

    result = suite.runpytest_inprocess("-p", "no:cacheprovider")

    result.assert_outcomes(passed=1, skipped=3, xfailed=1)
    result.stdout.fnmatch_lines(["*NOT TESTED HERE*", "1 skipped: later"])
