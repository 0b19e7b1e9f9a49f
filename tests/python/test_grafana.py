"""Every query of the dashboard returns data, and Grafana's own types define every field of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from otlp_collectors import Collector, http_collector
from promserver import Prometheus, address_of
from remote_write import translate
from running import Programs, Started, wait_until

pytest_plugins = ["nvml_fixtures", "promserver_fixtures"]

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "examples" / "grafana" / "dashboards" / "headspace.json"
TYPES = ROOT / "tests" / "grafana"
HEALTHY = json.loads((ROOT / "tests" / "fake_nvml" / "src" / "healthy_h100.json").read_text())

#: The value that Grafana inserts for each variable of a query if everything is selected.
CHOSEN = {"$job": ".*", "$run": ".*", "$rank": ".*", "$__rate_interval": "10s"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return board


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every query with the title of its panel."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in CHOSEN.items():
                expression = expression.replace(name, value)
            assert "$" not in expression.replace("$1", ""), expression
            yield panel["title"], expression


@dataclass(frozen=True)
class Trained:
    """Two ranks of a running run, and the data that the collector received."""

    ranks: list[Started]
    received: Collector


@pytest.fixture
def trained(program: Programs, library: Path, tmp_path: Path) -> Iterator[Trained]:
    """Two ranks of a run that trains: stages, queues, a probe, a GPU each."""
    stop = tmp_path / "stop"
    with http_collector() as received:
        ranks = [
            program.start(
                "pipeline.py",
                stop,
                runs=tmp_path / "runs",
                env={
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "HEADSPACE_MODE": "probe",
                    "HEADSPACE_INTERVAL": "250ms",
                    "HEADSPACE_EXPORT": "prometheus:0,otlp",
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{received.port}",
                    "OTEL_METRIC_EXPORT_INTERVAL": "1000",
                    "HEADSPACE_NVML_LIB": str(library),
                    "HEADSPACE_FAKE_NVML": json.dumps({"clock": "real", "devices": [HEALTHY]}),
                },
            )
            for rank in (0, 1)
        ]
        for rank in ranks:
            rank.wait_for("training")
        yield Trained(ranks, received)
        stop.touch()
        for rank in ranks:
            ran = rank.finish()
            assert ran.exit_code == 0, ran.stderr


def lasting(names: set[str]) -> set[str]:
    """Names of metrics. A histogram is one metric in both forms.

    Metrics that Prometheus adds are left out, and so are conclusions about the run, which may disappear
    before they are scraped.
    """
    parts = r"(?<=_seconds)_(bucket|sum|count)$"
    others = r"up$|scrape_|headspace_run_"
    return {re.sub(parts, "", name) for name in names if not re.match(others, name)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_query_of_the_dashboard_returns_scraped_and_otlp_data(
    dashboard: dict[str, Any], trained: Trained, prometheus: Callable[..., Prometheus]
) -> None:
    """The data come from a running training.

    For OTLP, `remote_write.py` translates the messages of the run's exporter and writes them to a real
    Prometheus, which answers the queries from native histograms. This checks the names, the labels and the
    queries, if the translation is the same as that of Prometheus. It does not check Prometheus' OTLP receiver,
    which Debian's build does not contain.
    """
    addresses = [address_of(run, rank) for rank, run in enumerate(trained.ranks)]
    receives = ("--web.enable-remote-write-receiver", "--enable-feature=native-histograms")
    servers = {
        "scraped": prometheus({"training": addresses}),
        "by OTLP": prometheus({}, *receives),
    }
    wanted = list(queries(dashboard))
    silent = dict.fromkeys((way, *one) for way in servers for one in wanted)
    written = 0

    def write_on() -> None:
        nonlocal written
        new = trained.received.metrics[written:]
        written += len(new)
        if new:
            servers["by OTLP"].write(translate(new))

    def all_answer() -> bool:
        write_on()
        for way, panel, expression in list(silent):
            if servers[way].query(expression):
                del silent[way, panel, expression]
        return not silent

    try:
        wait_until(all_answer, "data for every query", timeout=120)
    except pytest.fail.Exception:
        pytest.fail("no data for " + "\n".join(": ".join(one) for one in silent))
    assert len(wanted) > 40
    # On a busy machine, a scrape may time out.
    scraped, by_otlp = servers.values()
    wait_until(lambda: all(t["health"] == "up" for t in scraped.targets()), "both ranks are up")
    for way, server, job in [("scraped", scraped, "training"), ("OTLP", by_otlp, "headspace")]:
        steps = server.query('headspace_loop_steps_total{phase="live"}')
        assert {series["metric"]["rank"] for series in steps} == {"0", "1"}, way
        assert {series["metric"]["job"] for series in steps} == {job}, way
        assert len({series["metric"]["instance"] for series in steps}) == 2, way
        assert len({series["metric"]["run"] for series in steps}) == 1, way
    # Both ways give the same metrics under the same names.
    names: list[set[str]] = []

    def same() -> bool:
        write_on()
        names[:] = lasting(by_otlp.names()), lasting(scraped.names())
        return names[0] == names[1]

    try:
        wait_until(same, "the same names")
    except pytest.fail.Exception:
        pytest.fail(f"of one way only: {names[0] ^ names[1]}")
    assert len(names[0]) > 50


def _typescript(dashboard: dict[str, Any]) -> str:
    """The dashboard as a TypeScript program. It compiles if each part has Grafana's type."""
    packages = {
        kind: f"@grafana/schema/dist/esm/raw/composable/{folder}/panelcfg/x/{name}PanelCfg_types.gen"
        for kind, folder, name in [
            ("timeseries", "timeseries", "TimeSeries"),
            ("stat", "stat", "Stat"),
            ("table", "table", "Table"),
            ("bargauge", "bargauge", "BarGauge"),
        ]
    }
    with_fields = {"timeseries", "table"}
    lines = [
        'import type { Dashboard, Panel } from "@grafana/schema";',
        'import type { Plain } from "./plain";',
        *(f'import type * as {kind} from "{path}";' for kind, path in packages.items()),
    ]
    rest = {**dashboard, "panels": []}
    lines.append(f"export const dashboard: Plain<Dashboard> = {json.dumps(rest)};")
    for panel in dashboard["panels"]:
        kind, name = panel["type"], f"panel{panel['id']}"
        if kind == "row":
            continue
        fields = f"{kind}.FieldConfig" if kind in with_fields else "Record<string, never>"
        wanted = f"Panel<Partial<{kind}.Options>, Partial<{fields}>>"
        # `Panel` does not define the options. The type of the panel's kind does.
        lines.append(f"export const {name}: Plain<Panel> = {json.dumps(panel)};")
        lines.append(
            f"export const {name}Options: Plain<Partial<{kind}.Options>> = "
            f"{json.dumps(panel['options'])};"
        )
        lines.append(
            f"export const {name}Fields: Plain<NonNullable<{wanted}['fieldConfig']>"
            f"['defaults']['custom']> & Plain<Partial<{fields}>> = "
            f"{json.dumps(panel['fieldConfig']['defaults']['custom'])};"
        )
    return "\n".join(lines) + "\n"


