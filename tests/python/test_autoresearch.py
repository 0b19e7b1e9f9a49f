"""SPDL's autoresearch engine on `headspace.spdl.autoresearch`: the real engine, end to end.

A scripted `codex` proposes and answers (`tests/programs/coding_agent.py`). The GPU is a scripted one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from autoresearch import Search
from running import wait_until
from test_examples import find_videos

pytest.importorskip("matplotlib", reason="the engine draws with matplotlib, which is not installed")
pytest_plugins = ["nvml_fixtures"]

#: A small data set with slow files, so that a run lasts 3 s: a GPU needs two readings, 1 s apart.
SHORT = (
    "--steps 70 --clips 60 --size 16 --frames 2 --subclip-seconds 0.1 --max-skip 0.1 --fetch-ms 15"
)
#: Time limit of the whole search. It is long, because it only ends a search that hangs.
SEARCH_S = 270.0
#: Experiments in the order of the engine, and whether each one succeeds.
EXPERIMENTS = {
    "baseline": True,
    "headspace_cache": True,
    "mtp": True,
    "mp_region": False,
    "mp_region_startup_retry_1": True,
    "decode": True,
    "crash": False,
    "stall": False,
}
MEASURED = [name for name, well in EXPERIMENTS.items() if well and name != "headspace_cache"]


def prepared(folder: Path, arguments: str = SHORT) -> Search:
    search = Search(folder, arguments.split())
    search.prepare([video for video in find_videos() if "bunny" not in video.name])
    return search


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Search]:
    """A finished search."""
    search = prepared(tmp_path_factory.mktemp("search"))
    gpu = {"gpu_utilization": 80, "gpm": {"sm_util": 37}}
    engine = search.start(
        HEADSPACE_NVML_LIB=str(library),
        HEADSPACE_FAKE_NVML=json.dumps({"clock": "real", "devices": [gpu]}),
        HEADSPACE_INTERVAL="0.25",
    )
    try:
        wait_until(lambda: engine.poll() is not None, "the search ends", SEARCH_S)
        assert engine.returncode == 0, search.log
        yield search
    finally:
        engine.kill()
        engine.wait()
        search.end()


def test_every_experiment_is_in_the_master_table_as_it_ended(searched: Search) -> None:
    table = searched.table()

    ends = {True: "completed", False: "failed"}
    assert {name: row["status"] for name, row in table.items()} == {
        name: ends[well] for name, well in EXPERIMENTS.items()
    }


@pytest.mark.parametrize("name", MEASURED)
def test_the_master_table_has_the_values_of_the_records(searched: Search, name: str) -> None:
    row = searched.table()[name]
    summary = searched.summary(row["job_id"])

    columns = {
        "throughput_samples_per_s": "throughput_samples_per_s",
        "step_time_ms": "step_time_ms",
        "steady_step_time_ms": "steady_step_time_ms",
        "ttfb_s": "ttfb_s",
        "sm_util_pct": "sm_utilization_pct",
        "steady_sm_util_pct": "steady_sm_utilization_pct",
        "data_readiness_pct": "data_readiness_pct",
    }
    for column, field in columns.items():
        if summary[field] is None:
            assert row[column] == "None", column
        else:
            assert float(row[column]) == pytest.approx(summary[field], abs=1e-3), column
    assert summary["mode"] == "measure"
    assert summary["steps"] == 70
    assert float(row["throughput_samples_per_s"]) > 0
    assert float(row["duration_s"]) > summary["steady_s"]


def test_gpu_utilisation_is_in_the_table_and_the_evidence(searched: Search) -> None:
    assert float(searched.table()["baseline"]["sm_util_pct"]) == pytest.approx(37.0)
    assert "sm_utilization_pct avg=37.0" in searched.evidence("000_baseline")


def test_data_readiness_is_in_the_table(searched: Search) -> None:
    assert 0.0 <= float(searched.table()["baseline"]["data_readiness_pct"]) <= 100.0


def test_the_evidence_names_stages_as_the_events_of_spdl_do(searched: Search) -> None:
    evidence = searched.evidence("004_decode")

    assert "\npipeline:0:3:decode[2]_ave_time\t" in evidence
    assert "\npipeline:0:3:decode[2]_queue_occupation_rate\t" in evidence
    assert "\npipeline:0:1:fetch[1]_num_failures\t0\n" in evidence


def test_the_best_experiment_of_the_engine_is_the_fastest_by_the_records(searched: Search) -> None:
    table = searched.table()
    rates = {
        table[name]["run_id"]: searched.summary(table[name]["job_id"])["throughput_samples_per_s"]
        for name in MEASURED
    }

    best = max(rates, key=lambda run: rates[run])

    assert searched.state()["current_best"] == best
    assert (
        f"**Best metric**: {rates[best]:.1f} samples/s"
        in (searched.workdir / "summary.md").read_text()
    )


def test_the_headspace_experiment_probes_the_unchanged_script(searched: Search) -> None:
    row = searched.table()["headspace_cache"]
    summary = searched.summary(row["job_id"])

    assert summary["mode"] == "probe"
    assert searched.nodes()["headspace_cache"]["commit"] is None
    if summary["floor_step_ms"] is None:  # The run was too short for a floor.
        assert row["steady_step_time_ms"] == "None"
        assert "the floor was not measured: the run ended before the probe did" in row["notes"]
    else:
        assert float(row["steady_step_time_ms"]) == pytest.approx(
            summary["floor_step_ms"], abs=1e-3
        )


def test_the_agent_is_not_called_for_edits_that_only_add_measurement(searched: Search) -> None:
    phases = (searched.workdir / "asked.txt").read_text().split()

    # The five are `mtp`, `mp_region`, and the three experiments that the agent proposed.
    assert phases.count("apply") == 5
    assert phases.count("repair") == 1
    assert phases.count("analyze") == len(EXPERIMENTS)


def test_practices_that_ran_count_as_tried(searched: Search) -> None:
    assert {"mtp", "mp_region"} <= set(searched.state()["best_practices_tried"])


def test_a_start_up_failure_is_reported_as_such_and_repaired(searched: Search) -> None:
    failure = searched.nodes()["mp_region"]["failure"]

    assert failure["kind"] == "job_startup_failed"
    assert failure["details"]["exit_code"] == 1
    assert not failure["details"]["progress_seen"]
    assert failure["details"]["error_summary"].endswith("No module named 'absent_module'")
    assert searched.nodes()["mp_region_startup_retry_1"]["status"] == "completed"


def test_a_crash_during_training_is_reported_as_such_with_its_traceback(searched: Search) -> None:
    failure = searched.nodes()["crash"]["failure"]

    assert failure["kind"] == "job_runtime_failed"
    assert failure["details"]["progress_seen"]
    error = failure["details"]["error_summary"]
    assert error.startswith("The job failed after 45 batches: exit code 1.\nTraceback (most recent")
    assert error.endswith("MemoryError: of no use")
    assert searched.table()["crash"]["throughput_samples_per_s"] == "None"
    (log,) = failure["details"]["log_paths"]
    assert "MemoryError: of no use" in Path(log).read_text()


def test_a_stall_is_reported_as_such_and_leaves_no_process(searched: Search) -> None:
    failure = searched.nodes()["stall"]["failure"]

    assert failure["kind"] == "job_stalled"
    assert failure["details"]["progress_seen"]
    assert "there was no further batch" in searched.table()["stall"]["notes"]
    assert searched.leftovers() == []


def test_each_kind_of_failure_is_counted(searched: Search) -> None:
    state = json.loads((searched.workdir / "engine" / "engine_state.json").read_text())

    assert state["failed_by_kind"] == {
        "job_startup_failed": 1,
        "job_runtime_failed": 1,
        "job_stalled": 1,
    }


@pytest.mark.parametrize("name", ["progress.png", "hypothesis_tree.png"])
def test_the_pictures_are_drawn(searched: Search, name: str) -> None:
    from matplotlib.image import imread

    picture = imread(searched.workdir / name)

    assert min(picture.shape[:2]) > 500
    assert picture[..., :3].std() > 0.05


def test_the_final_report_names_the_failures(searched: Search) -> None:
    report = (searched.workdir / "report.md").read_text()

    assert "- 006_stall: job_stalled" in report
    assert "- 002_mp_region: job_startup_failed" in report


def test_the_engine_leaves_only_the_source_of_the_last_experiment(
    searched: Search,
) -> None:
    names = {path.name for path in searched.source.iterdir()}

    assert names - {"__pycache__"} == {".git", ".gitignore", "video", "video_classification.py"}


@pytest.mark.slow
def test_an_experiment_that_outlived_the_engine_is_found_again(tmp_path: Path) -> None:
    search = prepared(tmp_path, SHORT.replace("--steps 70", "--steps 400"))
    job = search.workdir / "headspace" / "000_baseline"
    engine = search.start()
    try:
        wait_until(lambda: list(job.glob("records/*/rank0.jsonl")), "the baseline runs", 120)
        wait_until(lambda: search.nodes()["baseline"]["job_id"], "the engine knows the job")
        engine.kill()
        engine.wait()
        pid = int((job / "pid").read_text())
        os.kill(pid, 0)

        engine = search.start()
        wait_until(lambda: "baseline" in search.table(), "the baseline is told of", 180)

        row = search.table()["baseline"]
        assert row["job_id"] == "000_baseline"
        assert row["status"] == "completed"
        summary = search.summary("000_baseline")
        assert summary["steps"] == 400
        assert float(row["throughput_samples_per_s"]) == pytest.approx(
            summary["throughput_samples_per_s"], abs=1e-3
        )
        assert not list(job.parent.glob("000_baseline.*"))
    finally:
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        search.end()
