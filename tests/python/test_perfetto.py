"""The trace of a run shows the values of the records. It is read with the classes of Perfetto's own package."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from running import Programs, Ran

perfetto_trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

#: Tolerance: 2 ms in nanoseconds, because a record's clock and the wall clock are read one after the other.
NEAR_NS = 2e6


@dataclass
class Slice:
    name: str
    start: int
    end: int
    notes: dict[str, Any]


@dataclass
class Shown:
    """The content of a trace as the viewer shows it, by the path of the track."""

    slices: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    instants: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    units: dict[str, str] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)


def foreign(message: Any, place: str = "trace") -> Iterator[str]:
    """Fields that Perfetto's schema does not define."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    for unknown in UnknownFieldSet(message):
        yield f"{place}: field {unknown.field_number}"
    for known, value in message.ListFields():
        if known.message_type is None:
            continue
        for one in [value] if hasattr(value, "ListFields") else value:
            yield from foreign(one, f"{place}.{known.name}")


def note(annotation: Any) -> Any:
    return getattr(annotation, annotation.WhichOneof("value"))


def shown(path: Path) -> Shown:
    """Reads a trace as the viewer does: events in order of time, and events of the same time in file order."""
    trace = perfetto_trace.Trace.FromString(path.read_bytes())
    assert list(foreign(trace)) == []
    kinds = perfetto_trace.TrackEvent
    names: dict[int, str] = {}
    found = Shown()
    events = []
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            own = track.process.process_name if track.HasField("process") else track.name
            above = f"{names[track.parent_uuid]}/" if track.HasField("parent_uuid") else ""
            assert track.uuid not in names
            names[track.uuid] = above + own
            if track.HasField("process"):
                found.processes[own] = track.process.pid
            if track.HasField("counter"):
                found.units[above + own] = track.counter.unit_name
        elif packet.HasField("track_event"):
            events.append(
                (packet.timestamp, names[packet.track_event.track_uuid], packet.track_event)
            )
    open_slices: dict[str, list[Slice]] = defaultdict(list)
    for at, track, event in sorted(events, key=lambda event: event[0]):
        notes = {a.name: note(a) for a in event.debug_annotations}
        if event.type == kinds.TYPE_SLICE_BEGIN:
            open_slices[track].append(Slice(event.name, at, at, notes))
        elif event.type == kinds.TYPE_SLICE_END:
            ended = open_slices[track].pop()
            ended.end = at
            found.slices[track].append(ended)
        elif event.type == kinds.TYPE_COUNTER:
            found.counts[track].append((at, event.double_counter_value))
        elif event.type == kinds.TYPE_INSTANT:
            found.instants[track].append(Slice(event.name, at, at, notes))
    assert not any(open_slices.values())
    return found


