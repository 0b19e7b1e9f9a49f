"""The laboratory of decoders and formats: its results, and the decoders that it leaves out."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

import av
import numpy as np
import pytest

if TYPE_CHECKING:
    from browser import Browser

pytest_plugins = ["browser_fixtures"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))

from decode_lab import child, output, pagecache  # noqa: E402
from decode_lab.access import choose_frames  # noqa: E402
from decode_lab.chart import draw_chart  # noqa: E402
from decode_lab.correctness import check_reader  # noqa: E402
from decode_lab.formats import (  # noqa: E402
    FORMATS,
    Clip,
    Cut,
    Format,
    Frames,
    LabError,
    Sample,
    Stored,
    make_sample,
    read_jpegs,
    read_reference,
    store,
)
from decode_lab.laboratory import Report, usable_loaders  # noqa: E402
from decode_lab.loaders import LOADERS, Loader, NumPy, PyAV, Request  # noqa: E402
from decode_lab.reads import bytes_read  # noqa: E402
from decode_lab.results import Mean, Row, advise, mean_of  # noqa: E402
from decode_lab.wording import describe_workers, format_count  # noqa: E402
from video.clips import find_videos  # noqa: E402


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """One clip of a small video with moving content, in four formats."""
    (bikes,) = [video for video in find_videos() if "bikes" in video.name]
    names = ["h264-gop12", "hevc", "jpeg-burst", "raw-npy"]
    return make_sample([bikes], Cut(1.0, 1, 128), names, tmp_path_factory.mktemp("sample"))


def request(sample: Sample, name: str, indices: tuple[int, ...]) -> Request:
    clip = sample.clips[0]
    return Request(clip, sample.path(clip, name), FORMATS[name].kind, indices)


@pytest.mark.parametrize("name", ["h264-gop12", "hevc", "jpeg-burst", "raw-npy"])
def test_random_access_returns_the_frames_of_a_sequential_read(sample: Sample, name: str) -> None:
    reader = NumPy() if name == "raw-npy" else PyAV()
    reference = read_reference(sample.path(sample.clips[0], name), FORMATS[name].kind)

    for indices in [(0,), (11, 12, 13), (3, 9, 14, 23), (24,), tuple(range(25))]:
        frames = reader.read(request(sample, name, indices))

        assert np.array_equal(frames, reference[list(indices)]), indices


class LateFromFrame20:
    """A decoder that delivers the frame after the one that was asked for, from frame 20 on."""

    def read(self, request: Request) -> Frames:
        shifted = tuple(min(24, index + (index >= 20)) for index in request.indices)
        return PyAV().read(replace(request, indices=shifted))


def test_a_decoder_that_is_off_by_one_is_found_and_the_frame_is_named(sample: Sample) -> None:
    clip = sample.clips[0]
    reference = read_reference(sample.path(clip, "h264-gop12"), "video")
    cases = [(request(sample, "h264-gop12", indices), reference) for indices in [(3, 4), (19, 20)]]

    healthy, faulty = check_reader(PyAV(), cases), check_reader(LateFromFrame20(), cases)

    assert (healthy.frames, healthy.wrong_frames, healthy.faults) == (4, 0, [])
    assert faulty.wrong_frames == 1
    assert faulty.faults == [f"{clip.name}: frame 21 was delivered for frame 20 (+1)"]


def test_a_still_scene_and_an_identical_frame_are_no_fault() -> None:
    clip = Clip("still", 4, 25.0, 8, 8)
    still = np.full((4, 8, 8, 3), 90, np.uint8)

    class Still:
        def read(self, request: Request) -> Frames:
            return still[: len(request.indices)]

    check = check_reader(Still(), [(Request(clip, Path("still"), "raw", (1, 3)), still)])

    assert (check.compared_frames, check.wrong_frames) == (2, 0)


def test_a_missing_library_is_left_out_with_its_reason_and_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = Loader("absent", PyAV, "no_such_decoder", "no-such-decoder")
    monkeypatch.setitem(LOADERS, "absent", absent)
    report = Report("a machine")

    usable = usable_loaders(["absent", "pyav"], False, report)

    assert [loader.name for loader in usable] == ["pyav"]
    assert report.notes == [
        "absent: left out. not installed: `--install`, or `python -m pip install no-such-decoder`"
    ]


def test_nvdec_is_refused_with_a_reason_without_a_gpu() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("platform: this machine has an NVIDIA GPU")
    report = Report("a machine")

    assert usable_loaders(["torchcodec-cuda", "spdl-nvdec"], True, report) == []
    assert len(report.notes) == 2
    assert all("NVDEC needs an NVIDIA GPU" in note for note in report.notes)


def test_the_cold_share_is_what_mincore_says(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(64 * 4096 + 1))
    pagecache.load([file])
    assert pagecache.count_pages(file) == (65, 65)
    assert pagecache.cold_share([file]) == 0.0

    pagecache.evict([file])

    cached, pages = pagecache.count_pages(file)
    assert pages == 65
    assert pagecache.cold_share([file]) == pytest.approx(1 - cached / pages)
    if cached == pages:
        pytest.skip("platform: this file system keeps its pages in memory")
    pagecache.load([file])
    assert pagecache.cold_share([file]) == 0.0


def test_a_burst_returns_only_the_images_asked_for_and_a_cut_one_is_refused(
    sample: Sample, tmp_path: Path
) -> None:
    burst = sample.path(sample.clips[0], "jpeg-burst")
    every = read_jpegs(burst, "burst", range(25))

    assert read_jpegs(burst, "burst", [2, 3, 7]) == [every[2], every[3], every[7]]
    assert all(image.startswith(b"\xff\xd8") and image.endswith(b"\xff\xd9") for image in every)
    cut = tmp_path / "cut.jpegs"
    cut.write_bytes(burst.read_bytes()[:-4])
    with pytest.raises(ValueError, match="its index is missing"):
        read_jpegs(cut, "burst", [0])


def test_access_patterns_stay_inside_the_clip() -> None:
    clip, rng = Clip("clip", 20, 25.0, 8, 8), random.Random(0)

    assert choose_frames(clip, "whole", 4, rng) == tuple(range(20))
    for _ in range(50):
        start, *rest = choose_frames(clip, "subclip", 4, rng)
        assert rest == [start + 1, start + 2, start + 3]
        assert 0 <= start <= 16
        assert [index // 5 for index in choose_frames(clip, "sparse", 4, rng)] == [0, 1, 2, 3]
    assert choose_frames(clip, "subclip", 99, rng) == tuple(range(20))


def row(name: str, rate: float, cpu: float, disk: int, workers: int = 1, wrong: int = 0) -> Row:
    return Row(
        format=name,
        loader="pyav",
        pattern="subclip",
        cache="warm",
        size=0,
        pool="threads",
        workers=workers,
        clips_per_s=Mean(rate, 2.0),
        frames_per_s=Mean(rate * 16, 32.0),
        cpu_s_per_clip=cpu,
        requested_bytes_per_clip=1e5,
        storage_bytes_per_clip=0.0,
        memory_bytes=1e8,
        others_cores=0.0,
        disk_bytes=disk,
        disk_ratio=disk / 100,
        cold_share=0.0,
        errors=0,
        clips=100,
        error=None,
        wrong_frames=wrong,
        checked_frames=100,
    )


def test_advice_names_only_correct_combinations_that_reach_the_rate_and_are_not_beaten() -> None:
    rows = [
        row("slow", 51.0, 0.02, 100),  # Its interval reaches below the target.
        row("video", 60.0, 0.02, 100, workers=3),
        row("images", 70.0, 0.01, 400),
        row("beaten", 65.0, 0.02, 500),
        row("wrong", 900.0, 0.001, 10, wrong=1),
    ]

    (advice,) = advise(rows, 50.0)

    assert [option.format for option in advice.options] == ["images", "video"]
    (none,) = advise(rows, 1000.0)
    assert none.options == ()
    assert none.fastest is rows[2]


def test_advice_names_a_loader_and_a_format_once_with_the_fewest_workers() -> None:
    one, two = row("raw-npy", 159.0, 0.0004, 7600), row("raw-npy", 880.0, 0.0003, 7600, workers=2)
    other = replace(one, loader="other", cpu_s_per_clip=0.0005, disk_bytes=100)

    assert advise([two, one, other], 100.0)[0].options == (one, other)
    assert advise([two, one, other], 200.0)[0].options == (two,)
    # The interval of one worker reaches below the target.
    assert advise([two, one], 158.0)[0].options == (two,)
    # Between threads and processes, the pool with less CPU time is advised.
    processes = replace(one, pool="processes", cpu_s_per_clip=0.004)
    assert advise([processes, one, two], 100.0)[0].options == (one,)


def test_numbers_have_no_exponent() -> None:
    texts = [output.ratio_text(ratio) for ratio in (0.2256, 3.5, 99.96, 130.4, 12345.0)]
    assert texts == ["0.226x", "3.5x", "100x", "130x", "12345x"]
    assert [output.bytes_text(n) for n in (999_400.0, 999_900.0, 4e12)] == [
        "999 kB",
        "1 MB",
        "4000 GB",
    ]

    words = output.advice_text(advise([row("raw-npy", 1410.0, 0.001, 13_000)], 60.0))

    assert words.endswith("(1410 ± 2 clips/s, 0.06 cores, 130x the disk).")


def chart_of(rows: list[Row], target: float | None = None) -> list[ElementTree.Element]:
    """The panels of the chart, and then the entries of its legend."""
    return [*ElementTree.fromstring(draw_chart(rows, target)).iterfind("{*}g")]


def texts_of(element: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in element.iterfind("{*}text")]


def test_all_panels_of_the_chart_have_the_same_axes_and_the_target_rate() -> None:
    warm, cold = row("raw-npy", 1400.0, 0.001, 13_000), row("hevc", 100.0, 0.02, 20)

    panels = chart_of([warm, replace(cold, cache="cold")], target=5000.0)

    first, second, *legend = panels
    assert "5000" in texts_of(first)
    assert [t for t in texts_of(first) if t[0].isdigit()] == [
        t for t in texts_of(second) if t[0].isdigit()
    ]
    assert texts_of(legend[-1]) == ["target 5000 clips/s"]
    dashed = [panel.findall("{*}path[@stroke-dasharray='6 3']") for panel in (first, second)]
    assert [len(lines) for lines in dashed] == [1, 1]
    assert dashed[0][0].get("d") == dashed[1][0].get("d")


def test_names_of_formats_stand_above_all_points_and_beside_each_other() -> None:
    sizes = {"hevc": 18, "av1": 24, "vp9": 31, "webm": 31, "h264-gop250": 34, "raw-npy": 7600}
    rows = [row(name, 60.0 + size, 0.02, size) for name, size in sizes.items()]

    panel = chart_of(rows)[0]

    turned = [text for text in panel.iterfind("{*}text") if text.get("transform")]
    assert {text.text for text in turned} == sizes.keys()
    places = [
        [float(part) for part in re.findall(r"[\d.]+", text.get("transform", ""))]
        for text in turned
    ]
    highest = min(float(circle.get("cy", 0)) for circle in panel.iterfind(".//{*}circle"))
    assert all(y < highest - 4 for _, y, _ in places)
    # Two lines of text, turned by 45 degrees.
    assert all(b[0] - a[0] >= 15.9 for a, b in itertools.pairwise(places))


def places_of(panel: ElementTree.Element) -> list[float]:
    """The horizontal positions of the points, from left to right."""
    return sorted(float(circle.get("cx", 0)) for circle in panel.iterfind(".//{*}circle"))


def test_loaders_on_one_format_are_side_by_side_around_its_dotted_line() -> None:
    one = row("hevc", 60.0, 0.02, 18)
    rows = [replace(one, loader=name) for name in ("decord", "opencv", "pyav", "spdl")]

    panel = chart_of(rows)[0]

    places = places_of(panel)
    (dotted,) = panel.findall("{*}path[@stroke-dasharray='1 3']")
    line = float(re.findall(r"L([\d.]+)", dotted.get("d", ""))[0])
    assert [b - a for a, b in itertools.pairwise(places)] == pytest.approx([5.0] * 3, abs=0.11)
    assert (places[0] + places[-1]) / 2 == pytest.approx(line, abs=0.11)


def test_formats_of_the_same_size_do_not_hide_each_other() -> None:
    rows = [row("jpeg-burst", 60.0, 0.02, 320), row("jpeg-folder", 60.0, 0.02, 320)]

    first, second = places_of(chart_of(rows)[0])

    assert second - first == pytest.approx(2.5, abs=0.11)


def test_a_single_panel_is_as_wide_as_two() -> None:
    warm = [row("raw-npy", 1400.0, 0.001, 13_000), row("hevc", 100.0, 0.02, 20)]
    cold = [replace(entry, cache="cold") for entry in warm]

    single, double = (ElementTree.fromstring(draw_chart(rows)) for rows in (warm, warm + cold))

    assert single.get("width") == double.get("width") == "990"
    widths = []
    for picture in (single, double):
        first, last = places_of(picture.findall("{*}g")[0])
        widths.append(last - first)
    assert widths[0] > 2 * widths[1]


def test_a_chart_without_a_successful_combination_is_empty() -> None:
    failed = replace(row("hevc", 0.0, 0.02, 20), errors=100)

    assert chart_of([failed])[0].findall(".//{*}title") == []


def page_of(rows: list[Row], notes: list[str]) -> str:
    clips = [Clip(f"clip-{k:03}", 50, 29.97003, 602, 256, "own/a video.mp4") for k in range(2)]
    stored = Stored("hevc", 328_000, 2.7, 34.9), Stored("raw-npy", 137_000_000, 0.01, None)
    sample = Sample(Path("sample"), tuple(clips), stored, 1_800_000, {}, {})
    return output.page("a machine", sample, draw_chart(rows), rows, notes, "")


def test_no_column_of_the_page_is_cut_off(browser: Browser, tmp_path: Path) -> None:
    wide = replace(row("h264-gop250", 1562.3, 0.0123, 34), loader="imageio-ffmpeg")
    wide = replace(wide, pool="processes", workers=12, clips=2304, clips_per_s=Mean(1562.3, 120.9))
    (tmp_path / "results.html").write_text(page_of([wide], []))

    browser.look(1300, 900)
    browser.open((tmp_path / "results.html").as_uri())

    tables = "[...document.querySelectorAll('table')].map(t => [t.scrollWidth, t.clientWidth])"
    widths = browser.run(f"return {tables}")
    assert len(widths) == 3
    assert all(content <= room for content, room in widths)
    assert "own/a video.mp4 602 x 256 29.97 2" in browser.text("table:last-of-type")
    formats = browser.text("table:nth-of-type(2)")
    assert formats.startswith("format disk of source PSNR encoding")
    assert "hevc 328 kB 0.182x 34.9 dB 2.7 s" in formats
    assert "raw-npy 137 MB 76.1x identical 0.0 s" in formats


def test_backticks_become_code_on_the_page() -> None:
    page = page_of([row("hevc", 20.0, 0.02, 20)], ["a <b>: `--install`, or `pip install x`"])

    assert "<li>a &lt;b&gt;: <code>--install</code>, or <code>pip install x</code></li>" in page


def test_a_count_of_one_has_the_singular() -> None:
    assert [format_count(n, "format") for n in (0, 1, 2)] == ["0 formats", "1 format", "2 formats"]
    assert describe_workers(1, "threads") == "1 thread"
    assert describe_workers(1, "processes") == "1 process"
    assert describe_workers(2, "processes") == "2 processes"


def test_the_interval_of_a_mean_is_that_of_student() -> None:
    # Mean 2, standard deviation 1, t(2) = 4.303.
    assert mean_of([1.0, 2.0, 3.0]) == Mean(2.0, pytest.approx(4.303 / 3**0.5))


def run_lab(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "decode_lab"), *args],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_small_run_writes_table_records_chart_and_page(tmp_path: Path) -> None:
    shape = ["--clips", "2", "--seconds", "0.5", "--height", "96", "--rounds", "2"]
    what = ["--formats", "h264-gop12,jpeg-burst", "--loaders", "pyav", "--cache", "cold"]

    done = run_lab("--work", str(tmp_path), *shape, *what, "--target-rate", "1", "--frames", "4")

    assert done.returncode == 0, done.stderr
    assert "preparing 2 clips in 2 formats\n" in done.stderr
    assert "pyav on h264-gop12, subclip, cold, 1 thread\n" in done.stderr
    # The page on the laboratory lists these. Links to FFmpeg are only needed if the system has none.
    left = {path.name for path in tmp_path.iterdir()} - {"ffmpeg"}
    assert left == {"results.jsonl", "results.svg", "results.html", "sample", "runs"}
    # Whether the rate is reached depends on the machine.
    assert "1 clips/s (random subclips, cold page cache, the size of the file)" in done.stdout
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    combinations = [line for line in lines if line["kind"] == "combination"]
    assert {entry["format"] for entry in combinations} == {"h264-gop12", "jpeg-burst"}
    for entry in combinations:
        assert entry["errors"] == 0
        assert entry["wrong_frames"] == 0
        assert entry["clips_per_s"]["value"] > 0
        assert entry["cpu_s_per_clip"] > 0
        assert entry["requested_bytes_per_clip"] > 0
        assert entry["memory_bytes"] > 1e6
        assert 0 <= entry["cold_share"] <= 1
    picture = ElementTree.parse(tmp_path / "results.svg").getroot()
    assert len(picture.findall(".//{*}title")) == 2
    page = (tmp_path / "results.html").read_text()
    assert "<h2>Formats</h2><table>" in page.replace("\n", "")
    assert '<td class="left">jpeg-burst</td>' in page


def write_video(path: Path, width: int = 96, height: int = 64, frames: int = 30) -> None:
    """A video of moving noise at 25 frames per second."""
    noise = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    moving = np.stack([np.roll(noise, 3 * number, axis=1) for number in range(frames)])
    path.parent.mkdir(exist_ok=True)
    store(path, FORMATS["h264-gop12"], moving, 25.0)


class Cat:
    """Runs a program for each clip. It reads the whole file and writes it to a pipe."""

    def read(self, request: Request) -> Frames:
        done = subprocess.run(["cat", str(request.path)], capture_output=True, check=True)
        frames: Frames = np.load(io.BytesIO(done.stdout))[list(request.indices)]
        return frames


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_reads_of_a_program_that_runs_for_each_clip_are_counted_and_its_pipe_is_not(
    pool: Literal["threads", "processes"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "large.mp4", 192, 128)
    write_video(tmp_path / "small.mp4", 96, 64)
    videos = sorted(tmp_path.glob("*.mp4"))
    sample = make_sample(videos, Cut(1.0, 2, 128), ["raw-npy"], tmp_path / "sample")
    monkeypatch.setitem(LOADERS, "cat", Loader("cat", Cat, "numpy", "numpy", ("raw",), pipe=True))
    runs = str(tmp_path / "runs")

    measured = child.measure(
        child.Spec(str(sample.folder), runs, "raw-npy", "cat", "sparse", pool=pool, rounds=2)
    )

    assert measured.errors == 0
    read = measured.requested_bytes_per_clip
    size = sample.stored[0].bytes / 2
    # `cat` also reads the headers of its libraries.
    assert read is not None
    assert size < read < size + 32_000


def test_bytes_of_a_process_that_does_not_exist_are_unknown() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert bytes_read([ended.pid], piped=False) is None


def write_audio(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        for number in range(10):
            silence = np.zeros((1, 1024), np.float32)
            frame = av.AudioFrame.from_ndarray(silence, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 44100, number * 1024
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def damage_keyframe(whole: Path, target: Path) -> None:
    """A copy of a video whose first keyframe after the start has wrong bytes. FFmpeg conceals them."""
    with av.open(str(whole)) as container:
        keyframes = [bytes(p) for p in container.demux(video=0) if p.is_keyframe]
    data = bytearray(whole.read_bytes())
    middle = data.index(keyframes[1]) + len(keyframes[1]) // 2
    for place in range(middle, middle + 64):
        data[place] ^= 0x55
    target.write_bytes(data)


def test_videos_that_cannot_be_read_are_left_out_with_the_reason(tmp_path: Path) -> None:
    write_video(tmp_path / "a" / "same.mp4")
    write_video(tmp_path / "b" / "same.mp4", height=48)
    write_video(tmp_path / "short.mp4", frames=5)
    write_audio(tmp_path / "audio.mp4")
    (tmp_path / "text.mp4").write_text("no video")
    damage_keyframe(tmp_path / "a" / "same.mp4", tmp_path / "damaged.mp4")
    videos = sorted(tmp_path.rglob("*.mp4"))

    sample = make_sample(videos, Cut(1.0, 9, 128), ["jpeg-folder"], tmp_path / "sample")

    # Two videos may have the same name.
    assert [(clip.name, clip.height, clip.video) for clip in sample.clips] == [
        ("same-000", 64, str(tmp_path / "a" / "same.mp4")),
        ("same~2-000", 48, str(tmp_path / "b" / "same.mp4")),
    ]
    assert sample.unread == {
        str(tmp_path / "audio.mp4"): "left out. It has no video stream",
        str(tmp_path / "damaged.mp4"): "left out. FFmpeg reports damage in its frame 12",
        str(tmp_path / "short.mp4"): "left out. It is shorter than a clip of 1 s",
        str(
            tmp_path / "text.mp4"
        ): "left out. FFmpeg cannot read it: Invalid data found when processing input",
    }
    # An earlier run's sample is read with its reasons.
    assert make_sample(videos, Cut(1.0, 9, 128), ["jpeg-folder"], tmp_path / "sample") == sample


def test_a_run_names_the_videos_that_it_used_and_those_that_it_did_not_reach(
    tmp_path: Path,
) -> None:
    for name in "abc":
        write_video(tmp_path / "videos" / f"{name}.mp4")
    what = ["--data", str(tmp_path / "videos"), "--formats", "raw-npy", "--loaders", "numpy"]
    how = ["--clips", "2", "--seconds", "0.5", "--rounds", "2"]

    done = run_lab("--work", str(tmp_path / "work"), *what, *how)

    assert done.returncode == 0, done.stderr
    a, b, c = (str(tmp_path / "videos" / f"{name}.mp4") for name in "abc")
    used = [line.split() for line in done.stdout.splitlines() if line.startswith((a, b, c))]
    assert used == [[video, "96", "x", "64", "25", "1"] for video in (a, b)]
    note = f"1 video not used, because `--clips 2` was reached: {c}"
    assert f"note: {note}\n" in done.stdout
    lines = map(json.loads, (tmp_path / "work" / "results.jsonl").read_text().splitlines())
    assert [line["video"] for line in lines if line["kind"] == "clip"] == [a, b]
    page = (tmp_path / "work" / "results.html").read_text()
    assert all(video in page for video in (a, b, c))


def test_the_list_describes_the_videos_of_the_folder(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4")
    write_audio(tmp_path / "b.mp4")
    (tmp_path / "c.MKV").write_text("no video")

    done = run_lab("--list", "--data", str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(
        f"videos   {tmp_path}/a.mp4: h264, 96 x 64, 25 frames/s, 1.2 s\n"
        f"         {tmp_path}/b.mp4: no video stream\n"
        f"         {tmp_path}/c.MKV: FFmpeg cannot read it: Invalid data found when processing input\n"
    )


def test_without_any_clip_each_video_is_named_with_its_reason(tmp_path: Path) -> None:
    write_video(tmp_path / "short.mp4", frames=5)

    with pytest.raises(
        LabError, match=r"use a smaller `--seconds`, or other videos\n.*short\.mp4: left out"
    ):
        make_sample([tmp_path / "short.mp4"], Cut(1.0), ["raw-npy"], tmp_path / "sample")


def test_processes_read_the_same_clips_as_threads(tmp_path: Path) -> None:
    write_video(tmp_path / "videos" / "odd.mp4", 98, 66)
    what = ["--data", str(tmp_path / "videos"), "--formats", "raw-npy", "--loaders", "numpy"]
    how = ["--seconds", "0.5", "--rounds", "2", "--workers", "2", "--pool", "processes,threads"]

    done = run_lab("--work", str(tmp_path / "work"), *what, *how, "--patterns", "whole,sparse")

    assert done.returncode == 0, done.stderr
    assert "clips in 1 format\n" in done.stderr
    assert "numpy on raw-npy, whole, warm, 2 threads\n" in done.stderr
    text = (tmp_path / "work" / "results.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    combinations = [line for line in lines if line["kind"] == "combination"]
    measured = [(entry["pattern"], entry["pool"]) for entry in combinations]
    assert measured == [(p, kind) for p in ("whole", "sparse") for kind in ("processes", "threads")]
    assert "2 processes" in done.stdout
    for entry in combinations:
        assert (entry["errors"], entry["wrong_frames"]) == (0, 0)
        assert entry["clips_per_s"]["value"] > 0
        # The reads of the workers count too. Frames from pipes are not reads of the clip.
        assert entry["memory_bytes"] > 1e6
        assert entry["requested_bytes_per_clip"] < 12 * 66 * 98 * 3 * 1.5
        frames = 12 if entry["pattern"] == "whole" else 8
        rate = entry["frames_per_s"]["value"] / entry["clips_per_s"]["value"]
        assert rate == pytest.approx(frames, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--formats", "mpeg"], "no 'mpeg': choose from h264-gop1,"),
        (["--workers", "0"], "0 is less than 1"),
        (["--data", "{empty}"], "no video below"),
        (["--data", "{empty}/missing"], "is not a folder: pass the folder of your videos"),
    ],
)
def test_bad_input_is_refused_with_the_way_out(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    arguments = [text.format(empty=tmp_path) for text in arguments]

    done = run_lab("--work", str(tmp_path / "work"), *arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_format_without_an_encoder_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Format("future", "video", ".mp4", "h299")
    monkeypatch.setitem(FORMATS, "future", unknown)
    sample = make_sample(find_videos()[:1], Cut(0.5, 1, 64), ["raw-npy", "future"], tmp_path)

    assert sample.left_out == {"future": "PyAV's FFmpeg has no encoder `h299`"}
    assert [stored.format for stored in sample.stored] == ["raw-npy"]
    assert not (tmp_path / "future").exists()
