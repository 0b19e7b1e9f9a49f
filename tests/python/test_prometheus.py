"""Metrics for Prometheus: an endpoint in the training process, and a file.

The references are independent: `promtool` and the official parsers of both text formats.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text
from promserver import address_of, scrape
from running import DEADLINE_S, Programs, Runs, Started, steps_in_ticks, wait_until

import headspace

pytest_plugins = ["nvml_fixtures"]

ROOT = Path(__file__).parents[2]
HEALTHY = json.loads((ROOT / "tests" / "fake_nvml" / "src" / "healthy_h100.json").read_text())
OPEN = "application/openmetrics-text; version=1.0.0"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(families: Iterator[Metric]) -> Samples:
    """Every value by name and labels. A duplicate series is a failure."""
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def values(found: Samples, name: str, **labels: str) -> list[float]:
    """Values of the series of this name that have at least these labels."""
    return [
        value
        for (of, pairs), value in found.items()
        if of == name and labels.items() <= dict(pairs).items()
    ]


def lint(text: str) -> str:
    """The complaints of `promtool` about a text."""
    if shutil.which("promtool") is None:
        pytest.skip("`promtool` is not installed (requirements/debian-test.txt)")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    return f"{checked.stdout}{checked.stderr}"


@pytest.fixture
def training(program: Programs, library: Path, tmp_path: Path) -> Iterator[Started]:
    """A run that trains, with stages, queues, a probe and a GPU."""
    stop = tmp_path / "stop"
    run = program.start(
        "pipeline.py",
        stop,
        env={
            "HEADSPACE_MODE": "probe",
            "HEADSPACE_INTERVAL": "250ms",
            "HEADSPACE_EXPORT": "prometheus:0",
            "HEADSPACE_NVML_LIB": str(library),
            "HEADSPACE_FAKE_NVML": json.dumps({"clock": "real", "devices": [HEALTHY]}),
        },
    )
    run.wait_for("training")
    yield run
    stop.touch()
    assert run.finish().exit_code == 0


def test_promtool_finds_no_error_and_both_official_parsers_read_the_same_values(
    training: Started,
) -> None:
    address = address_of(training)
    scraped: list[tuple[str, str]] = []

    def all_scraped() -> bool:
        # If a probe is disturbed, its floor disappears.
        scraped[:] = [scrape(address)]
        text = scraped[0][0]
        return all(
            name in text
            for name in (
                "headspace_run_floor_time_seconds{",
                "headspace_gpu_engine_utilization_ratio{",
                "headspace_run_bottleneck_ratio{",
            )
        )

    wait_until(all_scraped, "the floor, the GPU and the bottleneck")
    [(text, kind)] = scraped
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert lint(text) == ""
    opened, kind = scrape(address, OPEN)
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"

    classic, modern = samples(parse_text(text)), samples(parse_open(opened))
    # Two scrapes have the same series, except for new conclusions. The values change.
    lasting = {key for key in classic if not key[0].startswith("headspace_run_")}
    assert lasting - set(modern) == set()
    run = training.folder.name
    for name, pairs in classic:
        assert {"run": run, "rank": "0"}.items() <= dict(pairs).items(), name
    units = {family.name: family.unit for family in parse_open(opened)}
    assert units["headspace_loop_step_time_seconds"] == "seconds"
    assert units["process_memory_usage_bytes"] == "bytes"
    assert units["headspace_host_cpu_utilization_ratio"] == "ratio"
    assert len(values(classic, "headspace_gpu_engine_utilization_ratio")) > 7
    # The loop itself takes 8 ms.
    [floor] = values(classic, "headspace_run_floor_time_seconds", estimate="value")
    assert floor >= 0.008


def test_the_final_file_has_the_values_of_the_records(program: Programs, tmp_path: Path) -> None:
    stop, folder = tmp_path / "stop", tmp_path / "metrics"
    run = program.start(
        "pipeline.py",
        stop,
        env={"HEADSPACE_INTERVAL": "100ms", "HEADSPACE_EXPORT": f"textfile:{folder}"},
    )
    run.wait_for("training")
    stop.touch()
    ran = run.finish()

    [file] = folder.iterdir()
    assert file.name == f"headspace_{ran.folder.name}_rank0.prom"
    text = file.read_text()
    assert lint(text) == ""
    found = samples(parse_text(text))

    ticks = ran.kind("tick")
    loops = [entry for tick in ticks for entry in tick.get("loops", [])]
    calls = [
        entry for tick in ticks for entry in tick.get("stages", []) if entry["name"] == "decode"
    ]
    summary = ran.summary()
    near = pytest.approx
    assert sum(values(found, "headspace_loop_steps_total")) == steps_in_ticks(ran.records())
    assert values(found, "headspace_loop_samples_total") == [8 * summary["steps"]]
    for part in ("step", "wait", "compute"):
        name = f"headspace_loop_{part}_time_seconds"
        sums = sum(entry[part]["sum_ms"] for entry in loops) / 1e3
        assert sum(values(found, f"{name}_sum")) == near(sums)
        counts = sum(entry[part]["count"] for entry in loops)
        assert values(found, f"{name}_count") == [counts]
        assert values(found, f"{name}_bucket", le="+Inf") == [counts]
    assert values(found, "headspace_stage_time_seconds_count", stage="decode") == [
        sum(entry["time"]["count"] for entry in calls)
    ]
    assert values(found, "headspace_run_steady_step_time_seconds") == [
        near(summary["steady_step_mean_ms"] / 1e3)
    ]
    assert values(found, "headspace_run_overhead_ratio") == [near(summary["overhead_pct"] / 100)]
    [cpu] = [
        tick["readings"]["process"]["process.cpu.time{cpu.mode=user}"]
        for tick in ticks
        if "process.cpu.time{cpu.mode=user}" in tick["readings"].get("process", {})
    ][-1:]
    scraped = values(found, "process_cpu_time_seconds_total", scope="process", cpu_mode="user")
    assert scraped == [near(cpu)]


def test_a_step_is_counted_in_the_bucket_of_its_duration(runs: Runs) -> None:
    with headspace.start(to=headspace.Prometheus(port=0), interval=0.05) as session:
        address = address_of_session(session)
        for _ in headspace.wrap(range(50), name="train"):
            pass
        series = "headspace_loop_step_time_seconds"

        def counted() -> Samples:
            return samples(parse_text(scrape(address)[0]))

        wait_until(lambda: values(counted(), f"{series}_count") == [49.0], "the steps")
        found = counted()
        # The steps do nothing, so they are far shorter than 0.1 s.
        assert values(found, f"{series}_bucket", le="0.1") == [49.0]
        assert 0 < sum(values(found, f"{series}_sum")) < 0.1 * 49


def address_of_session(session: headspace.Session) -> str:
    """The address of the endpoint, from the notice in the session's records."""
    found: list[str] = []

    def look() -> bool:
        file = Path(session.folder) / "rank0.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        records: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
        found[:] = [
            record["text"].rpartition(" ")[2]
            for record in records
            if record["kind"] == "notice" and record["code"] == "serving"
        ]
        return bool(found)

    wait_until(look, "the notice that says where metrics are served")
    return found[0].removeprefix("http://").removesuffix("/metrics")


