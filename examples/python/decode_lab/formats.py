"""Cuts videos into clips of a few seconds and stores each clip in every format.

All formats hold the same frames at the same resolution. Only the encoding and the layout on disk differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
from numpy.typing import NDArray

from .pagecache import files_of
from .wording import format_count

Frames = NDArray[np.uint8]
Kind = Literal["video", "burst", "folder", "raw"]


class LabError(ValueError):
    """The input cannot be used. The message says what to do."""


@dataclass(frozen=True)
class Format:
    """One way to store a clip."""

    name: str
    kind: Kind
    suffix: str
    encoder: str = ""
    options: dict[str, str] = field(default_factory=dict)
    gop: int = 250
    """Maximum number of frames from one keyframe to the next."""


def find_missing_encoder(fmt: Format) -> str | None:
    """The reason why this machine cannot write a format. None if it can."""
    if fmt.encoder:
        try:
            av.Codec(fmt.encoder, "w")
        except (av.FFmpegError, ValueError):
            return f"PyAV's FFmpeg has no encoder `{fmt.encoder}`"
    return None


def _x264(gop: int) -> Format:
    options = {"preset": "medium", "crf": "23", "threads": "2"}
    return Format(f"h264-gop{gop}", "video", ".mp4", "libx264", options, gop)


# All encoders use constant quality, with their default or the value that their documentation recommends.
_VP9 = {"crf": "32", "b": "0", "deadline": "good", "cpu-used": "4", "threads": "2"}
FORMATS = {
    fmt.name: fmt
    for fmt in (
        _x264(1),
        _x264(12),
        _x264(250),
        Format(
            "hevc",
            "video",
            ".mp4",
            "libx265",
            {"preset": "medium", "crf": "28", "x265-params": "log-level=error:pools=2"},
        ),
        Format("vp9", "video", ".mp4", "libvpx-vp9", _VP9, 128),
        Format("webm", "video", ".webm", "libvpx-vp9", _VP9, 128),
        Format("av1", "video", ".mp4", "libsvtav1", {"preset": "8", "crf": "35"}, 160),
        Format("jpeg-burst", "burst", ".jpegs", "mjpeg"),
        Format("jpeg-folder", "folder", "", "mjpeg"),
        Format("raw-npy", "raw", ".npy"),
    )
}
#: Quantiser of the JPEG encoder, from 2 (best) to 31. 4 is close to quality 90 of other encoders.
_JPEG_QUANTISER = 4


@dataclass(frozen=True)
class Clip:
    """Facts about a clip, as in the index of a data set."""

    name: str
    frames: int
    rate: float
    width: int
    height: int
    video: str = ""
    """Path of the source video."""


@dataclass(frozen=True)
class Stored:
    """Size, quality and encoding time of the whole sample in one format."""

    format: str
    bytes: int
    encode_s: float
    psnr_db: float | None
    """Mean PSNR against the frames before encoding. None if they are identical."""


@dataclass(frozen=True)
class Sample:
    """The clips in a work folder, in all formats that could be written."""

    folder: Path
    clips: tuple[Clip, ...]
    stored: tuple[Stored, ...]
    source_bytes: int
    """Bytes of the source videos that belong to the clips, estimated from the share of the frames."""
    left_out: dict[str, str]
    """Formats that could not be written, with the reason."""
    unread: dict[str, str]
    """Videos that gave no clips, or not all of their clips, with the reason."""

    def path(self, clip: Clip, format_name: str) -> Path:
        """The file or folder of a clip."""
        return self.folder / format_name / f"{clip.name}{FORMATS[format_name].suffix}"

    def files(self, format_name: str) -> list[Path]:
        """All files of a format."""
        return [file for clip in self.clips for file in files_of(self.path(clip, format_name))]


@dataclass(frozen=True)
class Cut:
    """How clips are cut from the videos."""

    seconds: float = 2.0
    clips: int = 8
    height: int = 256
    """Height of the stored frames. Smaller videos keep their height."""


def make_sample(videos: Sequence[Path], cut: Cut, names: Sequence[str], folder: Path) -> Sample:
    """Stores the clips in each format. If an earlier run stored the same ones in `folder`, uses them.

    Raises:
        LabError: If no clip can be cut.
    """
    key = _key(videos, cut)
    manifest = folder / "sample.json"
    if manifest.is_file():
        known = json.loads(manifest.read_text())
        if known["key"] == key and set(names) <= {*known["stored"], *known["left_out"]}:
            return _load(folder, known, names)
    folder.mkdir(parents=True, exist_ok=True)
    clips: list[Clip] = []
    made: dict[str, Stored] = {}
    problems = {name: find_missing_encoder(FORMATS[name]) for name in names}
    left_out = {name: problem for name, problem in problems.items() if problem}
    unread: dict[str, str] = {}
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
        if name not in left_out:
            (folder / name).mkdir()
    totals = {name: [0.0, 0.0, 0.0] for name in names}
    source_bytes = 0.0
    for clip, frames, share in _cut(videos, cut, unread):
        clips.append(clip)
        source_bytes += share
        for name in names:
            if name in left_out:
                continue
            target = folder / name / f"{clip.name}{FORMATS[name].suffix}"
            began = time.perf_counter()
            try:
                store(target, FORMATS[name], frames, clip.rate)
            except (av.FFmpegError, ValueError) as error:
                left_out[name] = f"PyAV's FFmpeg cannot encode it: {error}"
                shutil.rmtree(folder / name)
                continue
            totals[name][0] += time.perf_counter() - began
            totals[name][1] += _disk_bytes(target)
            totals[name][2] += psnr(read_reference(target, FORMATS[name].kind), frames)
    if not clips:
        reasons = "".join(f"\n  {video}: {why}" for video, why in unread.items())
        raise LabError(
            f"no clip of {cut.seconds:g} s can be cut: use a smaller `--seconds`, or other videos{reasons}"
        )
    for name, (spent, size, quality) in totals.items():
        if name not in left_out:
            mean_psnr = quality / len(clips)
            made[name] = Stored(
                name, int(size), spent, mean_psnr if np.isfinite(mean_psnr) else None
            )
    record = {
        "key": key,
        "clips": [asdict(clip) for clip in clips],
        "stored": {name: asdict(entry) for name, entry in made.items()},
        "left_out": left_out,
        "unread": unread,
        "source_bytes": int(source_bytes),
    }
    manifest.write_text(json.dumps(record, indent=1))
    return _load(folder, record, names)


def _key(videos: Sequence[Path], cut: Cut) -> str:
    facts = [
        [(str(v), v.stat().st_size, v.stat().st_mtime_ns) for v in videos],
        asdict(cut),
        [asdict(fmt) for fmt in FORMATS.values()],
        [entry.name for entry in fields(Clip)],
        av.__version__,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _load(folder: Path, record: dict, names: Sequence[str]) -> Sample:  # type: ignore[type-arg]
    return Sample(
        folder,
        tuple(Clip(**clip) for clip in record["clips"]),
        tuple(Stored(**record["stored"][name]) for name in names if name in record["stored"]),
        record["source_bytes"],
        {name: why for name, why in record["left_out"].items() if name in names},
        record["unread"],
    )


def load_sample(folder: Path) -> Sample:
    """The sample that `make_sample` stored in `folder`."""
    record = json.loads((folder / "sample.json").read_text())
    return _load(folder, record, [*record["stored"]])


def _cut(
    videos: Sequence[Path], cut: Cut, unread: dict[str, str]
) -> Iterator[tuple[Clip, Frames, float]]:
    """Takes clips from all videos in turn. Yields each with its frames and its share of the source's bytes.

    Args:
        videos: The videos.
        cut: How to cut them.
        unread: Receives the videos that gave no clips, or not all of their clips, with the reason.
    """
    pieces = {
        video: _pieces(video, name, cut)
        for video, name in zip(videos, _clip_names(videos), strict=True)
    }
    count = 0
    while pieces and count < cut.clips:
        for video, piece in list(pieces.items()):
            try:
                found = next(piece, None)
            except LabError as error:
                found = None
                unread[str(video)] = str(error)
            if found is None:
                del pieces[video]
                continue
            yield found
            count += 1
            if count == cut.clips:
                return


def _clip_names(videos: Sequence[Path]) -> list[str]:
    """A name for the clips of each video: its file name. If several files have the same name, a number is added."""
    counts: Counter[str] = Counter()
    names = []
    for video in videos:
        counts[video.stem] += 1
        number = counts[video.stem]
        names.append(video.stem if number == 1 else f"{video.stem}~{number}")
    return names


def _pieces(video: Path, name: str, cut: Cut) -> Iterator[tuple[Clip, Frames, float]]:
    """Consecutive clips of a video. Frames after the last complete clip are not used.

    Raises:
        LabError: If no clip can be cut, or if the video cannot be read to its end.
    """
    number = 0
    try:
        for clip in _read_pieces(video, name, cut):
            yield clip
            number += 1
    except (av.FFmpegError, LabError) as error:
        use = f"it gives only {format_count(number, 'clip')}" if number else "left out"
        why = error if isinstance(error, LabError) else f"FFmpeg cannot read it: {error.strerror}"
        raise LabError(f"{use}. {why}") from error
    if not number:
        raise LabError(f"left out. It is shorter than a clip of {cut.seconds:g} s")


def _read_pieces(video: Path, name: str, cut: Cut) -> Iterator[tuple[Clip, Frames, float]]:
    with av.open(str(video)) as container:
        if not container.streams.video:
            raise LabError("It has no video stream")
        stream = container.streams.video[0]
        rate = Fraction(stream.average_rate or 25).limit_denominator(1001)
        context = stream.codec_context
        if context is None:
            raise LabError("FFmpeg has no decoder for it")
        # With several threads, FFmpeg's H.264 decoder marks fewer damaged frames as corrupt.
        context.thread_count = 1
        height = min(cut.height or context.height, context.height) // 2 * 2
        width = max(2, round(context.width * height / context.height / 2) * 2)
        length = round(cut.seconds * rate)
        if length < 2:
            raise LabError(f"A clip of {cut.seconds:g} s has fewer than 2 frames")
        # Some containers, such as WebM, do not store the number of frames.
        total = stream.frames or round((container.duration or 0) / av.time_base * rate)
        size = video.stat().st_size
        number = 0
        frames: list[Frames] = []
        for frame in container.decode(stream):
            if frame.is_corrupt:
                place = number * length + len(frames)
                raise LabError(f"FFmpeg reports damage in its frame {place}")
            frames.append(frame.reformat(width, height, "rgb24").to_ndarray())
            if len(frames) == length:
                clip = Clip(f"{name}-{number:03}", length, float(rate), width, height, str(video))
                yield clip, np.stack(frames), size * length / max(total, length)
                number, frames = number + 1, []


# --- writing ---


def store(target: Path, fmt: Format, frames: Frames, rate: float) -> None:
    """Writes the frames to `target` in the format."""
    if fmt.kind == "video":
        _write_video(target, fmt, frames, Fraction(rate).limit_denominator(1001))
    elif fmt.kind == "raw":
        np.save(target, frames)
    else:
        images = encode_jpegs(frames)
        if fmt.kind == "burst":
            write_burst(target, images)
        else:
            target.mkdir()
            for number, image in enumerate(images):
                (target / f"{number:06}.jpg").write_bytes(image)


def _write_video(target: Path, fmt: Format, frames: Frames, rate: Fraction) -> None:
    # Read by SVT-AV1: 1 prints errors only.
    os.environ.setdefault("SVT_LOG", "1")
    with av.open(str(target), "w") as container:
        stream = container.add_stream(fmt.encoder, rate=rate, options=fmt.options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.gop_size = fmt.gop
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def encode_jpegs(frames: Frames) -> list[bytes]:
    """Each frame as a JPEG."""
    context = av.CodecContext.create("mjpeg", "w")
    context.height, context.width = frames.shape[1:3]
    context.pix_fmt, context.time_base = "yuvj420p", Fraction(1, 25)
    context.qmin = context.qmax = _JPEG_QUANTISER
    images = []
    for number, pixels in enumerate(frames):
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuvj420p")
        frame.pts, frame.time_base = number, context.time_base
        images += [bytes(packet) for packet in context.encode(frame)]
    return images + [bytes(packet) for packet in context.encode(None)]


# A burst ends with an index: the offset of each image and of the end of the last one, the number of images, and
# this mark.
_MARK = b"JPGBURST"
_TAIL = struct.Struct("<Q8s")


def write_burst(target: Path, images: Sequence[bytes]) -> None:
    """Writes the JPEGs one after another into one file, with an index at its end."""
    ends = np.cumsum([0, *map(len, images)]).astype("<u8")
    index = ends.tobytes() + _TAIL.pack(len(images), _MARK)
    target.write_bytes(b"".join(images) + index)


# --- reading ---


def read_jpegs(path: Path, kind: Kind, indices: Sequence[int]) -> list[bytes]:
    """The encoded images of the frames with these numbers.

    Raises:
        ValueError: If a burst has no index.
    """
    if kind == "folder":
        return [(path / f"{index:06}.jpg").read_bytes() for index in indices]
    with path.open("rb", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - _TAIL.size))
        tail = file.read(_TAIL.size)
        if len(tail) < _TAIL.size or tail[8:] != _MARK:
            raise ValueError(f"`{path}` is not a burst of JPEGs: its index is missing")
        count = _TAIL.unpack(tail)[0]
        file.seek(end - _TAIL.size - 8 * (count + 1))
        ends = np.frombuffer(file.read(8 * (count + 1)), "<u8")
        images = []
        for first, last in runs(indices):
            begin = int(ends[first])
            data = os.pread(file.fileno(), int(ends[last + 1]) - begin, begin)
            images += [
                data[int(ends[k]) - begin : int(ends[k + 1]) - begin]
                for k in range(first, last + 1)
            ]
        return images


def runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last index of each run of consecutive indices."""
    first = last = indices[0]
    for index in indices[1:]:
        if index != last + 1:
            yield first, last
            first = index
        last = index
    yield first, last


