"""Finds the videos in a folder, and describes each in one line."""

from __future__ import annotations

from pathlib import Path

import av

from .formats import LabError

_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi")


def list_videos(folder: Path) -> list[Path]:
    """The videos below `folder`, in the order of their paths.

    Raises:
        LabError: If there are none.
    """
    if not folder.is_dir():
        raise LabError(f"`{folder}` is not a folder: pass the folder of your videos as `--data`")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    if not found:
        raise LabError(f"no video below `{folder}` (suffixes: {', '.join(_SUFFIXES)})")
    return found


def describe_video(video: Path) -> str:
    """Codec, size, frame rate and length, as stated in the file's header. No frame is decoded."""
    try:
        with av.open(str(video)) as container:
            if not container.streams.video:
                return "no video stream"
            stream = container.streams.video[0]
            context = stream.codec_context
            if context is None:
                return "unknown codec"
            facts = [context.name, f"{context.width} x {context.height}"]
            if stream.average_rate:
                facts.append(f"{float(stream.average_rate):.4g} frames/s")
            length = container.duration
            facts.append("unknown length" if length is None else f"{length / av.time_base:.1f} s")
            return ", ".join(facts)
    except av.FFmpegError as error:
        return f"FFmpeg cannot read it: {error.strerror}"