@pytest.fixture
def used_port() -> Iterator[int]:
    """A port that is already in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        yield port


def test_a_port_in_use_is_an_error_before_training_begins(runs: Runs, used_port: int) -> None:
    with pytest.raises(OSError, match=f"port {used_port} of `127.0.0.1`"):
        headspace.start(to=headspace.Prometheus(port=used_port))
    with pytest.raises(ValueError, match="`70000` is not a port"):
        headspace.start(to=headspace.Prometheus(port=70_000))
    # The refused sessions leave no folder, and another session can start.
    assert not runs.folders
    headspace.start(to=headspace.Prometheus(port=0)).stop()


def test_a_port_in_use_from_the_environment_causes_a_notice(
    program: Programs, used_port: int, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    stop.touch()
    env = {
        "HEADSPACE_EXPORT": f"prometheus:{used_port - 1}",
        "LOCAL_RANK": "1",
        "HEADSPACE_INTERVAL": "50ms",
    }
    ran = program("pipeline.py", stop, env=env)

    assert ran.exit_code == 0, ran.stderr
    assert "setting_refused" in ran.notices()
    # The second process of a machine uses the next port.
    assert f"port {used_port} of `127.0.0.1`" in ran.stderr


def refuses(address: str) -> bool:
    try:
        scrape(address)
    except urllib.error.URLError:
        return True
    return False


def test_a_forked_child_does_not_answer_and_does_not_hold_the_address(runs: Runs) -> None:
    session = headspace.start(to=headspace.Prometheus(port=0), interval=0.05)
    address = address_of_session(session)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    try:
        wait_until(lambda: scrape(address)[0], "a scrape with metrics")
        session.stop()
        wait_until(lambda: refuses(address), "nobody answers")
        port = int(address.rpartition(":")[2])
        with headspace.start(to=headspace.Prometheus(port=port), interval=0.05) as again:
            assert address_of_session(again) == address
            wait_until(lambda: scrape(address)[0], "a scrape with metrics")
    finally:
        os.close(write_end)
        os.waitpid(child, 0)


def test_a_request_with_another_host_name_is_refused(runs: Runs) -> None:
    with headspace.start(to=headspace.Prometheus(port=0), interval=0.05) as session:
        address = address_of_session(session)
        request = urllib.request.Request(
            f"http://{address}/metrics", headers={"Host": "evil.example"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=DEADLINE_S)
        assert refused.value.code == 421
        assert "headspace_" not in refused.value.read().decode()


def test_only_the_metrics_path_is_served(runs: Runs) -> None:
    with headspace.start(to=headspace.Prometheus(port=0), interval=0.05) as session:
        address = address_of_session(session)
        for path, method, status in [
            ("/../rank0.jsonl", "GET", 404),
            ("/metrics", "POST", 405),
        ]:
            request = urllib.request.Request(f"http://{address}{path}", method=method)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=DEADLINE_S)
            assert refused.value.code == status
