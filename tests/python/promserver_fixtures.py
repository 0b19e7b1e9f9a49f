"""Starts a real Prometheus. A test module loads it with `pytest_plugins = ["promserver_fixtures"]`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from promserver import Prometheus, ready
from running import free_port


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """Yields a function that starts Prometheus. It takes the addresses to scrape by job, and options."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("`prometheus` is not installed (requirements/debian-test.txt)")
    started: list[subprocess.Popen[bytes]] = []

    def start(jobs: dict[str, list[str]], *options: str) -> Prometheus:
        folder = tmp_path / f"prometheus-{len(started)}"
        folder.mkdir()
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses}]}
                for job, addresses in jobs.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML.
        for _ in range(5):
            port = free_port()
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    [
                        program,
                        f"--config.file={folder / 'prometheus.yml'}",
                        f"--storage.tsdb.path={folder / 'data'}",
                        f"--web.listen-address=127.0.0.1:{port}",
                        *options,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            started.append(process)
            if ready(process, f"http://127.0.0.1:{port}"):
                return Prometheus(f"http://127.0.0.1:{port}")
        pytest.fail((folder / "log").read_text())

    yield start
    for process in started:
        process.kill()
        process.wait()
