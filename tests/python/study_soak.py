"""A training of hours with steps of 1 ms while everything around it fails: does anything grow, and is a step lost?

    python tests/python/study_soak.py [--minutes 30] [--warm-up-minutes 10] [--interval 250ms]

Two programs run at the same time, one with headspace and one without. Both fork children that exit, fail or are killed, and
both are stopped and continued at random times. headspace has three destinations: the run folder on a disk that is
sometimes full, Prometheus, which is scraped in a loop, and a collector that in turns answers, answers slowly, hangs,
refuses connections, and answers 503. `headspace report` reads the records meanwhile.

The study prints a table and the checks. The exit code is 1 if a check fails. headspace keeps histories of fixed sizes, which
fill in the first ten minutes. This time is the warm-up. If it is shorter, the check of the memory fails.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from running import (
    PROGRAMS,
    Record,
    Runs,
    clean_environment,
    free_port,
    of_kind,
    read_records,
    steps_in_ticks,
)
from soak_disturbances import (
    Collector,
    Reports,
    Scrapes,
    disk_that_fills,
    fill_sometimes,
    repeatedly,
    stop_sometimes,
)
from soak_measurements import (
    Sample,
    growth_per_hour,
    median_of_ends,
    medians_over_time,
    share_of_core,
    take_sample,
)

#: The check fails if the whole interval of the growth lies above this value, in KiB per hour (168 MiB in a week).
MAX_GROWTH_KIB = 1024

#: Seconds between two samples.
SAMPLE_S = 1.0

#: Time limit, in seconds, for the end of a program.
END_S = 120.0

# Values of a sample.
anonymous = attrgetter("anonymous_kib")
resident = attrgetter("resident_kib")
descriptors = attrgetter("descriptors")
threads = attrgetter("threads")
cpu = attrgetter("cpu_s")
own_cpu = attrgetter("own_cpu_s")


@dataclass
class Trainer:
    """One of the two programs."""

    process: subprocess.Popen[str]
    samples: list[Sample]

    @staticmethod
    def start(until: Path, folder: Path, settings: dict[str, str]) -> Trainer:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "soak.py"), str(until)],
            env={**clean_environment(), **settings},
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return Trainer(process, [])

    def sample(self, at_s: float) -> None:
        found = take_sample(self.process.pid, at_s)
        if found is not None:
            self.samples.append(found)

    def finish(self) -> tuple[dict[str, int], str]:
        """The counts that the program prints, and what it wrote to stderr.

        Raises:
            RuntimeError: If it failed, or did not end in time.
        """
        try:
            out, err = self.process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise RuntimeError(f"still running {END_S:g} s after the end\n{out}\n{err}") from None
        if self.process.returncode != 0:
            raise RuntimeError(f"ended with {self.process.returncode}\n{out}\n{err}")
        words = out.split()
        return dict(zip(words[::2], map(int, words[1::2]))), err


@dataclass
class Soak:
    """The results of a study."""

    watched: Trainer
    plain: Trainer
    watched_counts: dict[str, int]
    plain_counts: dict[str, int]
    stderr: str
    records: list[Record]
    collector: Collector
    scrapes: Scrapes
    reports: Reports
    disk: str


def soak(folder: Path, seconds: float, interval: str) -> Soak:
    """Runs both programs with all disturbances."""
    until, collector = folder / "until", Collector()
    scrapes = Scrapes(port := free_port())
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(disk_that_fills(folder / "disk"))
        reports = Reports(runs := disk.folder / "runs")
        settings = {
            "HEADSPACE_DIR": str(runs),
            "HEADSPACE_INTERVAL": interval,
            "HEADSPACE_EXPORT": f"otlp,prometheus:{port}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        watched = Trainer.start(until, folder, settings)
        plain = Trainer.start(until, folder, {"HEADSPACE": "0"})
        stack.callback(kill_if_running, watched, plain)
        pid = watched.process.pid
        works: list[Callable[[threading.Event], None]] = [
            collector.take_turns(seconds=12),
            fill_sometimes(disk, pid, full_s=5, free_s=20),
            stop_sometimes([pid, plain.process.pid], longest_s=2, mean_pause_s=15),
            scrapes.work,
            reports.work,
        ]
        with contextlib.ExitStack() as disturbances:
            for work in works:
                disturbances.enter_context(repeatedly(work))
            sample_both(watched, plain, seconds)
        until.touch()
        counts, stderr = watched.finish()
        plain_counts, _ = plain.finish()
        collector.close()
        records = all_records(Runs(runs).folder)
    found = (watched, plain, counts, plain_counts, stderr, records)
    return Soak(*found, collector, scrapes, reports, disk.kind)


def sample_both(watched: Trainer, plain: Trainer, seconds: float) -> None:
    """Samples both programs until the time is over, or one of them has ended."""
    begin = time.monotonic()
    while (at_s := time.monotonic() - begin) < seconds:
        watched.sample(at_s)
        plain.sample(at_s)
        if watched.process.poll() is not None or plain.process.poll() is not None:
            return
        time.sleep(SAMPLE_S)


def kill_if_running(*trainers: Trainer) -> None:
    for trainer in trainers:
        if trainer.process.poll() is None:
            trainer.process.kill()
            trainer.process.communicate()


def all_records(folder: Path) -> list[Record]:
    """The records of rank 0, from all of its files. Each line must be a whole record."""
    parts = sorted(folder.glob("rank0.*.jsonl"))
    return [record for path in [*parts, folder / "rank0.jsonl"] for record in read_records(path)]


def print_table(found: Soak, warm_up_s: float) -> None:
    """Prints the measurements of both programs after the warm-up."""
    columns = [
        [sample for sample in trainer.samples if sample.at_s >= warm_up_s]
        for trainer in (found.watched, found.plain)
    ]
    rows: list[tuple[str, Callable[[list[Sample]], str]]] = [
        (
            "anonymous memory in ten parts of the time, KiB",
            lambda s: medians_over_time(s, anonymous),
        ),
        ("its growth, KiB/h", lambda s: str(growth_per_hour(s, anonymous))),
        ("growth of resident memory, KiB/h", lambda s: str(growth_per_hour(s, resident))),
        ("descriptors", lambda s: "{:.0f} → {:.0f}".format(*median_of_ends(s, descriptors))),
        ("threads", lambda s: "{:.0f} → {:.0f}".format(*median_of_ends(s, threads))),
        ("CPU time of the process, of a core", lambda s: f"{share_of_core(s, cpu):.2%}"),
        ("CPU time of headspace's threads", lambda s: f"{share_of_core(s, own_cpu):.2%}"),
    ]
    print("| after the warm-up | with headspace | without |")
    print("|---|---|---|")
    for name, text in rows:
        print(f"| {name} | {text(columns[0])} | {text(columns[1])} |")
    for name in ("steps", "forks"):
        print(f"| {name} | {found.watched_counts[name]:,} | {found.plain_counts[name]:,} |")
    summary = of_kind(found.records, "summary")[-1]
    agent = [tick["readings"].get("agent", {}) for tick in of_kind(found.records, "tick")]
    exports = max((one.get("headspace.agent.dropped.exports", 0) for one in agent), default=0)
    print(
        f"\nrecords: {len(found.records):,}; dropped: {summary['dropped']}, {exports:.0f} exports"
    )
    print(f"disk: {found.disk}; requests to the collector: {dict(found.collector.requests)}")
    print(f"scrapes: {found.scrapes.answered} answered, {found.scrapes.failed} failed")
    print(f"reports: {found.reports.read} read, {len(found.reports.errors)} failed")


def checks(found: Soak, warm_up_s: float) -> dict[str, bool]:
    """Each condition, and whether it holds."""
    watched, plain = (
        [sample for sample in trainer.samples if sample.at_s >= warm_up_s]
        for trainer in (found.watched, found.plain)
    )
    more = growth_per_hour(watched, anonymous) - growth_per_hour(plain, anonymous)
    summary = of_kind(found.records, "summary")[-1]
    ticks = [tick["at_s"] for tick in of_kind(found.records, "tick")]
    lost = summary["dropped"]["records"]
    made, in_ticks = found.watched_counts["steps"], steps_in_ticks(found.records, "train")

    def is_flat(value: Callable[[Sample], float]) -> bool:
        first, last = median_of_ends(watched, value)
        return last <= first + 1

    return {
        f"memory grows by less than {MAX_GROWTH_KIB} KiB/h more than without headspace ({more})": (
            more.slope - more.half < MAX_GROWTH_KIB
        ),
        "the number of descriptors does not grow": is_flat(descriptors),
        "the number of threads does not grow": is_flat(threads),
        f"every step is counted ({summary['steps']:,} of {made:,})": summary["steps"] == made,
        f"the ticks have all steps, or records were dropped ({in_ticks:,}; {lost} records)": (
            in_ticks == made or (lost > 0 and in_ticks < made)
        ),
        "the last record is the summary of a finished run": (
            found.records[-1]["kind"] == "summary" and summary["state"] == "finished"
        ),
        "ticks are in order": ticks == sorted(ticks),
        "no child of the program ended wrongly or hung": not any(
            counts[name]
            for counts in (found.watched_counts, found.plain_counts)
            for name in ("wrong", "hung")
        ),
        "scrapes are answered": found.scrapes.answered > 0,
        "each report can be read": found.reports.read > 0 and not found.reports.errors,
        "the verdict is printed once": found.stderr.count("headspace  ") == 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument(
        "--warm-up-minutes", type=float, help="by default 10, and at most half of the time"
    )
    parser.add_argument("--interval", default="250ms", help="time between two ticks")
    args = parser.parse_args()
    warm_up_s = 60 * (args.warm_up_minutes or min(10, args.minutes / 2))
    with tempfile.TemporaryDirectory() as name:
        found = soak(Path(name), 60 * args.minutes, args.interval)
    print_table(found, warm_up_s)
    results = checks(found, warm_up_s)
    print()
    for what, holds in results.items():
        print(f"{'ok  ' if holds else 'FAIL'}  {what}")
    for error in found.reports.errors[:3]:
        print(f"\n{error}")
    if not all(results.values()):
        print(f"\n{found.stderr}")
        sys.exit(1)


if __name__ == "__main__":
    main()
