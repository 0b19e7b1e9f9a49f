"""A real Prometheus on loopback, and its answers to queries.

The fixture is in `promserver_fixtures.py`.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest
from remote_write import snappy
from running import DEADLINE_S, Started, read_records, wait_until


@dataclass(frozen=True)
class Prometheus:
    """A server that scrapes every second."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current series of an expression, without NaN."""
        found = self._get("query", query=expression)["result"]
        return [series for series in found if not math.isnan(float(series["value"][1]))]

    def targets(self) -> list[dict[str, Any]]:
        targets: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return targets

    def write(self, message: Any) -> None:
        """Sends a message by remote write."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/write",
            data=snappy(message.SerializeToString()),
            headers={
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "snappy",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        try:
            urllib.request.urlopen(request, timeout=DEADLINE_S).close()
        except urllib.error.HTTPError as error:
            pytest.fail(f"not written: {error.read().decode()}")

    def names(self) -> set[str]:
        """The names of all series in the server."""
        return set(self._get("label/__name__/values"))

    def _get(self, path: str, **arguments: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            pytest.fail(f"{arguments}: {error.read().decode()}")


def ready(process: subprocess.Popen[bytes], url: str) -> bool:
    """Whether the server answers within the deadline. It exits instead if another process has its port."""
    end = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=DEADLINE_S):
                return True
        except OSError:
            time.sleep(0.05)
    return False


def address_of(run: Started, rank: int = 0) -> str:
    """The address of the endpoint of a rank, from its records."""
    addresses: list[str] = []

    def find_address() -> bool:
        files = list(run.path.glob(f"*/rank{rank}.jsonl"))
        if files:
            addresses[:] = [
                record["text"].rpartition(" ")[2]
                for record in read_records(files[0], unfinished=True)
                if record["kind"] == "notice" and record["code"] == "serving"
            ]
        return bool(addresses)

    wait_until(find_address, "the notice that says where metrics are served")
    return addresses[0].removeprefix("http://").removesuffix("/metrics")


def scrape(address: str, accept: str = "text/plain") -> tuple[str, str]:
    """The text that the endpoint returns, and its content type."""
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]
