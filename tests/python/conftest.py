"""In CI, a skipped test fails. Elsewhere, skipped tests are listed at the end.

A test that cannot run here says why with `pytest.skip(reason)`, `skipif` or `importorskip`. With
`CI=true` such a skip is a failure: CI has everything installed, so a skip there means that a test
has quietly stopped running. Only a reason that begins with `platform: ` is allowed, for something that no
installation can provide (`platform: no cgroup v2 on this kernel`).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from running_fixtures import mounted, name, program, runs, session  # noqa: F401

ALLOWED_PREFIX = "platform: "


def pytest_configure() -> None:
    # A shell's background jobs ignore Ctrl-C, and so would every program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts files with slow tests first. If such a file began last, the other processes of pytest-xdist would wait
    for it.

    A test marked `alone` fails only if it fails twice in succession, because other programs and other machines on the same
    host change the times that it measures. The summary lists the tests that ran again, and why.
    """
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
    for item in items:
        if item.get_closest_marker("alone") and not config.option.usepdb:
            item.add_marker(pytest.mark.flaky(reruns=1))
            # pytest-timeout limits both attempts together, and stops at the first failure. This limits each of them.
            item.add_marker(pytest.mark.timeout(300, func_only=True))


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why the report was skipped, without pytest's `Skipped: `."""
    longrepr: Any = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = _reason(report)
    if _in_ci() and not reason.startswith(ALLOWED_PREFIX):
        report.outcome = "failed"
        report.longrepr = (
            f"skipped in CI: {reason}\n"
            "Install what is missing, or, where no installation can bring it, let the reason "
            f"begin with `{ALLOWED_PREFIX}`."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons: dict[str, int] = {}
    for report in skipped:
        reasons[_reason(report)] = reasons.get(_reason(report), 0) + 1
    terminalreporter.section("NOT TESTED HERE", yellow=True, bold=True)
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} skipped: {reason}")