def _compile(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    if not (TYPES / "node_modules" / "typescript").is_dir():
        pytest.skip("`@grafana/schema` is not installed (npm ci in tests/grafana)")
    (folder / "node_modules").symlink_to(TYPES / "node_modules")
    shutil.copy(TYPES / "plain.ts", folder)
    shutil.copy(TYPES / "tsconfig.json", folder)
    (folder / "dashboard.ts").write_text(source)
    tsc = TYPES / "node_modules" / "typescript" / "bin" / "tsc"
    return subprocess.run(
        ["node", os.fspath(tsc), "--project", os.fspath(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_dashboard_matches_the_types_of_grafana(
    dashboard: dict[str, Any], tmp_path: Path
) -> None:
    compiled = _compile(_typescript(dashboard), tmp_path)
    assert compiled.returncode == 0, compiled.stdout


def _first(dashboard: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(panel for panel in dashboard["panels"] if panel["type"] == kind)


FAULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a field of the dashboard that is a number instead of a text": lambda board: board.update(
        title=7
    ),
    "a panel without a place of its own": lambda board: _first(board, "stat")["gridPos"].pop("h"),
    "a way to draw that there is not": lambda board: _first(board, "timeseries")["fieldConfig"][
        "defaults"
    ]["custom"].update(drawStyle="crayon"),
    "an option that there is not": lambda board: _first(board, "stat")["options"].update(
        colourMode="none"
    ),
    "a legend in a place that there is not": lambda board: _first(board, "timeseries")["options"][
        "legend"
    ].update(placement="left"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_invalid_dashboard_does_not_compile(
    fault: str, dashboard: dict[str, Any], tmp_path: Path
) -> None:
    broken = json.loads(json.dumps(dashboard))
    FAULTS[fault](broken)
    assert _compile(_typescript(broken), tmp_path).returncode != 0


def test_the_example_mounts_existing_files_and_promtool_accepts_its_configuration() -> None:
    example = ROOT / "examples" / "grafana"
    compose = (example / "compose.yaml").read_text()
    mounted = re.findall(r"- (\./\S+?):", compose)
    assert len(mounted) == 3
    for path in mounted:
        assert (example / path).exists(), path
    if shutil.which("promtool") is None:
        pytest.skip("`promtool` is not installed (requirements/debian-test.txt)")
    checked = subprocess.run(
        ["promtool", "check", "config", os.fspath(example / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
