"""Functions that process one clip, one per stage of the loader. They do not use threads.

PyAV releases the GIL while it demuxes, decodes and resizes, so several threads can run them in parallel.
"""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from .clips import Clip

# The header of an mp4 file has all parameters that a decoder needs. By default, FFmpeg also decodes the first frame
# when it opens a file. This costs more than to demux the whole file.
_HEADER_ONLY = {"analyzeduration": "0", "probesize": "32"}


@dataclass(frozen=True)
class Encoded:
    """The packets of one subclip, from the keyframe before it on, and the parameters of their decoder."""

    clip: Clip
    codec: str
    extradata: bytes | None
    packets: list[av.Packet[av.VideoStream]]
    time_base: float
    """Seconds per unit of the time stamps of packets and frames."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the bytes and the times of the packets. Packets cannot be pickled, and a decoder needs no more."""
        packets = [(bytes(packet), packet.pts, packet.dts) for packet in self.packets]
        return _unpickle, (self.clip, self.codec, self.extradata, packets, self.time_base)


def _unpickle(
    clip: Clip,
    codec: str,
    extradata: bytes | None,
    packets: list[tuple[bytes, int | None, int | None]],
    time_base: float,
) -> Encoded:
    made = []
    for data, pts, dts in packets:
        packet = cast("av.Packet[av.VideoStream]", av.Packet(data))
        packet.pts, packet.dts = pts, dts
        made.append(packet)
    return Encoded(clip, codec, extradata, made, time_base)


class Batch(NamedTuple):
    """A batch as the training loop receives it."""

    clips: NDArray[np.uint8]
    """Frames, `(batch, time, height, width, 3)`."""
    labels: NDArray[np.int64]
    """Class of each clip."""
    indices: NDArray[np.int64]
    """Index of each clip in the loader's list."""


def fetch(clip: Clip, delay: float = 0.0) -> tuple[Clip, bytes]:
    """Reads the file after `delay` seconds, the simulated latency of the storage."""
    if delay:
        time.sleep(delay)
    return clip, clip.path.read_bytes()


def demux(item: tuple[Clip, bytes]) -> Encoded:
    """Gathers the packets from the keyframe before the subclip to its end."""
    clip, data = item
    with av.open(io.BytesIO(data), "r", options=_HEADER_ONLY) as container:
        stream = container.streams.video[0]
        scale = float(stream.time_base or 1)
        container.seek(int(clip.start / scale), stream=stream)
        packets = []
        for packet in container.demux(stream):
            # A packet's decoding time never exceeds its presentation time, so later packets are not needed.
            if packet.dts is None or packet.dts * scale >= clip.end:
                break
            packets.append(packet)
        context = stream.codec_context
        return Encoded(clip, context.name, context.extradata, packets, scale)


def decode(item: Encoded, frames: int) -> list[av.VideoFrame]:
    """Decodes the packets and keeps `frames` frames, evenly spread over the subclip.

    Raises:
        ValueError: If no frame of the subclip can be decoded.
    """
    context = cast(VideoCodecContext, VideoCodecContext.create(item.codec, "r"))
    context.extradata = item.extradata
    context.thread_count = 1
    clip = item.clip
    decoded = (frame for packet in [*item.packets, None] for frame in context.decode(packet))
    inside = [
        frame
        for frame in decoded
        if frame.pts is not None and clip.start <= frame.pts * item.time_base < clip.end
    ]
    if not inside:
        raise ValueError(f"no frame of {clip} could be decoded")
    return [inside[place] for place in np.linspace(0, len(inside) - 1, frames).astype(int)]


def demux_and_decode(item: tuple[Clip, bytes], frames: int) -> list[av.VideoFrame]:
    """`demux` and `decode` in one call."""
    return decode(demux(item), frames)


def resize(frames: list[av.VideoFrame], size: int) -> NDArray[np.uint8]:
    """Resizes the frames to squares of `size` pixels, without keeping the aspect ratio: `(time, size, size, 3)`."""
    scaler = VideoReformatter()
    scaled = [
        scaler.reformat(frame, size, size, "rgb24", interpolation="FAST_BILINEAR").to_ndarray()
        for frame in frames
    ]
    return np.stack(scaled).astype(np.uint8, copy=False)


def equalize(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Spreads the brightness of a clip over more of the range.

    It works byte by byte in plain Python, like the first version of many transforms. It holds the GIL.
    """
    pixels = frames.tobytes()
    counts = [0] * 256
    for value in pixels:
        counts[value] += 1
    below, table = 0, bytearray(256)
    for value, count in enumerate(counts):
        below += count
        table[value] = 255 * below // len(pixels)
    # The result is the mean of the original and the equalized value, so that a dark scene remains dark.
    mapped = bytes((value + table[value]) >> 1 for value in pixels)
    return np.frombuffer(mapped, np.uint8).reshape(frames.shape)


def collate(items: list[tuple[int, int, NDArray[np.uint8]]]) -> Batch:
    """Joins clips, each a tuple of index, label and frames."""
    indices, labels, clips = zip(*items, strict=True)
    return Batch(np.stack(clips), np.array(labels, np.int64), np.array(indices, np.int64))
