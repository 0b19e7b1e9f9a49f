"""The browser fixture. Test modules load it as a pytest plugin."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("chromium and its driver are not installed (requirements/debian-test.txt)")
    from browser import Browser

    opened = Browser()
    yield opened
    opened.close()