def report(runs: Path, to: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headspace", "report", "--perfetto", str(to), str(runs)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def probed(program: Programs) -> Ran:
    """A run of two epochs with a probe in it."""
    args = ("--steps", 700, "--epochs", 2, "--load-ms", 3, "--compute-ms", 1, "--batch-size", 4)
    env = {"HEADSPACE_MODE": "probe", "HEADSPACE_INTERVAL": "0.1"}
    run = program("loop.py", *args, env=env)
    assert run.exit_code == 0, run.stderr
    return run


def test_slices_and_counters_have_the_values_of_the_records(probed: Ran, tmp_path: Path) -> None:
    done = report(probed.folder, tmp_path / "run.pftrace")
    assert done.returncode == 0, done.stderr
    assert "ui.perfetto.dev" in done.stdout
    trace = shown(tmp_path / "run.pftrace")
    ticks = probed.kind("tick")
    summary = probed.summary()
    assert trace.processes == {"rank 0": ticks[0]["pid"]}

    (run,) = trace.slices["rank 0/run"]
    assert run.name == ticks[0]["run_id"]
    assert run.notes["steady step ms"] == summary["steady_step_mean_ms"]
    assert run.notes["headspace %"] == summary["headspace_pct"]
    assert run.notes["steps"] == summary["steps"]
    began = ticks[0]["time_unix_nano"] - ticks[0]["at_s"] * 1e9
    assert run.start == pytest.approx(began, abs=NEAR_NS)

    # Each entry is one slice, at the time of its tick, within a slice of its phase.
    name = f"rank 0/loop {summary['loop']}"
    of_ticks = [s for s in trace.slices[f"{name}/steps"] if s.name.endswith(("step", "steps"))]
    phases = [s for s in trace.slices[f"{name}/steps"] if s not in of_ticks]
    entries = [
        (tick, entry)
        for tick in ticks
        for entry in sorted(tick["loops"], key=lambda entry: entry["first_step"])
    ]
    assert len(of_ticks) == len(entries)
    for drawn, (tick, entry) in zip(of_ticks, entries):
        assert drawn.notes["steps"] == entry["steps"]
        assert drawn.notes["first step"] == entry["first_step"]
        end = run.start + tick["at_s"] * 1e9
        assert drawn.end <= end + NEAR_NS
        assert drawn.start >= end - tick["interval_s"] * 1e9 - NEAR_NS
        # A slice without a duration may lie between two phases.
        around = [p.name for p in phases if p.start <= drawn.start and drawn.end <= p.end]
        assert entry["phase"] in around
        assert len(around) == 1 or drawn.start == drawn.end

    for what in ("step", "wait", "compute"):
        means = []
        for tick in ticks:
            count = sum(entry[what]["count"] for entry in tick["loops"])
            if count:
                means.append(sum(entry[what]["sum_ms"] for entry in tick["loops"]) / count)
        assert [value for _, value in trace.counts[f"{name}/{what}"]] == pytest.approx(means)
        assert trace.units[f"{name}/{what}"] == "ms"

    memory = "process.memory.usage"
    read = [t["readings"]["process"][memory] for t in ticks if memory in t["readings"]["process"]]
    assert [value for _, value in trace.counts[f"rank 0/process/{memory}"]] == read
    assert trace.units[f"rank 0/process/{memory}"] == "By"
    notices = [notice["code"] for notice in probed.kind("notice")]
    assert [notice.name for notice in trace.instants["rank 0/notices"]] == notices


def overlap(a: Slice, b: Slice) -> float:
    """The common part of two slices, as a share of the shorter one."""
    shorter = min(a.end - a.start, b.end - b.start)
    return (min(a.end, b.end) - max(a.start, b.start)) / shorter


def test_epochs_and_probe_windows_are_at_the_times_of_their_steps(
    probed: Ran, tmp_path: Path
) -> None:
    report(probed.folder, tmp_path / "run.pftrace")
    trace = shown(tmp_path / "run.pftrace")
    name = f"rank 0/loop {probed.summary()['loop']}"

    epochs = trace.slices[f"{name}/epochs"]
    assert [epoch.name for epoch in epochs] == ["epoch 0", "epoch 1"]
    assert [epoch.notes["steps"] for epoch in epochs] == [
        record["steps"] for record in probed.kind("epoch")
    ]
    assert epochs[0].end <= epochs[1].start

    (probe,) = probed.kind("probe")
    windows = trace.slices[f"{name}/probe windows"]
    assert [(w.name.split()[0], w.notes["steps"]) for w in windows] == [
        (window["phase"], window["steps"]) for window in probe["windows"]
    ]
    replayed = [s for s in trace.slices[f"{name}/steps"] if s.name == "replay"]
    for window in windows:
        if window.name.startswith("replay"):
            assert max(overlap(window, steps) for steps in replayed) > 0.5


def test_each_rank_is_a_process_of_the_trace(program: Programs, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for rank in range(2):
        env = {"RANK": str(rank), "WORLD_SIZE": "2"}
        program("loop.py", "--steps", 30, "--load-ms", 1, env=env, runs=runs)
    # Both ranks have this process as their launcher, so they share one folder.
    (folder,) = runs.iterdir()
    assert report(folder, tmp_path / "run.pftrace").returncode == 0
    trace = shown(tmp_path / "run.pftrace")
    assert trace.processes.keys() == {"rank 0", "rank 1"}
    assert len(set(trace.processes.values())) == 2
    assert trace.slices["rank 0/run"][0].end <= trace.slices["rank 1/run"][0].start


def test_a_trace_of_two_runs_is_refused_and_a_failed_write_is_reported(
    program: Programs, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    for _ in range(2):
        program("loop.py", "--steps", 5, runs=runs)
    done = report(runs, tmp_path / "run.pftrace")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`--perfetto` needs exactly one run, but 2 were found" in done.stderr
    assert not (tmp_path / "run.pftrace").exists()

    done = report(next(runs.iterdir()), tmp_path / "no folder" / "run.pftrace")
    assert done.returncode == 1
    assert "cannot write" in done.stderr
