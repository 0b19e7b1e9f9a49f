"""SPDL's autoresearch engine on `headspace.spdl.autoresearch`: measured without an edit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from autoresearch import Search
from running import wait_until

pytest.importorskip("matplotlib", reason="the engine draws with matplotlib")
pytest.importorskip("skvideo" if False else "av")

SHORT = "--steps 70 --clips 60 --size 16 --frames 2 --subclip-seconds 0.1 --max-skip 0.1"


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Search]:
    from test_examples import find_videos

    search = Search(tmp_path, SHORT.split())
    search.prepare([video for video in find_videos() if "bunny" not in video.name])
    yield search
    for job in (search.workdir / "headspace").glob("*/pid"):
        try:
            os.killpg(int(job.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_it(search: Search) -> None:
    engine = search.start()
    code = search.finish(engine)
    print(search.log)
    print(search.table())
    assert code == 0
