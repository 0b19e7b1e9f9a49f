"""Compares the frames of a decoder with a reference: the same file, decoded from start to end without a seek.

Colours may differ slightly, because libraries convert YUV to RGB in different ways. A wrong frame differs more: it
is closer to another frame of the reference than to the one that was requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .formats import Frames, psnr
from .loaders import Reader, Request

#: Lowest PSNR in dB of a correct frame. Different YUV to RGB conversions of one decoded frame stay above 30 dB;
#: different frames of a moving scene are mostly below.
PSNR_LIMIT_DB = 30.0
#: Another frame counts as the delivered one only if its PSNR is higher by this much. In a still scene, neighbours
#: are equal, so a wrong frame cannot be detected.
MARGIN_DB = 3.0
#: Distance in frames within which the delivered frame is searched first. Random access is rarely off by more.
_REACH = 3


@dataclass
class Check:
    """Result of the comparison."""

    frames: int = 0
    """Frames that were requested."""
    compared_frames: int = 0
    """Frames that were delivered and compared. Each frame that was not counts as wrong."""
    wrong_frames: int = 0
    lowest_psnr_db: float | None = None
    """Lowest PSNR of the correct frames. None if all of them are identical to the reference."""
    faults: list[str] = field(default_factory=list)
    """Descriptions of the first faults."""

    @property
    def correct(self) -> bool:
        return not self.wrong_frames and not self.faults

    def add_fault(self, text: str) -> None:
        if len(self.faults) < 5:
            self.faults.append(text)


def check_reader(reader: Reader, cases: Iterable[tuple[Request, Frames]]) -> Check:
    """Reads each request and compares it with the frames of the reference, which has all frames of the clip."""
    check = Check()
    for request, reference in cases:
        place = f"{request.clip.name}, {_describe(request.indices)}"
        check.frames += len(request.indices)
        try:
            frames = reader.read(request)
        except Exception as error:
            check.wrong_frames += len(request.indices)
            check.add_fault(f"{place}: {type(error).__name__}: {error}")
            continue
        if frames.shape[1:] != reference.shape[1:]:
            check.wrong_frames += len(request.indices)
            check.add_fault(f"{place}: frames of shape {frames.shape[1:]}")
            continue
        check.compared_frames += len(frames)
        for index, frame in zip(request.indices, frames, strict=True):
            _compare(check, request, index, frame, reference)
    return check


def _compare(check: Check, request: Request, index: int, frame: Frames, reference: Frames) -> None:
    own = _psnr_of_small(frame, reference[index])
    if not np.isfinite(own):
        return
    near = range(max(0, index - _REACH), min(len(reference), index + _REACH + 1))
    closeness = {k: _psnr_of_small(frame, reference[k]) for k in near}
    if max(closeness.values()) < PSNR_LIMIT_DB:
        closeness = {k: _psnr_of_small(frame, reference[k]) for k in range(len(reference))}
    best = max(closeness, key=closeness.__getitem__)
    if closeness[best] >= own + MARGIN_DB:
        check.wrong_frames += 1
        check.add_fault(
            f"{request.clip.name}: frame {best} was delivered for frame {index} ({best - index:+d})"
        )
    elif own < PSNR_LIMIT_DB:
        check.wrong_frames += 1
        check.add_fault(
            f"{request.clip.name}: frame {index} differs from the reference (PSNR {own:.1f} dB)"
        )
    else:
        lowest = check.lowest_psnr_db
        check.lowest_psnr_db = own if lowest is None else min(lowest, own)


def _psnr_of_small(one: Frames, other: Frames) -> float:
    """PSNR in dB of about 64 x 64 pixels, which is enough to distinguish frames."""
    step = max(1, min(one.shape[:2]) // 64)
    return psnr(one[::step, ::step], other[::step, ::step])


def _describe(indices: tuple[int, ...]) -> str:
    if len(indices) == 1:
        return f"frame {indices[0]}"
    whole = indices == tuple(range(indices[0], indices[-1] + 1))
    if whole:
        return f"frames {indices[0]} to {indices[-1]}"
    return f"frames {', '.join(map(str, indices))}"