def read_raw(path: Path, indices: Sequence[int]) -> Frames:
    """The frames with these numbers from an `.npy` file. Only their bytes and the header are read."""
    with path.open("rb", buffering=0) as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        start, frame_bytes = file.tell(), int(np.prod(shape[1:])) * dtype.itemsize
        parts = [
            os.pread(file.fileno(), (last - first + 1) * frame_bytes, start + first * frame_bytes)
            for first, last in runs(indices)
        ]
    return np.frombuffer(b"".join(parts), dtype).reshape(len(indices), *shape[1:])


def decode_jpeg(data: bytes) -> av.VideoFrame:
    """Decodes an image with FFmpeg's MJPEG decoder."""
    context = av.CodecContext.create("mjpeg", "r")
    context.thread_count = 1
    (frame,) = context.decode(av.Packet(data)) or context.decode(None)
    return frame


def read_reference(path: Path, kind: Kind) -> Frames:
    """All frames of a clip, decoded from the first to the last without a seek."""
    if kind == "raw":
        return np.load(path)  # type: ignore[no-any-return]
    if kind != "video":
        count = len(list(path.iterdir())) if kind == "folder" else _burst_length(path)
        images = read_jpegs(path, kind, range(count))
        return np.stack([decode_jpeg(image).to_ndarray(format="rgb24") for image in images])
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def _burst_length(path: Path) -> int:
    count: int = _TAIL.unpack(path.read_bytes()[-_TAIL.size :])[0]
    return count


def _disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


def psnr(one: Frames, other: Frames) -> float:
    """PSNR in dB. Infinite if both are equal."""
    error = float(np.mean(np.square(one.astype(np.float32) - other)))
    return 10 * float(np.log10(255**2 / error)) if error else float("inf")
